// The gradient of strided_slice: the slice's gradient at its place in zeros.
#pragma once

#include "lockstep/tensor/tensor.h"
#include "ops/array/array.h"

namespace lockstep {

extern const OpDef kStridedSliceGrad;

struct StridedSliceGradAttrs {
  Shape shape;  // of the whole
  StridedSliceAttrs slice;
  bool operator==(const StridedSliceGradAttrs&) const = default;
  void visit(auto&& v) const {
    v("shape", shape);
    slice.visit(v);
  }
};

Tensor strided_slice_grad(const Tensor& gradient, const Shape& shape, const StridedSliceAttrs& slice);

}  // namespace lockstep
