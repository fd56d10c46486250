#include "lockstep/data/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "data/pipeline.h"
#include "data/statistics.h"
#include "lockstep/base/clock.h"

namespace lockstep::data {
namespace {

// The input is not what limits where the consumer takes this share of the time.
constexpr double kConsumerLimits = 0.9;
// A change that gains less is not worth a word.
constexpr double kNotable = 1.05;
// Handing an element from thread to thread takes about this long: less work is not worth it.
constexpr double kCheapNs = 5000;
// A difference below this share is within the error of what is sampled.
constexpr double kSampled = 0.1;

// --- a model of the pipeline -------------------------------------------------------------------------------

// What a stage costs over the whole run. Stages run on their consumer's thread, up to one with threads of its
// own: those fetch from its inputs one at a time, and work side by side.
struct Cost {
  const StageStatistics* stage = nullptr;  // none: one that was put in
  double caller_ns = 0;
  double fetch_ns = 0;
  double work_ns = 0;
  int threads = 0;
  bool fetches = true;  // false: its threads ask the inputs side by side (interleave), which is work
  std::vector<Cost> inputs = {};

  double all_ns() const {
    double sum = caller_ns + fetch_ns + work_ns;
    for (const Cost& input : inputs) sum += input.all_ns();
    return sum;
  }
};

// The time on the consumer's thread; `slowest` becomes that of the slowest threads beneath.
double serial_ns(const Cost& cost, double& slowest) {
  double beneath = cost.fetch_ns;
  for (const Cost& input : cost.inputs) beneath += serial_ns(input, slowest);
  if (cost.threads == 0) return cost.caller_ns + beneath;
  slowest = std::max({slowest, cost.fetches ? beneath : 0, (beneath + cost.work_ns) / cost.threads});
  return cost.caller_ns;
}

// How long the run takes at best.
double run_ns(const Cost& root, double consumer_ns, int cores) {
  double slowest = root.all_ns() / cores;
  const double serial = serial_ns(root, slowest);
  return std::max(consumer_ns + serial, slowest);
}

// The time that consumers waited for the stages with threads that are nearest to `statistics`, itself
// included.
double waited_ns(const StageStatistics& statistics) {
  if (statistics.threads > 0) return statistics.consumer_wait_ns;
  double sum = 0;
  for (const StageStatistics& input : statistics.inputs) sum += waited_ns(input);
  return sum;
}

Cost cost_of(const StageStatistics& statistics) {
  Cost cost{&statistics, statistics.caller_ns, 0, statistics.work_ns, statistics.threads};
  double fetch = statistics.fetch_ns;
  for (const StageStatistics& input : statistics.inputs) {
    cost.inputs.push_back(cost_of(input));
    double elsewhere = 0;
    fetch -= serial_ns(cost.inputs.back(), elsewhere) + waited_ns(input);
  }
  // Fetching that took far less than the inputs did was not what asked them.
  cost.fetches = statistics.threads == 0 || -fetch <= statistics.fetch_ns;
  if (!cost.fetches) cost.work_ns = std::max(0.0, cost.work_ns + fetch);
  // What the fetching itself did beside its inputs: to collect parts, to copy to a device.
  if (fetch > kSampled * statistics.fetch_ns) cost.fetch_ns = fetch;
  return cost;
}

// C: Cost, or a const one.
template <class C>
C* find(C& cost, const StageStatistics* stage) {
  if (cost.stage == stage) return &cost;
  for (C& input : cost.inputs)
    if (C* found = find(input, stage)) return found;
  return nullptr;
}

// Stages that run on one thread, or side by side on threads of their own.
struct Segment {
  double ns = 0;
  const StageStatistics* longest = nullptr;
};

// The segment that `cost` belongs to is `own`; those of threads beneath become `slowest` where they are.
void find_slowest(const Cost& cost, Segment& own, double& own_longest, Segment& slowest) {
  const auto add = [&](Segment& segment, double& longest, double ns) {
    segment.ns += ns;
    if (ns >= longest && cost.stage) {
      longest = ns;
      segment.longest = cost.stage;
    }
  };
  add(own, own_longest, cost.caller_ns);
  if (cost.threads == 0) {
    for (const Cost& input : cost.inputs) find_slowest(input, own, own_longest, slowest);
    return;
  }
  Segment fetching;
  double longest = 0;
  add(fetching, longest, cost.fetch_ns);
  for (const Cost& input : cost.inputs) find_slowest(input, fetching, longest, slowest);
  const double together = (fetching.ns + cost.work_ns) / cost.threads;
  if (!cost.fetches) {
    fetching = {together, cost.stage};
  } else if (together > fetching.ns) {
    fetching.ns = together;
    if (cost.work_ns > longest) fetching.longest = cost.stage;
  }
  if (fetching.ns > slowest.ns) slowest = fetching;
}

// --- advice ------------------------------------------------------------------------------------------------

struct Change {
  const char* id;
  std::string cause;
  std::string fix;
  double speedup;
};

std::string time_text(double ns) {
  for (const auto& [unit, size] : {std::pair{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}})
    if (ns >= size) return fmt::format("{:.3g} {}", ns / size, unit);
  return fmt::format("{:.3g} ns", ns);
}

std::string percent(double share) { return fmt::format("{:.0f}%", share * 100); }

double self_ns(const StageStatistics& stage, const Cost& cost) {
  return (cost.caller_ns + cost.fetch_ns + cost.work_ns) /
         static_cast<double>(std::max<int64_t>(1, stage.elements));
}

bool is_file_source(const StageStatistics& stage) {
  static const std::set<std::string> kInMemory{"from_tensor_slices", "from_tensors", "range",
                                               "from_generator"};
  return stage.inputs.empty() && !kInMemory.contains(stage.name);
}

// Whether `stage` lies beneath a stage of this name.
bool is_beneath(const StageStatistics& tree, const StageStatistics& stage, const std::string& name,
                bool met = false) {
  if (&tree == &stage) return met;
  met = met || tree.name == name;
  return std::any_of(tree.inputs.begin(), tree.inputs.end(),
                     [&](const StageStatistics& input) { return is_beneath(input, stage, name, met); });
}

class Adviser {
 public:
  Adviser(const PipelineStatistics& statistics, const Cost& root, double consumer_ns,
          const StageStatistics& bottleneck)
      : statistics_(statistics),
        root_(root),
        consumer_ns_(consumer_ns),
        stage_(bottleneck),
        what_(fmt::format("{} takes {} per element", stage_.name,
                          time_text(self_ns(stage_, *find(root_, &stage_))))) {}

