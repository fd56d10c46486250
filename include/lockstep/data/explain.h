// Where a dataset's time goes, which stage holds it up, and what would help.
//
//   std::cout << tf::data::to_text(tf::data::explain(dataset));
//
//   stage                              elements      per s   self time    busy  threads  buffer
//   prefetch(AUTOTUNE)                      781      780.2      1.1 us      0%        1   0.4/4
//   └ batch(128)                            783      782.1    410.0 us     32%
//     └ map                              100224   100112.0      8.2 us     68%
//       └ from_tensor_slices             100224   100112.0     40.0 ns      0%
//   bottleneck: map [main.cc:20]: ...
//   fix:        .map(f, {.num_parallel_calls = tf::data::AUTOTUNE})
//   gain:       ...
#pragma once

#include <cstdint>
#include <limits>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

struct StageExplanation {
  std::string name = {};       // "map"
  std::string arguments = {};  // "num_parallel_calls=2"
  std::string where = {};      // "main.cc:20"
  int64_t elements = 0;        // given so far
  int64_t skipped = 0;         // bad ones that were left out
  double elements_per_s = 0;
  double self_ns = 0;  // of one element, in this stage alone, on one thread
  double busy = 0;     // threads at work in it, on average: 0.5 is half of one thread's time
  int threads = 0;     // of its own; 0: it runs on its consumer's thread
  int64_t slots = 0;   // elements that may wait for the consumer
  double ready = 0;    // and how many did on average when one was asked for
  double waited = 0;   // share of the time in which its consumer waited for its threads
  std::vector<StageExplanation> inputs = {};
};

// A stage together with those that run on the same threads decides how quickly the dataset can be.
struct Explanation {
  double seconds = 0;
  int64_t elements = 0;  // that came out of the dataset
  double consumer = 0;   // share of the time that went into what is done with them
  StageExplanation root;

  std::string bottleneck = {};  // the stage: "map"; empty where the input is not what limits
  std::string where = {};       // and where it was made
  // For programs: "parallel-map", "prefetch", "batch-first", "cache", "interleave", "parallel-batch",
  // "larger-buffer", "fewer-threads", "more-threads", "own-thread", "consumer"; does not change between
  // versions.
  std::string advice = {};
  std::string cause = {};  // one line
  std::string fix = {};    // code; empty where nothing has to change
  double speedup = 1;      // to expect of it, as a factor on elements per second
};

struct ExplainOptions {
  double seconds = 1;  // of running it, or
  int64_t elements = std::numeric_limits<int64_t>::max();
};

// One pass, or as much of it as fits. It does not count as an iteration.
Explanation explain(const Dataset& dataset, const ExplainOptions& options = {},
                    std::source_location where = std::source_location::current());
// Explains an iterator in use, up to the last call of next(). Thread-safe.
Explanation explain(const Iterator& iterator);

// The tree, aligned, and the advice.
std::string to_text(const Explanation& explanation);
// One object with the members' names as keys.
std::string to_json(const Explanation& explanation);

}  // namespace lockstep::data
