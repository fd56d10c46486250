// Order, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

// The first k elements of the last dimension in order, and their places (int32). The order of
// lockstep/ops/sort.h.
extern const OpDef kSort;
extern const OpDef kSearchsorted;

struct SortAttrs {
  int64_t k = 0;
  bool descending = false;
  bool operator==(const SortAttrs&) const = default;
  void visit(auto&& v) const { v("k", k), v("descending", descending); }
};

struct SearchsortedAttrs {
  bool right = false;
  bool operator==(const SearchsortedAttrs&) const = default;
  void visit(auto&& v) const { v("right", right); }
};

}  // namespace lockstep
