#include "ops/matmul/matmul.h"

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

SpecList infer(const InferContext& c) {
  const auto& attrs = c.attrs<MatmulAttrs>();
  const Shape &a = c.shape(0), &b = c.shape(1);
  c.check(a.rank() >= 2 && b.rank() >= 2, ErrorCode::shape_mismatch,
          "takes matrices (rank 2 or more), received ", a, " x ", b);
  c.check(c.dtype(0) == c.dtype(1), ErrorCode::dtype_mismatch, "operands must have one dtype, received ",
          c.inputs[0], " and ", c.inputs[1], "; cast() one of them");
  c.check(c.dtype(0) != DType::boolean && c.dtype(0) != DType::uint8, ErrorCode::dtype_mismatch,
          "takes floating-point or int32/int64 tensors, received ", c.inputs[0]);
  const int64_t ka = a[attrs.transpose_a ? -2 : -1];
  const int64_t kb = b[attrs.transpose_b ? -1 : -2];
  c.check(ka == kb, ErrorCode::shape_mismatch, "inner dimensions differ in ", a,
          attrs.transpose_a ? "^T" : "", " x ", b, attrs.transpose_b ? "^T" : "", " (", ka, " and ", kb, ")");
  Shape shape = broadcast(a.drop_last(2), b.drop_last(2), "matmul", c.where);
  shape.push_back(a[attrs.transpose_a ? -1 : -2]);
  shape.push_back(b[attrs.transpose_b ? -2 : -1]);
  const TensorSpec result{c.dtype(0), shape};
  const size_t inputs = 2 + (attrs.bias ? 1 : 0) + (attrs.addend ? 1 : 0);
  c.check(c.inputs.size() == inputs, ErrorCode::invalid_argument, "takes ", inputs,
          " inputs with these attributes, received ", c.inputs.size());
  if (attrs.bias)
    c.check(c.dtype(2) == result.dtype && c.shape(2).size() == shape[-1], ErrorCode::shape_mismatch,
            "a bias of ", shape[-1], " values belongs to the result ", result, ", received ", c.inputs[2]);
  if (attrs.addend)
    c.check(c.inputs.back() == result, ErrorCode::shape_mismatch, "what is added must be like the result, ",
            result, ", received ", c.inputs.back());
  return {result};
}

// For C = A B:  dA = dC B^T,  dB = A^T dC; with transposes the factors move accordingly.
// Broadcast batch axes sum back.
TensorList grad(const GradContext& g) {
  const auto [ta, tb, bias, epilogue, addend] = g.attrs<MatmulAttrs>();
  const Tensor &a = g.in(0), &b = g.in(1), dc = g.dout();
  Tensor da, db;
  if (g.needs(0))
    da = ta ? matmul(b, dc, {.transpose_a = tb, .transpose_b = true}) : matmul(dc, b, {.transpose_b = !tb});
  if (g.needs(1)) {
    // One matrix for the whole batch: its gradient is one product over all rows.
    const bool shared = b.rank() == 2 && a.rank() > 2 && !ta;
    const auto rows = [&](const Tensor& x) { return shared ? reshape(x, {-1, x.shape()[-1]}) : x; };
    db = tb ? matmul(rows(dc), rows(a), {.transpose_a = true, .transpose_b = ta})
            : matmul(rows(a), rows(dc), {.transpose_a = !ta});
  }
  return {da.defined() ? sum_to_shape(da, a.shape()) : da, db.defined() ? sum_to_shape(db, b.shape()) : db};
}

Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const int64_t inner = c.shape(0)[c.attrs<MatmulAttrs>().transpose_a ? -2 : -1];
  Cost cost{.flops = 2 * outputs[0].shape.size() * inner};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  cost.bytes += static_cast<int64_t>(outputs[0].bytes());
  return cost;
}

Attrs with_epilogue(const Attrs& attrs, bool bias, Epilogue epilogue) {
  MatmulAttrs changed = attrs.as<MatmulAttrs>();
  changed.bias = bias;
  changed.epilogue = epilogue;
  return changed;
}

std::optional<Attrs> with_addend(const Attrs& attrs) {
  MatmulAttrs changed = attrs.as<MatmulAttrs>();
  if (changed.addend || changed.epilogue != Epilogue::none) return std::nullopt;
  changed.addend = true;
  return changed;
}

// A sum of products A^T B of matrices is one product of the matrices one below the other.
SumOverStack sum_over_stack(const Attrs& attrs, std::span<const TensorSpec> inputs) {
  if (attrs.as<MatmulAttrs>() != MatmulAttrs{.transpose_a = true} || inputs[0].shape.rank() != 2 ||
      inputs[1].shape.rank() != 2)
    return nullptr;
  return [](const Attrs&, std::span<const TensorArg> stacks, const Shape&) {
    const auto rows = [](const TensorArg& stack) {
      const Shape& shape = stack.tensor().shape();
      return reshape(stack, {shape[0] * shape[1], shape[2]});
    };
    return matmul(rows(stacks[0]), rows(stacks[1]), {.transpose_a = true});
  };
}

}  // namespace

constinit const OpDef kMatmul{.name = "matmul",
                              .min_inputs = 2,
                              .max_inputs = 4,
                              .infer = infer,
                              .grad = grad,
                              .cost = cost,
                              .with_epilogue = with_epilogue,
                              .with_addend = with_addend,
                              .sum_over_stack = sum_over_stack};

namespace {
const RegisterOp registered(kMatmul);
}

Tensor matmul(const TensorArg& a, const TensorArg& b, MatmulOptions options) {
  return emit_one(kMatmul, {a.tensor(), b.tensor()},
                  MatmulAttrs{.transpose_a = options.transpose_a, .transpose_b = options.transpose_b},
                  a.where());
}

}  // namespace lockstep
