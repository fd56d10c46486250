#include "lockstep/observe/run_record.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/host.h"

namespace lockstep::observe {
namespace {

constexpr std::array<std::string_view, 4> kStates = {"running", "finished", "interrupted", "failed"};

// The members of each part, named once for reading and writing. A row is a part that is a list of numbers in
// the file.

template <class Visitor>
void visit(Visitor& v, RunRecord::Curve& curve) {
  v("name", curve.name), v("values", curve.values);
}

template <class Visitor>
void visit(Visitor& v, RunRecord::Replica& replica) {
  v("name", replica.name), v("steps", replica.steps);
  v("mean_ms", replica.mean_ms), v("median_ms", replica.median_ms), v("p95_ms", replica.p95_ms);
  v("max_ms", replica.max_ms), v("first_ms", replica.first_ms), v("outside_ms", replica.outside_ms);
  v("times_ms", replica.times_ms), v("intervals", replica.intervals);
}

template <class Visitor>
void visit(Visitor& v, Verdict& verdict) {
  v("id", verdict.id), v("cause", verdict.cause), v("evidence", verdict.evidence);
  v("fix", verdict.fix), v("gain", verdict.gain), v("speedup", verdict.speedup);
}

template <class Visitor>
void visit(Visitor& v, RunRecord::Stage& stage) {
  v("name", stage.name), v("arguments", stage.arguments), v("where", stage.where);
  v("elements", stage.elements), v("elements_per_s", stage.elements_per_s), v("self_ns", stage.self_ns);
  v("busy", stage.busy), v("threads", stage.threads), v("slots", stage.slots);
  v("ready", stage.ready), v("waited", stage.waited), v("inputs", stage.inputs);
}

template <class Visitor>
void visit(Visitor& v, RunRecord::Input& input) {
  v("seconds", input.seconds), v("elements", input.elements), v("consumer", input.consumer);
  v("root", input.root), v("bottleneck", input.bottleneck), v("where", input.where);
  v("cause", input.cause), v("fix", input.fix), v("speedup", input.speedup);
}

template <class Visitor>
void visit(Visitor& v, RunRecord::Memory& memory) {
  v("device", memory.device), v("peak", memory.peak), v("limit", memory.limit);
  v("reserved", memory.reserved), v("uses", memory.uses), v("samples", memory.samples);
}

template <class Visitor>
void visit(Visitor& v, RunRecord::Row& row) {
  v("group", row.group), v("name", row.name);
}

template <class Visitor>
void visit(Visitor& v, RunRecord::Timeline& timeline) {
  v("first_step", timeline.first_step), v("steps", timeline.steps), v("rows", timeline.rows);
  v("names", timeline.names), v("spans", timeline.spans);
}

template <class Visitor>
void visit(Visitor& v, KernelTime& kernel) {
  v("name", kernel.name), v("calls", kernel.calls), v("total_ns", kernel.total_ns);
  v("flops", kernel.flops), v("bytes", kernel.bytes), v.later("half_flops", kernel.half_flops);
}

template <class Visitor>
void visit(Visitor& v, RunRecord::Kernels& kernels) {
  v("steps", kernels.steps), v("list", kernels.list), v("others", kernels.others);
  v("flops_per_second", kernels.flops_per_second), v("bytes_per_second", kernels.bytes_per_second);
  v("ceiling_is", kernels.ceiling_is), v.later("half_flops_per_second", kernels.half_flops_per_second);
}

template <class Visitor>
void visit(Visitor& v, RunRecord& record) {
  v("state", record.state), v("model", record.model), v("host", record.host), v("process", record.process);
  v("started_ms", record.started_ms), v("updated_ms", record.updated_ms);
  v("epoch", record.epoch), v("epochs", record.epochs), v("step", record.step);
  v("steps_per_epoch", record.steps_per_epoch), v("examples_per_second", record.examples_per_second);
  v("verdicts", record.verdicts);
  v("history_epochs", record.history_epochs), v("curves", record.curves), v("losses", record.losses);
  v("categories", record.categories), v("interval_steps", record.interval_steps);
  v("replicas", record.replicas), v("sums", record.sums), v("input", record.input);
  v("memory", record.memory), v("timeline", record.timeline), v("kernels", record.kernels);
  v("configuration", record.configuration), v("versions", record.versions);
  v.later("bound", record.bound), v.later("others_ms", record.others_ms);
}

// --- rows: the fixed members, then a list that goes to the end of the row ---

auto fixed(RunRecord::Interval& i) {
  return std::tie(i.first_step, i.steps, i.start_ns, i.wall_ns, i.outside_ns, i.examples);
}
std::vector<int64_t>* open_end(RunRecord::Interval& i) { return &i.times_ns; }
auto fixed(RunRecord::MemorySample& s) { return std::tie(s.ms); }
std::vector<int64_t>* open_end(RunRecord::MemorySample& s) { return &s.bytes; }
auto fixed(RunRecord::Span& s) { return std::tie(s.row, s.name, s.category, s.start_ns, s.duration_ns); }
std::vector<int64_t>* open_end(RunRecord::Span&) { return nullptr; }
auto fixed(RunRecord::Loss& l) { return std::tie(l.step, l.loss); }
std::vector<int64_t>* open_end(RunRecord::Loss&) { return nullptr; }

template <class T>
concept IsRow = requires(T& value) {
  fixed(value);
};

// --- writing ---

Json written(const std::string& text) { return text; }
Json written(int64_t number) { return number; }
// JSON has no infinities and no NaN.
Json written(double number) { return std::isfinite(number) ? Json(number) : Json(); }
Json written(const Json& json) { return json; }
Json written(RunRecord::State state) { return name(state); }

template <class T>
Json written(const T& part);
template <class T>
Json written(const std::optional<T>& part) {
  return part ? written(*part) : Json();
}
template <class T>
Json written(const std::vector<T>& parts) {
  Json::List list;
  list.reserve(parts.size());
  for (const T& part : parts) list.push_back(written(part));
  return list;
}

class JsonWriter {
 public:
  template <class T>
  void operator()(std::string_view name, const T& value) {
    members_.emplace_back(std::string(name), written(value));
  }
  template <class T>
  void later(std::string_view name, const T& value) {
    (*this)(name, value);
  }
  Json take() { return Json::object(std::move(members_)); }

