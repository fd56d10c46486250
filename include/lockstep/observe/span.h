// Spans: what ran when, on which device, for which replica; the material of a trace file.
//
//   observe::Span span("matmul", "kernel", {.device = 0, .replica = 0, .flops = 2 * m * n * k});
//
// Off until start_tracing(): a span then costs one relaxed load and a branch. While tracing, a thread
// writes into a buffer of its own: no lock, no allocation but that of the buffer at the thread's
// first event. What does not fit into the buffer is counted, reported by take_trace() and by the trace
// file. All functions are thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::observe {

// A text that lives until the program ends: a literal, or what intern() returned.
class Name {
 public:
  consteval Name(const char* literal) : text_(literal) {}
  const char* c_str() const { return text_; }
  bool operator==(const Name&) const = default;

 private:
  friend Name intern(std::string_view text);
  struct Interned {};
  Name(const char* text, Interned) : text_(text) {}

  const char* text_;
};

// The same text gives the same Name. Takes a lock and may allocate: once per kernel or layer, not
// once per event.
Name intern(std::string_view text);

// A row of the trace. Rows with the same group stand together: a device and its streams, say.
using Track = uint32_t;

// The row of the thread that records the event.
inline constexpr Track kThisThread = 0;

// The same group and row give the same Track. Takes a lock and may allocate.
Track track(std::string_view group, std::string_view row);

// Names the calling thread's row, in the group "host". Threads that were not named have a number.
void name_this_thread(std::string_view name);

struct EventOptions {
  int32_t device = -1;   // -1: none
  int32_t replica = -1;  // -1: none
  Track track = kThisThread;
  int64_t flops = -1;  // -1: not known
  int64_t bytes = -1;
};

enum class EventKind : uint32_t { span, counter };

struct Event {
  Name name;
  Name category;
  int64_t start_ns;  // monotonic_ns()
  int64_t end_ns;    // a counter: equal to start_ns
  EventKind kind = EventKind::span;
  int32_t device = -1;
  int32_t replica = -1;
  Track track = kThisThread;
  double value = -1;  // a counter's value; a span's flops, -1: not known
  int64_t bytes = -1;
};

namespace detail {
inline std::atomic<bool> tracing{false};
}

inline bool tracing() { return detail::tracing.load(std::memory_order_relaxed); }

struct TracingOptions {
  int64_t events_per_thread = 1 << 16;  // 64 bytes each
};

// Starts a new trace; what an earlier one recorded and nobody took is discarded.
void start_tracing(TracingOptions options = {});
void stop_tracing();

// Records a span whose times were measured elsewhere (a device's, a sampled step's). Does nothing
// while tracing is off.
void record_span(Name name, Name category, int64_t start_ns, int64_t end_ns,
                 const EventOptions& options = {});

// Records the value of something that changes with time, now: bytes in use, examples per second.
void record_counter(Name name, double value, const EventOptions& options = {});

// Records the time from its construction to its destruction, by the thread that destroys it.
class Span {
 public:
  Span(Name name, Name category, const EventOptions& options = {}) : name_(name), category_(category) {
    if (tracing()) [[unlikely]] {
      options_ = options;
      start_ns_ = monotonic_ns();
    }
  }
  ~Span() {
    if (start_ns_ >= 0) [[unlikely]]
      record_span(name_, category_, start_ns_, monotonic_ns(), options_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Name name_;
  Name category_;
  int64_t start_ns_ = -1;
  union {  // set only while tracing: a span that is off writes nothing
    EventOptions options_;
  };
};

struct TrackInfo {
  Track track;
  std::string group;
  std::string row;
};

struct Trace {
  std::vector<Event> events;      // by start; of two with the same start, the longer first
  std::vector<TrackInfo> tracks;  // all that the events refer to, by group, then as they were made
  int64_t dropped = 0;            // events that did not fit
};

// Takes what was recorded since the last call; events keep their thread's row as a track. Threads may
// go on recording meanwhile. Logs a warning where events were dropped.
Trace take_trace();

}  // namespace lockstep::observe
