// What is known of a stage of a running pipeline: how much it gave and where its time went.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <vector>

namespace lockstep::data {

// Counters are relaxed atomics: they are read while the stage runs.
struct Stage {
  using Counter = std::atomic<int64_t>;
  static constexpr int64_t kNoTake = INT64_MAX;

  std::string name;       // as the user calls it: "map"
  std::string arguments;  // as Node::arguments()
  std::source_location where;
  std::vector<std::unique_ptr<Stage>> inputs;  // guarded by Pipeline

  Counter elements{0};
  Counter skipped{0};  // bad elements that were left out
  // Calls, and the time in this stage alone, its inputs' taken off. Not every call is timed; one that is
  // counts for those before it that were not.
  Counter timed_calls{0};
  Counter timed_ns{0};

  // Stages with threads of their own.
  std::atomic<int> threads{0};             // now at work; 0: runs on its caller's thread
  std::atomic<int64_t> slots{0};           // elements that may wait for the consumer
  std::atomic<bool> tunes_threads{false};  // whether they are chosen as it runs
  std::atomic<bool> tunes_slots{false};
  Counter fetch_ns{0};           // of the calls of inputs, one thread at a time, waits included
  Counter work_ns{0};            // of the work on elements, all threads together
  Counter worked{0};             // how many became ready
  Counter consumer_wait_ns{0};   // the consumer found nothing
  Counter waiting_since_ns{0};   // it waits now; 0: it does not
  Counter producer_wait_ns{0};   // the threads found no room, all together
  Counter empty{0};              // takes that found nothing ready
  Counter ready{0};              // elements found ready, all takes together
  Counter least_ready{kNoTake};  // by one take, since this was last reset
  Counter element_bytes{0};      // of one element in a slot, lately
};

// Times the calls of next() along a thread's stack of stages. The outermost call decides whether it and all
// below are timed, so that timing costs no more than about a hundredth of the work.
class StageTimer {
 public:
  StageTimer(Stage& stage);
  ~StageTimer();
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

  // So much of the call under way was spent waiting for other threads: it is nobody's work.
  static void waited(int64_t ns);

 private:
  Stage& stage_;
  bool outermost_;
  int64_t start_ = 0;
  int64_t outer_inputs_ns_ = 0;
};

}  // namespace lockstep::data