 private:
  Json::Members members_;
};

template <class T>
Json written(const T& part) {
  auto& value = const_cast<T&>(part);  // visitors may change what they see: this one does not
  if constexpr (IsRow<T>) {
    Json::List row;
    std::apply([&](const auto&... numbers) { (row.push_back(written(numbers)), ...); }, fixed(value));
    if (const std::vector<int64_t>* rest = open_end(value)) row.insert(row.end(), rest->begin(), rest->end());
    return row;
  } else {
    JsonWriter writer;
    visit(writer, value);
    return writer.take();
  }
}

// --- reading ---

template <class... Words>
[[noreturn]] void refuse(const std::string& place, const Words&... words) {
  fail(ErrorCode::invalid_argument, std::source_location::current(), place.empty() ? "the record" : place,
       ": ", words...);
}

const char* kind_of(const Json& json) {
  return json.is_null()     ? "null"
         : json.is_bool()   ? "a truth value"
         : json.is_number() ? "a number"
         : json.is_string() ? "text"
         : json.is_list()   ? "a list"
                            : "an object";
}

void require_kind(bool right, const char* wanted, const Json& json, const std::string& place) {
  if (!right) refuse(place, "should be ", wanted, ", and is ", kind_of(json));
}

std::string inside(const std::string& place, std::string_view name) {
  return place.empty() ? std::string(name) : place + "." + std::string(name);
}

void read(const Json& json, std::string& text, const std::string& place) {
  require_kind(json.is_string(), "text", json, place);
  text = json.as_string();
}
void read(const Json& json, int64_t& number, const std::string& place) {
  require_kind(json.is_int(), "a whole number", json, place);
  number = json.as_int();
}
void read(const Json& json, double& number, const std::string& place) {
  require_kind(json.is_number() || json.is_null(), "a number", json, place);
  number = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.as_double();
}
void read(const Json& json, Json& object, const std::string& place) {
  require_kind(json.is_object(), "an object", json, place);
  object = json;
}
void read(const Json& json, RunRecord::State& state, const std::string& place) {
  require_kind(json.is_string(), "text", json, place);
  const auto found = std::find(kStates.begin(), kStates.end(), json.as_string());
  if (found == kStates.end())
    refuse(place, "should be running, finished, interrupted or failed, and is \"", json.as_string(), "\"");
  state = static_cast<RunRecord::State>(found - kStates.begin());
}

template <class T>
void read(const Json& json, T& part, const std::string& place);
template <class T>
void read(const Json& json, std::optional<T>& part, const std::string& place) {
  part.reset();
  if (json.is_null()) return;
  T made;
  read(json, made, place);
  part = std::move(made);
}
template <class T>
void read(const Json& json, std::vector<T>& parts, const std::string& place) {
  require_kind(json.is_list(), "a list", json, place);
  parts.clear();
  parts.reserve(json.items().size());
  for (const Json& item : json.items()) {
    const std::string at = place + "[" + std::to_string(parts.size()) + "]";
    read(item, parts.emplace_back(), at);
  }
}

class JsonReader {
 public:
  JsonReader(const Json& json, const std::string& place) : json_(json), place_(place) {}
  template <class T>
  void operator()(std::string_view name, T& value) {
    const Json* member = json_.find(name);
    if (!member) refuse(place_, "has no member \"", name, "\"");
    read(*member, value, inside(place_, name));
  }
  // What records of earlier versions do not have.
  template <class T>
  void later(std::string_view name, T& value) {
    if (json_.find(name)) (*this)(name, value);
  }