  // The change that gains most.
  Change best() {
    prefetch();
    buffer();
    if (stage_.threads > 0)
      parallel_stage();
    else
      serial_stage();
    const auto most =
        std::max_element(changes_.begin(), changes_.end(),
                         [](const Change& a, const Change& b) { return a.speedup < b.speedup; });
    if (most != changes_.end() && most->speedup >= kNotable) return *most;
    return is_beneath(statistics_.root, stage_, "cache") ? nothing() : cache();
  }

 private:
  // `change` makes the model's tree what it would become.
  void consider(const char* id, std::string cause, std::string fix,
                const std::function<void(Cost&)>& change) {
    changes_.push_back({id, std::move(cause), std::move(fix), speedup(change)});
  }
  double speedup(const std::function<void(Cost&)>& change) const {
    Cost changed = root_;
    change(changed);
    const double before = run_ns(root_, consumer_ns_, statistics_.cores);
    return before / std::max(run_ns(changed, consumer_ns_, statistics_.cores), before * 0.01);
  }
  static void put_behind(Cost& cost) {
    Cost input = std::move(cost);
    cost = Cost{.threads = 1};
    cost.inputs.push_back(std::move(input));
  }

  void prefetch() {
    if (statistics_.root.threads > 0) return;
    consider("prefetch",
             fmt::format("what is before {} is done on the thread that uses the elements, and not meanwhile",
                         statistics_.root.name),
             "dataset = dataset.prefetch(tf::data::AUTOTUNE);  // at the end", put_behind);
  }

