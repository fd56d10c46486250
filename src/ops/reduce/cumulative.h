// Sums and products of all elements so far, for rules and kernels that name them.
#pragma once

#include "graph/op.h"

namespace lockstep {

extern const OpDef kCumsum, kCumprod;

struct CumulativeAttrs {
  int64_t axis = 0;
  bool exclusive = false;  // without the element itself
  bool reverse = false;    // from the end
  bool operator==(const CumulativeAttrs&) const = default;
  void visit(auto&& v) const { v("axis", axis), v("exclusive", exclusive), v("reverse", reverse); }
};

}  // namespace lockstep
