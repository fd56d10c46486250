// Joining and surrounding, for rules and kernels that name them.
#pragma once

#include "graph/op.h"

namespace lockstep {

extern const OpDef kConcat, kPad;

struct ConcatAttrs {
  int64_t axis = 0;
  bool operator==(const ConcatAttrs&) const = default;
  void visit(auto&& v) const { v("axis", axis); }
};

struct PadAttrs {
  Dims before, after;
  double value = 0;
  bool operator==(const PadAttrs&) const = default;
  void visit(auto&& v) const { v("before", before), v("after", after), v("value", value); }
};

}  // namespace lockstep
