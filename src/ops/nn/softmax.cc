#include "ops/nn/softmax.h"

#include <utility>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

SpecList infer(const InferContext& c) {
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "takes floating-point tensors, received ",
          c.inputs[0], "; cast() it first");
  c.check(c.shape(0).rank() >= 1, ErrorCode::shape_mismatch,
          "takes tensors of rank 1 or more, received a scalar");
  return {c.inputs[0]};
}

// An exponential, a subtraction, a sum and a division for each element.
Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  return {.flops = 4 * c.shape(0).size(),
          .bytes = static_cast<int64_t>(c.inputs[0].bytes() + outputs[0].bytes())};
}

// y = softmax(x):  dx = y (dy - sum(dy y)).
TensorList grad_softmax(const GradContext& g) {
  const Tensor dy = g.dout();
  return {g.out() * (dy - reduce_sum(dy * g.out(), {.axis = {-1}, .keepdims = true}))};
}

// y = log_softmax(x):  dx = dy - exp(y) sum(dy).
TensorList grad_log_softmax(const GradContext& g) {
  const Tensor dy = g.dout();
  return {dy - exp(g.out()) * reduce_sum(dy, {.axis = {-1}, .keepdims = true})};
}

// The ops work along the last dimension; another one is brought there and back.
Tensor along_axis(const OpDef& op, const TensorArg& x, int axis) {
  const int rank = x.tensor(op.name.data()).rank();
  const int position = normalize_axis(axis, rank, op.name.data(), x.where());
  if (position == rank - 1) return emit_one(op, {x.tensor()}, {}, x.where());
  Dims swapped;
  for (int i = 0; i < rank; ++i) swapped.push_back(i);
  std::swap(swapped[position], swapped[rank - 1]);
  return transpose(emit_one(op, {transpose(x, swapped)}, {}, x.where()), swapped);
}

}  // namespace

constinit const OpDef kSoftmax{.name = "softmax", .infer = infer, .grad = grad_softmax, .cost = cost};
constinit const OpDef kLogSoftmax{
    .name = "log_softmax", .infer = infer, .grad = grad_log_softmax, .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kSoftmax), RegisterOp(kLogSoftmax)};
}

Tensor softmax(const TensorArg& logits, int axis) { return along_axis(kSoftmax, logits, axis); }
Tensor log_softmax(const TensorArg& logits, int axis) { return along_axis(kLogSoftmax, logits, axis); }

}  // namespace lockstep