  // The stages are quick enough on average, and yet the consumer finds a buffer empty that was full before.
  void buffer() {
    const double model = run_ns(root_, consumer_ns_, statistics_.cores);
    const std::function<void(const StageStatistics&)> look = [&](const StageStatistics& stage) {
      if (stage.threads == 0) {
        std::for_each(stage.inputs.begin(), stage.inputs.end(), look);
        return;
      }
      const double waited = std::min(stage.consumer_wait_ns, statistics_.elapsed_ns - model);
      if (waited <= kSampled * statistics_.elapsed_ns || stage.producer_wait_ns == 0) return;
      changes_.push_back(
          {"larger-buffer",
           fmt::format(
               "the {} elements that wait in {} run out, though it is quick enough on average: elements take "
               "uneven times",
               stage.slots, stage.name),
           stage.name.starts_with("prefetch")
               ? fmt::format(".prefetch({})", 4 * stage.slots)
               : fmt::format(".prefetch({})  // behind {}", 4 * stage.slots, stage.name),
           statistics_.elapsed_ns / (statistics_.elapsed_ns - waited)});
    };
    look(statistics_.root);
  }

  void serial_stage() {
    const int cores = statistics_.cores;
    const auto side_by_side = [&](Cost& root) {
      Cost& cost = *find(root, &stage_);
      cost.work_ns = cost.caller_ns;
      cost.caller_ns = 0;
      cost.threads = cores;
    };
    const auto files_side_by_side = [&](Cost& root) {
      Cost& cost = *find(root, &stage_);
      double elsewhere = 0;
      cost.work_ns = serial_ns(cost, elsewhere);
      cost.caller_ns = 0;
      cost.threads = cores;
      for (Cost& input : cost.inputs) input = Cost{.stage = input.stage};
    };
    const auto on_own_thread = [&](Cost& root) { put_behind(*find(root, &stage_)); };
    const bool cheap = self_ns(stage_, *find(root_, &stage_)) < kCheapNs;
    if (stage_.name == "map" && cheap && is_beneath(statistics_.root, stage_, "batch")) {
      consider("batch-first", what_ + ": most of it is the call, which a batch needs once",
               ".batch(batch_size).map(f)  // f on whole batches, in place of .map(f).batch(batch_size)",
               [&](Cost& root) { find(root, &stage_)->caller_ns /= 8; });
    } else if (stage_.name == "map") {
      consider("parallel-map", what_ + " on one thread",
               ".map(f, {.num_parallel_calls = tf::data::AUTOTUNE})", side_by_side);
    } else if (stage_.name == "batch") {
      consider("parallel-batch", what_ + " on one thread",
               ".batch(batch_size, {.num_parallel_calls = tf::data::AUTOTUNE})", side_by_side);
    } else if (stage_.name == "interleave" || stage_.name == "flat_map") {
      consider("interleave", what_ + ", one dataset at a time",
               ".interleave(f, {.num_parallel_calls = tf::data::AUTOTUNE})", files_side_by_side);
    } else if (is_file_source(stage_)) {
      consider("interleave", what_ + " to read, one file at a time",
               "dataset = tf::data::Dataset::list_files({pattern}).interleave(read_file, "
               "{.num_parallel_calls = tf::data::AUTOTUNE});",
               files_side_by_side);
    }
    // What nothing can be done side by side in can still have a thread to itself.
    consider("own-thread", what_ + " on a thread that others need as well",
             fmt::format(".prefetch(tf::data::AUTOTUNE)  // behind {}", stage_.name), on_own_thread);
  }

  // What the stage is called with, as a program would name it.
  std::string argument() const { return stage_.name.find("batch") != std::string::npos ? "batch_size" : "f"; }

