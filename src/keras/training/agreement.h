// Whether a run goes on, which all its workers must see alike.
#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/distribute/strategy.h"

namespace lockstep::keras {

// Workers make the same steps, so one that wants to stop (Ctrl-C, a callback) must not do so before the
// others know. They ask each other a few times per second: after how many steps follows from the time that
// steps take on the slowest of them.
class Agreement {
 public:
  explicit Agreement(const distribute::Strategy& strategy) : strategy_(strategy) {}

  // What one worker wants to happen, or, of all of them, what happens.
  struct Wishes {
    bool stop = false;       // training
    int signal = 0;          // that asks the run to end; 0: none
    bool newcomers = false;  // of an elastic run: workers wait to join it
  };

  // After a step. Alone, what it wants happens. Elsewhere, unless it is time to ask, nothing does.
  Wishes after_step(const Wishes& own);
  // At the end of a pass, where all have come: asks.
  Wishes settle(const Wishes& own);

 private:
  const distribute::Strategy strategy_;
  int64_t steps_ = 0;  // since they asked last
  int64_t next_ = 1;   // after so many they ask again
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep::keras
