// How many threads and slots stages should have, by what was measured of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

// A stage with threads of its own, over the time since the last look.
struct Load {
  bool tunes_threads = false;
  bool tunes_slots = false;
  int threads = 1;
  int64_t slots = 2;

  int64_t made = 0;               // elements that its threads have made
  int64_t taken = 0;              // and those that the consumer took
  double work_ns = 0;             // all threads together
  double fetch_ns = 0;            // one thread at a time; waits for other stages' threads left out
  double consumer_wait_ns = 0;    //
  bool ran_empty = false;         // the consumer found nothing
  bool ran_full = false;          // a thread found no room
  int64_t least_ready = 0;        // that the consumer found
  int64_t element_bytes = 0;      //
  int looks_with_half_empty = 0;  // in a row: half of the slots would have done
};

struct Setting {
  int threads = 1;
  int64_t slots = 2;
  int looks_with_half_empty = 0;

  bool operator==(const Setting&) const = default;
};

struct TuningLimits {
  int threads = 1;    // that all stages together should keep busy
  int64_t bytes = 0;  // that all buffers together may hold
};

// Threads: as many as it takes for the consumer not to wait, unless fetching, which is one thread's, sets the
// pace. Where there are not that many cores, stages get shares by their work. Slots: twice as many where a
// buffer was both full and empty, half as many where half of them were of no use for long. A setting for each
// load, in order; stages that are not tuned keep theirs.
std::vector<Setting> tune(std::span<const Load> loads, double interval_ns, const TuningLimits& limits);

inline constexpr int kLooksBeforeShrinking = 32;

}  // namespace lockstep::data
