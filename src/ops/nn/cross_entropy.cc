#include "ops/nn/cross_entropy.h"

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/rows.h"

namespace lockstep {
namespace {

void check_logits(const InferContext& c) {
  const Shape &logits = c.shape(0), &labels = c.shape(1);
  c.check(is_floating(c.dtype(0)), ErrorCode::dtype_mismatch, "logits must be floating-point, received ",
          c.inputs[0]);
  c.check(c.dtype(1) == DType::int32 || c.dtype(1) == DType::int64, ErrorCode::dtype_mismatch,
          "labels must be int32 or int64 class numbers, received ", c.inputs[1],
          "; for probabilities use softmax_cross_entropy_with_logits");
  c.check(logits.rank() >= 1 && logits[-1] > 0, ErrorCode::shape_mismatch,
          "logits need one or more classes in their last dimension, received ", logits);
  c.check(labels == logits.drop_last(1), ErrorCode::shape_mismatch,
          "labels must have the logits' shape without classes, ", logits.drop_last(1), ", received ", labels);
}

SpecList infer(const InferContext& c) {
  check_logits(c);
  Shape stats = c.shape(1);
  stats.push_back(2);
  return {{c.dtype(0), c.shape(1)}, {c.dtype(0) == DType::float64 ? DType::float64 : DType::float32, stats}};
}

void check_gradient(const InferContext& c, size_t input) {
  check_logits(c);
  c.check(c.inputs[input].dtype == c.dtype(0), ErrorCode::dtype_mismatch,
          "the loss' gradient must have the logits' dtype, ", c.inputs[0], ", received ", c.inputs[input]);
  c.check(c.inputs[input] == TensorSpec{c.dtype(0), c.shape(1)}, ErrorCode::shape_mismatch,
          "the loss' gradient must be ", TensorSpec{c.dtype(0), c.shape(1)}, ", received ", c.inputs[input]);
}

SpecList infer_grad(const InferContext& c) {
  check_gradient(c, 3);
  return {c.inputs[0]};
}

SpecList infer_with_grad(const InferContext& c) {
  check_gradient(c, 2);
  return {c.inputs[2], c.inputs[0]};
}

// An exponential, a subtraction and a sum (or product) for each logit.
Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  Cost cost{.flops = 3 * c.shape(0).size()};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

TensorList grad(const GradContext& g) {
  return {emit_one(kSparseCrossEntropyGrad, {g.in(0), g.in(1), g.out(1), g.dout()}, {},
                   std::source_location::current()),
          Tensor()};
}

// With p = softmax(x) and y = (p - one_hot) d, for an arriving gradient u:
//   dx = d p (u - sum(u p)),  dd = sum(u (p - one_hot)).
TensorList grad_grad(const GradContext& g) {
  const Tensor &logits = g.in(0), &labels = g.in(1), &d = g.in(3);
  const Tensor u = g.dout();
  const Tensor p = softmax(logits);
  const Tensor up = reduce_sum(u * p, {.axis = {-1}, .keepdims = true});
  Tensor dlogits, dd;
  if (g.needs(0)) dlogits = expand_dims(d, -1) * (p * (u - up));
  if (g.needs(3))
    dd = squeeze(up, {-1}) -
         reduce_sum(u * one_hot(labels, logits.shape()[-1], logits.dtype()), {.axis = {-1}});
  return {dlogits, Tensor(), Tensor(), dd};
}

// max(x, 0) - x z + log(1 + exp(-|x|)) neither overflows nor cancels.
elementwise::Scalar sigmoid_cross_entropy_of(elementwise::Scalar x, elementwise::Scalar z) {
  using namespace elementwise;
  const Scalar positive = binary(Opcode::maximum, x, x.expander().constant(0, x.dtype()));
  return positive - x * z + unary(Opcode::log1p, unary(Opcode::exp, -unary(Opcode::abs, x)));
}

}  // namespace

constinit const OpDef kSigmoidCrossEntropy =
    elementwise::row("sigmoid_cross_entropy", 2, elementwise::infer_floating,
                     elementwise::widened<sigmoid_cross_entropy_of>, [](const GradContext& g) {
                       const Tensor &x = g.in(0), &z = g.in(1);
                       return elementwise::to_inputs(g, g.needs(0) ? g.dout() * (sigmoid(x) - z) : Tensor(),
                                                     g.needs(1) ? -g.dout() * x : Tensor());
                     });

constinit const OpDef kSparseCrossEntropy{.name = "sparse_softmax_cross_entropy",
                                          .min_inputs = 2,
                                          .max_inputs = 2,
                                          .infer = infer,
                                          .grad = grad,
                                          .cost = cost};
constinit const OpDef kSparseCrossEntropyGrad{.name = "sparse_softmax_cross_entropy_grad",
                                              .min_inputs = 4,
                                              .max_inputs = 4,
                                              .infer = infer_grad,
                                              .grad = grad_grad,
                                              .cost = cost};
// Not registered: nobody emits it.
constinit const OpDef kSparseCrossEntropyWithGrad{.name = "sparse_softmax_cross_entropy_with_grad",
                                                  .min_inputs = 3,
                                                  .max_inputs = 3,
                                                  .infer = infer_with_grad,
                                                  .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kSigmoidCrossEntropy), RegisterOp(kSparseCrossEntropy),
                                 RegisterOp(kSparseCrossEntropyGrad)};
}

Tensor sparse_softmax_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits) {
  const Tensor inputs[] = {logits.tensor(), labels.tensor()};
  return emit(kSparseCrossEntropy, inputs, {}, labels.where()).front();
}

Tensor softmax_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits) {
  return -reduce_sum(
      TensorArg(multiply(OperandArg(labels.tensor(), labels.where()), log_softmax(logits)), labels.where()),
      {.axis = {-1}});
}

Tensor sigmoid_cross_entropy_with_logits(const TensorArg& labels, const TensorArg& logits) {
  const char* op = "sigmoid_cross_entropy_with_logits";
  require(labels.tensor(op).shape() == logits.tensor(op).shape(), ErrorCode::shape_mismatch, labels.where(),
          op, ": labels and logits must have one shape, received ", labels.tensor().shape(), " and ",
          logits.tensor().shape());
  return emit_one(kSigmoidCrossEntropy, {logits.tensor(), labels.tensor()}, {}, labels.where());
}

}  // namespace lockstep
