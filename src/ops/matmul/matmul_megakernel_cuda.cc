// The matrix product in a megakernel.
#include "backends/cuda/megakernel/op_rule.h"
#include "ops/matmul/matmul.h"

namespace lockstep::cuda::megakernel {
namespace {

bool read(Op& op) {
  const auto& attrs = op.call->attrs.as<MatmulAttrs>();
  for (const Access& input : op.inputs)
    if (!is_float(input)) return false;
  Access &a = op.inputs[0], &b = op.inputs[1];
  if (attrs.addend || b.shape.rank() != 2 || a.shape.rank() < 2) return false;
  if (a.shape.rank() > 2) {  // one matrix for all: its products are one product of more rows
    if (attrs.transpose_a || !a.contiguous()) return false;
    a.shape = Shape{a.shape.drop_last(1).size(), a.shape[-1]};
    a.strides = contiguous_strides(a.shape);
  }
  const auto transpose = [](Access& x) {
    std::swap(x.shape[0], x.shape[1]);
    std::swap(x.strides[0], x.strides[1]);
  };
  if (attrs.transpose_a) transpose(a);
  if (attrs.transpose_b) transpose(b);
  op.m = a.shape[0], op.k = a.shape[1], op.n = b.shape[1];
  op.bias = attrs.bias, op.epilogue = attrs.epilogue;
  // One dimension of each lies densely; one of size 1 may be said to.
  for (Access* x : {&a, &b}) {
    for (int d = 0; d < 2; ++d) {
      if (x->strides[d] <= 0 && x->shape[d] != 1) return false;
      if (x->shape[d] == 1 && x->strides[1 - d] != 1) x->strides[d] = 1;
    }
    if (x->strides[0] != 1 && x->strides[1] != 1) return false;
  }
  return !op.bias || (op.inputs[2].shape.size() == op.n && op.inputs[2].contiguous());
}

const RegisterOpRule registered(kMatmul, {.kind = Kind::product, .read = read});

}  // namespace
}  // namespace lockstep::cuda::megakernel