  void parallel_stage() {
    const std::string name = stage_.name;
    if (stage_.threads < statistics_.cores)
      consider("more-threads", fmt::format("{} on {} of {} cores", what_, stage_.threads, statistics_.cores),
               fmt::format(".{}({}, {{.num_parallel_calls = {}}})", name, argument(), statistics_.cores),
               [&](Cost& root) { find(root, &stage_)->threads = statistics_.cores; });
    if (stage_.threads > statistics_.cores)
      changes_.push_back(
          {"fewer-threads",
           fmt::format("{} has {} threads for {} cores: they take them from each other and from the "
                       "consumer",
                       name, stage_.threads, statistics_.cores),
           fmt::format(".{}({}, {{.num_parallel_calls = tf::data::AUTOTUNE}})", name, argument()), kNotable});
  }

  // No core is idle: only less work helps.
  Change cache() const {
    const auto gone = [&](Cost& root) { *find(root, &stage_) = Cost{.stage = &stage_}; };
    return {"cache", what_ + ", as quick as the cores allow",
            fmt::format(
                ".cache()  // behind {}, where every pass makes the same of it and it fits in memory; else "
                "cache(file)",
                stage_.name),
            speedup(gone)};
  }
  Change nothing() const {
    return {"cache", what_ + ", as quick as the cores allow; it is cached already", "", 1};
  }

