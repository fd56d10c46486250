// What is said of a label that does not exist, by kernels that find one while they run.
#pragma once

#include <functional>

#include "backends/cuda/report.h"
#include "graph/op.h"
#include "ops/array/lookup.h"

namespace lockstep::cuda {

// `shape`: of the labels.
inline std::function<void(const Finding&)> label_complaint(const Shape& shape, int64_t classes,
                                                           std::source_location where) {
  return [shape, classes, where](const Finding& finding) {
    int64_t index = finding.position;
    Dims position = Dims::filled(shape.rank(), 0);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      position[d] = index % shape[d];
      index /= shape[d];
    }
    fail(ErrorCode::invalid_argument, where, "sparse_softmax_cross_entropy: the label at position ", position,
         " is ", index_text(finding.value()), ", but there are ", classes, " classes: labels run from 0 to ",
         classes - 1);
  };
}

}  // namespace lockstep::cuda
