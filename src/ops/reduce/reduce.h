// Reductions, for rules and kernels that name them.
#pragma once

#include "graph/op.h"

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

}  // namespace lockstep
