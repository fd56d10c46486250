// Lockstep's own side of the benchmark: the works of bench/floors/floor.h written with the public API.
// Each function prepares everything (model, traced and compiled step, batch) and returns the step, to be
// called again and again on the calling thread; an empty function means that this build has no such step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::bench {

// One logical device for each number of threads, and four of one thread, so that all are measured in one
// process. Before a device is used.
void configure_devices();

// The one of so many threads; Error(invalid_argument) where there is none.
Device& device_with(int threads);

using Step = std::function<void()>;

enum class Mode { compiled, eager };

// One training step of Dense 784-128-10, Adam, on the same batch every time, as mlp_floor.
Step engine_mlp(int64_t batch, int threads, Mode mode);

// Model::fit on the same network with accuracy as a metric: one epoch over kFitExamples examples in memory,
// shuffled, the progress bar on (and sent nowhere). Beside it, the step that it is made of: without metrics,
// on the same batch every time.
inline constexpr int64_t kFitExamples = 60000;
Step engine_fit_epoch(int64_t batch, int threads);
// What fit runs, by hand: on one batch, which stays in the cache, or on the next one of fit's examples.
enum class Batches : uint8_t { same, next };
Step engine_fit_step(int64_t batch, int threads, Batches batches);

// One training step of the convolutional network of convnet_floor, compiled.
Step engine_convnet(int64_t batch, int threads);

// The same steps as two replicas on devices of one thread each.
Step engine_mlp_replicas(int64_t batch);
Step engine_convnet_replicas(int64_t batch);

// y = a chain of 8 additions, multiplications and maxima with constants over kChainElements floats,
// compiled: one array read, one written, as copy_floor.
inline constexpr int64_t kChainElements = int64_t{16} << 20;
Step engine_chain(int threads);

// What the memory planner made of a compiled step.
struct MemoryPlan {
  std::string work;  // "mlp", "convnet"
  int64_t batch = 0;
  int64_t planned_bytes = 0;    // the arena
  int64_t unplanned_bytes = 0;  // every intermediate with memory of its own
  int64_t least_bytes = 0;      // the most that is alive at one moment: no plan can be smaller
};

std::vector<MemoryPlan> engine_memory_plans();

}  // namespace lockstep::bench
