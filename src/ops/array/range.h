// Evenly spaced numbers, for rules and kernels that name them.
#pragma once

#include "graph/op.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

extern const OpDef kRange;  // takes no input

// start + i * delta for i in [0, count), computed in double; the last element is `last` to the bit.
struct RangeAttrs {
  double start = 0, delta = 1, last = 0;
  int64_t count = 0;
  DType dtype = DType::float32;
  bool operator==(const RangeAttrs&) const = default;
  void visit(auto&& v) const {
    v("start", start), v("delta", delta), v("last", last), v("count", count), v("dtype", dtype);
  }
};

// 0, delta, 2 delta, ... on the device of `beside`, for rules that compute indices.
Tensor index_range(const Tensor& beside, int64_t count, int64_t delta = 1, DType dtype = DType::int64);

}  // namespace lockstep
