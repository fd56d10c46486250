// What a device's memory is used for, and how much of it over time.
//
//   { const MemoryUseScope scope("variables"); ... }   // what this thread allocates here is counted there
//
// Every Storage enters itself when it is made and leaves when it goes, with the use it was made for.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/observe/run_summary.h"
#include "lockstep/observe/span.h"

namespace lockstep {

// Thread-safe. Enters and leaves without allocating once a use is known; while tracing, changes become a
// counter in the trace.
class MemoryLedger {
 public:
  using Use = int;
  static constexpr Use kTensors = 0;  // whatever no scope names

  MemoryLedger(std::string device, int index);

  // Counted for the use that the calling thread's scopes name.
  Use add(size_t bytes) noexcept;
  void remove(Use use, size_t bytes) noexcept;
  void move(Use from, Use to, size_t bytes) noexcept;

  // A run begins: peak and samples from here on.
  void begin_run();
  // What is held now is what a run holds that goes on without growing: later growth counts from here. The
  // first call of a run counts.
  void settle();
  // The summary of the run so far; what the allocator knows (limit, reserved) is left to the caller.
  observe::MemorySummary summary() const;

 private:
  struct Entry {
    int64_t before = 0, settled = 0, current = 0, at_peak = 0;
  };
  Entry& entry(Use use) noexcept;
  void changed(Use use, int64_t bytes) noexcept;
  void sample(int64_t now) noexcept;

  const std::string device_;
  const int index_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // by use
  int64_t before_ = 0, current_ = 0, peak_ = 0;
  int64_t began_ns_, peak_ns_ = 0, sampled_ns_ = 0, traced_ns_ = 0;
  bool settled_ = false, new_peak_ = false;
  int64_t interval_ns_;
  std::vector<observe::MemorySummary::Sample> samples_;
};

// The use that the calling thread's scopes name.
MemoryLedger::Use current_memory_use();

// The same name gives the same use, on every device. Takes a lock and may allocate.
MemoryLedger::Use memory_use(std::string_view name);

// While it lives, memory that this thread takes is for this use.
class MemoryUseScope {
 public:
  explicit MemoryUseScope(MemoryLedger::Use use);
  explicit MemoryUseScope(std::string_view name) : MemoryUseScope(memory_use(name)) {}
  ~MemoryUseScope();
  MemoryUseScope(const MemoryUseScope&) = delete;
  MemoryUseScope& operator=(const MemoryUseScope&) = delete;

 private:
  MemoryLedger::Use outer_;
};

}  // namespace lockstep
