#include "ops/array/strided_slice_grad.h"

#include "graph/emit.h"

namespace lockstep {
namespace {

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<StridedSliceGradAttrs>();
  c.check(c.shape(0) == Shape(attrs.slice.size), ErrorCode::shape_mismatch, "the gradient of a slice of ",
          attrs.slice.size, " has its shape, received ", c.shape(0));
  return {{c.dtype(0), attrs.shape}};
}

TensorList grad(const GradContext& g) {
  return {emit_one(kStridedSlice, {g.dout()}, g.attrs<StridedSliceGradAttrs>().slice,
                   std::source_location::current())};
}

}  // namespace

constinit const OpDef kStridedSliceGrad{.name = "strided_slice_grad", .infer = infer, .grad = grad};

namespace {
const RegisterOp registered(kStridedSliceGrad);
}

Tensor strided_slice_grad(const Tensor& gradient, const Shape& shape, const StridedSliceAttrs& slice) {
  const int rank = shape.rank();
  const bool is_all = Shape(slice.size) == shape && slice.begin == Dims::filled(rank, 0) &&
                      slice.stride == Dims::filled(rank, 1);
  if (is_all) return gradient;
  return emit_one(kStridedSliceGrad, {gradient}, StridedSliceGradAttrs{shape, slice},
                  std::source_location::current());
}

}  // namespace lockstep