  const PipelineStatistics& statistics_;
  const Cost& root_;
  double consumer_ns_;
  const StageStatistics& stage_;
  std::string what_;
  std::vector<Change> changes_;
};

// --- the report --------------------------------------------------------------------------------------------

StageExplanation explain_stage(const StageStatistics& stage, const Cost& cost, double elapsed_ns) {
  const double elapsed = std::max(elapsed_ns, 1.0);
  StageExplanation explanation{
      .name = stage.name,
      .arguments = stage.arguments,
      .where = stage.where,
      .elements = stage.elements,
      .skipped = stage.skipped,
      .elements_per_s = static_cast<double>(stage.elements) / elapsed * 1e9,
      .self_ns = self_ns(stage, cost),
      .busy = (cost.caller_ns + cost.fetch_ns + cost.work_ns) / elapsed,
      .threads = stage.threads,
      .slots = stage.slots,
      .ready = static_cast<double>(stage.ready) / static_cast<double>(std::max<int64_t>(1, stage.elements)),
      .waited = stage.consumer_wait_ns / elapsed};
  for (size_t i = 0; i < stage.inputs.size(); ++i)
    explanation.inputs.push_back(explain_stage(stage.inputs[i], cost.inputs[i], elapsed_ns));
  return explanation;
}

using Row = std::array<std::string, 7>;

void add_rows(const StageExplanation& stage, const std::string& lead, const std::string& indent,
              std::vector<Row>& rows) {
  const bool threaded = stage.threads > 0;
  std::string skipped = stage.skipped > 0 ? fmt::format(" ({} skipped)", stage.skipped) : "";
  rows.push_back({lead + stage.name + (stage.arguments.empty() ? "" : "(" + stage.arguments + ")") + skipped,
                  std::to_string(stage.elements), fmt::format("{:.1f}", stage.elements_per_s),
                  time_text(stage.self_ns), percent(stage.busy),
                  threaded ? std::to_string(stage.threads) : "",
                  threaded ? fmt::format("{:.1f}/{}", stage.ready, stage.slots) : ""});
  for (size_t i = 0; i < stage.inputs.size(); ++i) {
    const bool last = i + 1 == stage.inputs.size();
    add_rows(stage.inputs[i], indent + (last ? "└ " : "├ "), indent + (last ? "  " : "│ "), rows);
  }
}

// Characters, not bytes.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

nlohmann::ordered_json json_of(const StageExplanation& stage) {
  auto inputs = nlohmann::ordered_json::array();
  for (const StageExplanation& input : stage.inputs) inputs.push_back(json_of(input));
  return {
      {"name", stage.name},         {"arguments", stage.arguments}, {"where", stage.where},
      {"elements", stage.elements}, {"skipped", stage.skipped},     {"elements_per_s", stage.elements_per_s},
      {"self_ns", stage.self_ns},   {"busy", stage.busy},           {"threads", stage.threads},
      {"slots", stage.slots},       {"ready", stage.ready},         {"waited", stage.waited},
      {"inputs", std::move(inputs)}};
}

}  // namespace

Explanation explain(const PipelineStatistics& statistics) {
  const Cost root = cost_of(statistics.root);
  double elsewhere = 0;
  const double input_ns = serial_ns(root, elsewhere) + waited_ns(statistics.root);
  const double consumer_ns = std::max(0.0, statistics.elapsed_ns - input_ns);
  Explanation result{.seconds = statistics.elapsed_ns / 1e9,
                     .elements = statistics.root.elements,
                     .consumer = consumer_ns / std::max(statistics.elapsed_ns, 1.0),
                     .root = explain_stage(statistics.root, root, statistics.elapsed_ns)};
  if (result.consumer >= kConsumerLimits || statistics.root.elements == 0) {
    result.advice = "consumer";
    result.cause = statistics.root.elements == 0
                       ? "nothing came out of it"
                       : fmt::format("the input is not what limits: the consumer took {} of the time",
                                     percent(result.consumer));
    return result;
  }
  Segment own, slowest;
  double longest = 0;
  find_slowest(root, own, longest, slowest);
  if (own.ns >= slowest.ns) slowest = own;
  const StageStatistics& stage = slowest.longest ? *slowest.longest : statistics.root;
  const Change change = Adviser(statistics, root, consumer_ns, stage).best();
  result.bottleneck = stage.name;
  result.where = stage.where;
  result.advice = change.id;
  result.cause = change.cause;
  result.fix = change.fix;
  result.speedup = change.speedup;
  return result;
}

Explanation explain(const Dataset& dataset, const ExplainOptions& options, std::source_location where) {
  require(dataset.defined(), ErrorCode::invalid_argument, where,
          "explain: the dataset is empty: it was never made");
  Pipeline pipeline(dataset.node(), Pipeline::kLook);
  const std::unique_ptr<Cursor> root = pipeline.open_root();
  const int64_t begin = monotonic_ns(), end = begin + static_cast<int64_t>(options.seconds * 1e9);
  int64_t now = begin;
  for (int64_t count = 0; count < options.elements && now < end; ++count) {
    pipeline.tuner().step();
    Item item;
    if (!root->next(item)) break;
    item.element();
    now = monotonic_ns();
  }
  PipelineStatistics statistics = statistics_of(pipeline);
  statistics.elapsed_ns = static_cast<double>(now - begin);
  return explain(statistics);
}

Explanation explain(const Iterator& iterator) { return explain(statistics_of(iterator.pipeline())); }

std::string to_text(const Explanation& explanation) {
  std::vector<Row> rows{{"stage", "elements", "per s", "self time", "busy", "threads", "buffer"}};
  add_rows(explanation.root, "", "", rows);
  std::array<size_t, 7> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  std::string text;
  for (const Row& row : rows) {
    std::string line = row[0] + std::string(widths[0] - width(row[0]), ' ');
    for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (explanation.bottleneck.empty()) return text + explanation.cause + "\n";
  text +=
      fmt::format("bottleneck: {} [{}]: {}\n", explanation.bottleneck, explanation.where, explanation.cause);
  if (!explanation.fix.empty())
    text += fmt::format("fix:        {}\ngain:       up to {:.2f}x\n", explanation.fix, explanation.speedup);
  return text;
}

std::string to_json(const Explanation& explanation) {
  return nlohmann::ordered_json{{"seconds", explanation.seconds},
                                {"elements", explanation.elements},
                                {"consumer", explanation.consumer},
                                {"root", json_of(explanation.root)},
                                {"bottleneck", explanation.bottleneck},
                                {"where", explanation.where},
                                {"advice", explanation.advice},
                                {"cause", explanation.cause},
                                {"fix", explanation.fix},
                                {"speedup", explanation.speedup}}
      .dump(2);
}

}  // namespace lockstep::data