 private:
  const Json& json_;
  const std::string& place_;
};

template <class T>
void read(const Json& json, T& part, const std::string& place) {
  if constexpr (IsRow<T>) {
    require_kind(json.is_list(), "a list of numbers", json, place);
    constexpr size_t kFixed = std::tuple_size_v<decltype(fixed(part))>;
    const Json::List& items = json.items();
    std::vector<int64_t>* rest = open_end(part);
    if (items.size() < kFixed || (!rest && items.size() > kFixed))
      refuse(place, "has ", items.size(), " numbers, and should have ", kFixed, rest ? " or more" : "");
    size_t next = 0;
    std::apply([&](auto&... numbers) { (read(items[next++], numbers, place), ...); }, fixed(part));
    for (; next < items.size(); ++next) read(items[next], rest->emplace_back(), place);
  } else {
    require_kind(json.is_object(), "an object", json, place);
    JsonReader reader(json, place);
    visit(reader, part);
  }
}

// --- what the parts must have in common ---

void require_length(size_t length, size_t wanted, const std::string& place, const char* of) {
  if (length != wanted)
    refuse(place, "has ", length, " entries, and should have one for each of ", wanted, " ", of);
}

void require_not_negative(std::initializer_list<int64_t> numbers, const std::string& place) {
  for (const int64_t number : numbers)
    if (number < 0) refuse(place, "has the number ", number, ", which cannot be negative");
}

void check(const RunRecord& record) {
  const size_t categories = record.categories.size();
  // Whoever adds them up shall not overflow.
  constexpr int64_t kMost = int64_t{1} << 56;
  for (const RunRecord::Curve& curve : record.curves)
    require_length(curve.values.size(), record.history_epochs.size(), "curves." + curve.name, "epochs");
  require_not_negative({record.step, record.epoch, record.epochs}, "step, epoch or epochs");
  if (record.interval_steps < 1 || record.interval_steps > kMost)
    refuse("interval_steps", "should be from 1 to 2^56, and is ", record.interval_steps);
  for (size_t r = 0; r < record.replicas.size(); ++r) {
    const RunRecord::Replica& replica = record.replicas[r];
    const std::string place = "replicas[" + std::to_string(r) + "]";
    require_length(replica.times_ms.size(), categories, place + ".times_ms", "categories");
    for (size_t i = 0; i < replica.intervals.size(); ++i) {
      const RunRecord::Interval& interval = replica.intervals[i];
      const std::string row = place + ".intervals[" + std::to_string(i) + "]";
      require_length(interval.times_ns.size(), categories, row, "categories behind its six other numbers");
      require_not_negative(
          {interval.first_step, interval.steps, interval.wall_ns, interval.outside_ns, interval.examples},
          row);
      for (const int64_t number : {interval.first_step, interval.steps, interval.wall_ns, interval.outside_ns,
                                   interval.examples, interval.start_ns})
        if (number < -kMost || number > kMost) refuse(row, "has the number ", number, ", which is too large");
      for (const int64_t ns : interval.times_ns)
        if (ns < -kMost || ns > kMost) refuse(row, "has the number ", ns, ", which is too large");
      if (i > 0 && interval.first_step <= replica.intervals[i - 1].first_step)
        refuse(row, "begins at step ", interval.first_step, ", and does not follow the one before");
    }
  }
  for (size_t m = 0; m < record.memory.size(); ++m)
    for (size_t s = 0; s < record.memory[m].samples.size(); ++s)
      require_length(record.memory[m].samples[s].bytes.size(), record.memory[m].uses.size(),
                     "memory[" + std::to_string(m) + "].samples[" + std::to_string(s) + "]",
                     "uses behind its time");
  if (record.timeline) {
    const RunRecord::Timeline& timeline = *record.timeline;
    const auto within = [](int64_t index, size_t size) {
      return index >= 0 && index < static_cast<int64_t>(size);
    };
    for (size_t s = 0; s < timeline.spans.size(); ++s) {
      const RunRecord::Span& span = timeline.spans[s];
      const std::string place = "timeline.spans[" + std::to_string(s) + "]";
      if (!within(span.row, timeline.rows.size()))
        refuse(place, "is in row ", span.row, ", which does not exist");
      for (const int64_t index : {span.name, span.category})
        if (!within(index, timeline.names.size()))
          refuse(place, "has the name ", index, ", which does not exist");
      require_not_negative({span.start_ns, span.duration_ns}, place);
    }
  }
  if (record.kernels && record.kernels->steps < 1)
    refuse("kernels.steps", "should be 1 or more, and is ", record.kernels->steps);
  for (const auto& [name, version] : record.versions.members())
    require_kind(version.is_string(), "text", version, inside("versions", name));
}

}  // namespace

std::string_view name(RunRecord::State state) { return kStates[static_cast<size_t>(state)]; }

std::optional<double> share_of_ceiling(const KernelTime& kernel, const RunRecord::Kernels& of) {
  const auto seconds = static_cast<double>(kernel.total_ns) * 1e-9;
  if (seconds <= 0) return std::nullopt;
  double least = 0;
  if (of.flops_per_second > 0) least = seconds_at(kernel, of.flops_per_second, of.half_flops_per_second);
  if (of.bytes_per_second > 0) least = std::max(least, kernel.bytes / of.bytes_per_second);
  return least > 0 ? std::optional(least / seconds) : std::nullopt;
}

bool looks_dead(const RunRecord& record) {
  if (record.state != RunRecord::State::running || record.process <= 0) return false;
  if (record.host != host_name()) return false;
  return kill(static_cast<pid_t>(record.process), 0) != 0 && errno == ESRCH;
}

Json to_json(const RunRecord& record) {
  Json json = written(record);
  Json::Members members{{"schema", RunRecord::kSchema}};
  for (const Json::Member& member : json.members()) members.push_back(member);
  return Json::object(std::move(members));
}

RunRecord record_from_json(const Json& json) {
  require_kind(json.is_object(), "an object", json, "");
  const Json* schema = json.find("schema");
  if (!schema) refuse("", "has no member \"schema\": this is not the record of a run");
  if (*schema != Json(RunRecord::kSchema))
    refuse("schema", "is ", schema->dump(), ", and this version reads ", RunRecord::kSchema,
           "; use the version that wrote the record");
  RunRecord record;
  read(json, record, "");
  check(record);
  return record;
}

RunRecord read_record(const std::string& path) {
  const std::string file = is_folder(path) ? (std::filesystem::path(path) / RunRecord::kFile).string() : path;
  require(file_exists(file), ErrorCode::not_found, std::source_location::current(), "there is no ",
          is_folder(path) ? "record.json in the folder \"" + path + "\"" : "file or folder \"" + path + "\"",
          "; a run leaves one where it has an output: lockstep train --output DIR, or the callback "
          "keras::callbacks::RunRecord(DIR)");
  try {
    return record_from_json(Json::read_file(file));
  } catch (Error& error) {
    error.note("in " + file);
    throw;
  }
}

void write_record(const RunRecord& record, const std::string& folder) {
  make_folders(folder);
  AtomicFile file((std::filesystem::path(folder) / RunRecord::kFile).string());
  file.write(to_json(record).dump() + "\n");
  file.commit();
}

}  // namespace lockstep::observe
