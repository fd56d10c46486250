// The deferred error (deferred_errors.h) of kernels that meet a label out of range.
#pragma once

#include <functional>

#include "backends/cuda/deferred_errors.h"
#include "graph/op.h"
#include "ops/array/lookup.h"

namespace lockstep::cuda {

// `shape`: of the labels.
inline std::function<void(const DeferredError&)> label_error(const Shape& shape, int64_t classes,
                                                             std::source_location where) {
  return [shape, classes, where](const DeferredError& error) {
    int64_t index = error.position;
    Dims position = Dims::filled(shape.rank(), 0);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      position[d] = index % shape[d];
      index /= shape[d];
    }
    fail(ErrorCode::invalid_argument, where, "sparse_softmax_cross_entropy: the label at position ", position,
         " is ", index_text(error.value()), ", but there are ", classes, " classes: labels run from 0 to ",
         classes - 1);
  };
}

}  // namespace lockstep::cuda
