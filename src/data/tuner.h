// Gives stages that were told AUTOTUNE their threads and slots, and keeps the pipeline's time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "data/tuning.h"

namespace lockstep::data {

class Pipeline;
struct Stage;

class Tuner {
 public:
  explicit Tuner(Pipeline& pipeline) : pipeline_(pipeline) {}

  // Called with every element that the iterator is asked for; most calls do not even look at the clock where
  // elements come quickly.
  void step();
  // Called by the stages' threads with every element that they have made: the first one for the iterator may
  // take many of them. Thread-safe.
  void look(int64_t now_ns) {
    if (now_ns >= next_look_ns_.load(std::memory_order_relaxed)) tune(now_ns);
  }

  // From the first call of step() to the last one that looked at the clock.
  int64_t elapsed_ns() const;

 private:
  // What a stage had counted at the last look.
  struct Seen {
    int64_t made = 0, taken = 0, work_ns = 0, fetch_ns = 0;
    int64_t consumer_wait_ns = 0, finished_wait_ns = 0, producer_wait_ns = 0, empty = 0;
    int looks_with_half_empty = 0;
  };

  void tune(int64_t now_ns);
  // Adds those beneath `stage`, itself included; returns what their consumers waited for those nearest to it.
  int64_t collect(Stage& stage, int64_t now_ns);
  int64_t memory_budget();

  Pipeline& pipeline_;
  int64_t calls_left_ = 0;  // until the clock is looked at
  int64_t stride_ = 1;
  std::atomic<int64_t> start_ns_{0}, last_step_ns_{0};
  std::atomic<int64_t> next_look_ns_{INT64_MAX};  // never, before the first step

  std::mutex mutex_;  // of what follows
  int64_t last_look_ns_ = 0;
  int64_t interval_ns_ = 0;
  int64_t memory_budget_ = 0;
  std::map<const Stage*, Seen> seen_;
  std::vector<Stage*> stages_;
  std::vector<Load> loads_;
};

}  // namespace lockstep::data
