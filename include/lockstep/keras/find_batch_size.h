// How large batches may be, and how large it pays to make them.
//
//   const BatchSizes sizes = find_batch_size(model, {x, y});
//   model.fit({x, y}, {.batch_size = std::min(sizes.largest, sizes.fastest)});
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "lockstep/keras/data.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras {

struct FindBatchSizeOptions {
  // Bytes that training may hold on the current device. 0: the device's own limit; where it has none, the
  // memory of the GPU or of the host.
  int64_t memory_limit = 0;
  int64_t smallest = 1;        // where the search begins, doubling from there
  int64_t most = 1 << 16;      // no batch above this is looked at
  double least_growth = 0.05;  // a doubling that gives less throughput than this more is not worth it
  double seconds = 0.1;        // of measuring each size
};

struct BatchSizes {
  struct Row {
    int64_t batch = 0;
    int64_t bytes = 0;  // needed by training: intermediate values, weights, optimizer, batches
    double examples_per_second = 0;
  };
  int64_t largest = 0;     // the most examples that fit; at most `most`
  int64_t fastest = 0;     // the size after which throughput stops growing
  std::vector<Row> table;  // the sizes that were measured, rising
};

// Compiles the training step for rising sizes, made of the first examples of `data` over and over, and times
// the sizes that fit. How much memory a size needs is known from its compiled plan before it is run: nothing
// is tried that does not fit. The model must be compiled; weights, optimizer, metrics and the random
// generator are afterwards what they were. Prints nothing. Throws Error(failed_precondition) where not even
// `smallest` fits. It trains meanwhile: the model, and the default generator, belong to the calling thread
// until it returns (model.h).
BatchSizes find_batch_size(const Model& model, const Data& data, const FindBatchSizeOptions& options = {},
                           std::source_location where = std::source_location::current());

}  // namespace lockstep::keras
