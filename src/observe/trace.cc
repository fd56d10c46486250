#include "lockstep/observe/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <streambuf>
#include <unordered_map>

#include "lockstep/base/error.h"

namespace lockstep::observe {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Writes a trace piece by piece: a long one is hundreds of megabytes as text.
class Writer {
 public:
  Writer(const Trace& trace, std::ostream& out) : trace_(trace), out_(out) {
    for (const TrackInfo& track : trace.tracks)
      groups_.emplace(track.track, group_ids_.emplace(track.group, group_ids_.size() + 1).first->second);
    if (!trace.events.empty()) origin_ns_ = trace.events.front().start_ns;
    for (const Event& event : trace.events) origin_ns_ = std::min(origin_ns_, event.start_ns);
  }

  void write() {
    append(
        R"({{"displayTimeUnit":"ns","otherData":{{"producer":"lockstep","dropped_events":{},"origin_ns":{}}},)",
        trace_.dropped, origin_ns_);
    append("\"traceEvents\":[");
    for (const auto& [group, id] : group_ids_) metadata("process_name", id, 0, group);
    for (const TrackInfo& track : trace_.tracks)
      metadata("thread_name", groups_.at(track.track), track.track, track.row);
    for (const Event& event : trace_.events) event.kind == EventKind::counter ? counter(event) : span(event);
    append("\n]}}\n");
    flush();
  }

 private:
  void metadata(const char* what, size_t group, Track track, const std::string& name) {
    separate();
    append(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, group, track,
           quoted(name));
  }

  void head(char phase, const Event& event) {
    separate();
    append(R"({{"ph":"{}","name":{},"cat":{},"pid":{},"tid":{},"ts":{})", phase, text(event.name),
           text(event.category), group(event.track), event.track, microseconds(event.start_ns - origin_ns_));
  }

  void span(const Event& event) {
    head('X', event);
    append(R"(,"dur":{})", microseconds(event.end_ns - event.start_ns));
    const std::pair<const char*, int64_t> args[] = {{"device", event.device},
                                                    {"replica", event.replica},
                                                    {"flops", static_cast<int64_t>(event.value)},
                                                    {"bytes", event.bytes}};
    bool any = false;
    for (const auto& [key, value] : args) {
      if (value < 0) continue;
      append(R"({}"{}":{})", any ? "," : R"(,"args":{)", key, value);
      any = true;
    }
    append("{}", any ? "}}" : "}");
  }

  void counter(const Event& event) {
    head('C', event);
    // Counters of one name and group are one line in the picture unless their ids differ.
    if (event.device >= 0 || event.replica >= 0)
      append(R"(,"id":"device {} replica {}")", event.device, event.replica);
    // JSON has no infinities and no NaN.
    append(R"(,"args":{{"value":{}}}}})",
           std::isfinite(event.value) ? fmt::format("{}", event.value) : "null");
  }

  // In integers, so that no nanosecond is lost however long the machine has been up.
  static std::string microseconds(int64_t ns) {
    const uint64_t magnitude = ns < 0 ? uint64_t{0} - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
    return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
  }

  const std::string& text(Name name) {
    const auto [found, is_new] = texts_.try_emplace(name.c_str());
    if (is_new) found->second = quoted(name.c_str());
    return found->second;
  }

  size_t group(Track track) const {
    const auto found = groups_.find(track);
    return found == groups_.end() ? 0 : found->second;
  }

  void separate() {
    append("{}", first_ ? "\n" : ",\n");
    first_ = false;
    if (buffer_.size() > (1 << 16)) flush();
  }

  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
  }

  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

  const Trace& trace_;
  std::ostream& out_;
  fmt::memory_buffer buffer_;
  int64_t origin_ns_ = 0;
  bool first_ = true;
  std::map<std::string, size_t> group_ids_;  // pid 0 is left to tracks nobody described
  std::unordered_map<Track, size_t> groups_;
  std::unordered_map<const char*, std::string> texts_;
};

}  // namespace

std::string trace_json(const Trace& trace) {
  std::ostringstream out;
  Writer(trace, out).write();
  return out.str();
}

void write_trace(const Trace& trace, AtomicFile& file) {
  // Events go into the file as they are written, a buffer at a time.
  class FileBuffer final : public std::streambuf {
   public:
    explicit FileBuffer(AtomicFile& file) : file_(file) {}

   protected:
    std::streamsize xsputn(const char* text, std::streamsize count) override {
      file_.write(text, static_cast<size_t>(count));
      return count;
    }
    int_type overflow(int_type c) override {
      const char one = traits_type::to_char_type(c);
      file_.write(&one, 1);
      return c;
    }

   private:
    AtomicFile& file_;
  };
  FileBuffer buffer(file);
  std::ostream out(&buffer);
  out.exceptions(std::ios::badbit);  // what the file throws passes through
  Writer(trace, out).write();
}

void write_trace(const Trace& trace, const std::string& path) {
  AtomicFile file(path);
  write_trace(trace, file);
  file.commit();
}

}  // namespace lockstep::observe
