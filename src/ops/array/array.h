// Ops that move elements, for rules that name them.
#pragma once

#include "graph/graph.h"

namespace lockstep {

extern const OpDef kReshape, kTranspose, kStridedSlice, kBroadcastTo;

struct ShapeAttrs {
  Shape shape;
  bool operator==(const ShapeAttrs&) const = default;
  void visit(auto&& v) const { v("shape", shape); }
};

struct TransposeAttrs {
  Dims permutation;
  bool operator==(const TransposeAttrs&) const = default;
  void visit(auto&& v) const { v("permutation", permutation); }
};

// x[begin + i * stride] for i in [0, size), in every dimension.
struct StridedSliceAttrs {
  Dims begin, size, stride;
  bool operator==(const StridedSliceAttrs&) const = default;
  void visit(auto&& v) const { v("begin", begin), v("size", size), v("stride", stride); }
};

// A node that reads rows of `from`, one behind the other: as many as `rows` has, beginning with row `first`.
Node slice_of_rows(Value from, int64_t first, const TensorSpec& rows, std::source_location where);

}  // namespace lockstep
