// Reductions, for rules and kernels that name them.
#pragma once

#include "graph/op.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

extern const OpDef kReduceSum, kReduceMax, kReduceMin, kReduceProd, kArgmax;

struct ReduceAttrs {
  Dims axes;  // ascending, each once, not negative; never empty unless the input is a scalar
  bool keepdims = false;
  bool operator==(const ReduceAttrs&) const = default;
  void visit(auto&& v) const { v("axes", axes), v("keepdims", keepdims); }
};

struct ArgmaxAttrs {
  int64_t axis = 0;
  bool operator==(const ArgmaxAttrs&) const = default;
  void visit(auto&& v) const { v("axis", axis); }
};

// One reduction on behalf of the public function `name`, which errors name.
Tensor reduce(const OpDef& op, const char* name, const TensorArg& x, const ReduceOptions& options);

}  // namespace lockstep
