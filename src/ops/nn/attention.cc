#include "ops/nn/attention.h"

#include <cmath>

#include "graph/emit.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/ops.h"
#include "ops/random/random.h"

namespace lockstep {
namespace {

Shape score_shape(const Shape& query, const Shape& key) { return {query[0], query[2], query[1], key[1]}; }

bool broadcasts_to(const Shape& shape, const Shape& target) {
  if (shape.rank() > target.rank()) return false;
  for (int i = 1; i <= shape.rank(); ++i)
    if (shape[-i] != 1 && shape[-i] != target[-i]) return false;
  return true;
}

DType wide(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

// Query, key and value, and the optional inputs from `first` on.
void check_operands(const InferContext& c, int first) {
  const auto& attrs = c.attrs<AttentionAttrs>();
  const Shape &query = c.shape(0), &key = c.shape(1), &value = c.shape(2);
  c.check(static_cast<int>(c.inputs.size()) == first + attrs.optional_inputs(), ErrorCode::invalid_argument,
          "takes ", first + attrs.optional_inputs(), " inputs, received ", c.inputs.size());
  for (int i = 0; i < 3; ++i) {
    c.check(is_floating(c.dtype(i)) && c.dtype(i) == c.dtype(0), ErrorCode::dtype_mismatch,
            "takes floating-point query, key and value of one dtype, received ", c.inputs[0], " and ",
            c.inputs[static_cast<size_t>(i)], "; cast() one of them");
    c.check(c.shape(i).rank() == 4, ErrorCode::shape_mismatch,
            "query, key and value are (batch, length, heads, dimension), received ", c.shape(i));
  }
  c.check(key.first(3) == value.first(3), ErrorCode::shape_mismatch,
          "key and value must agree in batch, length and heads, received ", key, " and ", value);
  c.check(query[0] == key[0], ErrorCode::shape_mismatch, "query and key must agree in batch, received ",
          query, " and ", key);
  c.check(query[3] == key[3] && query[3] > 0, ErrorCode::shape_mismatch,
          "query and key must have one dimension, and it must not be empty, received ", query, " and ", key);
  c.check(key[2] == query[2] || (key[2] > 0 && query[2] % key[2] == 0), ErrorCode::shape_mismatch,
          "the heads of the query must be a multiple of those of the key, received ", query, " and ", key);
  const Shape scores = score_shape(query, key);
  const auto check_term = [&](int input, DType dtype, const char* name) {
    if (input < 0) return;
    c.check(c.dtype(input) == dtype, ErrorCode::dtype_mismatch, "the ", name, " must be ", dtype,
            ", received ", c.inputs[static_cast<size_t>(input)]);
    c.check(broadcasts_to(c.shape(input), scores), ErrorCode::shape_mismatch, "the ", name,
            " must broadcast to (batch, heads, queries, keys), ", scores, ", received ", c.shape(input));
  };
  check_term(attrs.mask_input(first), DType::boolean, "mask");
  check_term(attrs.bias_input(first), c.dtype(0), "bias");
}

SpecList infer(const InferContext& c) {
  check_operands(c, kAttentionOptional);
  const Shape& query = c.shape(0);
  return {{c.dtype(0), {query[0], query[1], query[2], c.shape(2)[3]}},
          {wide(c.dtype(0)), {query[0], query[2], query[1]}}};
}

SpecList infer_grad(const InferContext& c) {
  check_operands(c, kAttentionGradOptional);
  const Shape& query = c.shape(0);
  const TensorSpec result{c.dtype(0), {query[0], query[1], query[2], c.shape(2)[3]}};
  for (const int i : {3, 5}) {
    const TensorSpec& received = c.inputs[static_cast<size_t>(i)];
    c.check(received.dtype == result.dtype, ErrorCode::dtype_mismatch, "the result and its gradient must be ",
            result, ", received ", received);
    c.check(received.shape == result.shape, ErrorCode::shape_mismatch, "the result and its gradient must be ",
            result, ", received ", received);
  }
  return {c.inputs[0], c.inputs[1], c.inputs[2]};
}

Cost cost(const InferContext& c, std::span<const TensorSpec> outputs) {
  const int64_t products = score_shape(c.shape(0), c.shape(1)).size();
  const int64_t dim = c.shape(0)[3], value_dim = c.shape(2)[3];
  // Backward: scores again, two products with values, two with keys and queries.
  Cost cost{.flops = &c.op == &kAttention ? 2 * products * (dim + value_dim)
                                          : 2 * products * (3 * dim + 2 * value_dim)};
  for (const TensorSpec& spec : c.inputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  for (const TensorSpec& spec : outputs) cost.bytes += static_cast<int64_t>(spec.bytes());
  return cost;
}

// --- written out in other ops: for what needs all scores at once -------------------------------------------

// Heads before lengths, and query heads apart by the key head that they read: [batch, key_heads, group,
// length, dim].
struct WrittenOut {
  WrittenOut(const GradContext& g, int first)
      : attrs(g.attrs<AttentionAttrs>()),
        key_heads(g.in(1).shape()[2]),
        scores(score_shape(g.in(0).shape(), g.in(1).shape())),
        query(split_heads(g.in(0))),
        key(split_heads(g.in(1))),
        value(split_heads(g.in(2))) {
    Tensor s = joined(product(query, key, {.transpose_b = true}) * attrs.scale);
    if (attrs.bias) s = s + g.in(attrs.bias_input(first));
    if (attrs.mask) visible = g.in(attrs.mask_input(first));
    if (attrs.causal) {
      const Tensor below = causal(scores[2], scores[3]);
      visible = visible.defined() ? logical_and(visible, below) : below;
    }
    // A row that sees nothing has the probabilities 0: softmax gets finite numbers, and is overruled.
    if (visible.defined()) s = where(visible, s, lowest(s.dtype()));
    p = softmax(s);
    if (visible.defined()) p = where(visible, p, 0.0);
    if (attrs.dropout > 0) {
      const int state = attrs.state_input(first);
      const Tensor kept = emit_one(kRandomThreshold, {g.in(state), g.in(state + 1)},
                                   RandomAttrs{.shape = {scores[0] * scores[1] * scores[2], scores[3]},
                                               .dtype = DType::boolean,
                                               .instance = attrs.instance,
                                               .rows_per_example = attrs.rows_per_example,
                                               .threshold = attrs.dropout},
                                   std::source_location::current());
      keep = cast(reshape(kept, scores), p.dtype()) * (1 / (1 - attrs.dropout));
    }
  }

  // Keys and values: [batch, keys, key_heads, dim] -> [batch, key_heads, 1, keys, dim]
  Tensor split_heads(const Tensor& x) const {
    const Shape& s = x.shape();
    return transpose(reshape(x, {s[0], s[1], key_heads, key_heads > 0 ? s[2] / key_heads : 0, s[3]}),
                     {0, 2, 3, 1, 4});
  }
  Tensor join_heads(const Tensor& x) const {
    const Shape& s = x.shape();
    return reshape(transpose(x, {0, 3, 1, 2, 4}), {s[0], s[3], s[1] * s[2], s[4]});
  }
  // The sum over the query heads that read one key head.
  Tensor join_key_heads(const Tensor& x) const {
    return join_heads(reduce_sum(x, {.axis = {2}, .keepdims = true}));
  }
  Tensor product(const Tensor& a, const Tensor& b, MatmulOptions options = {}) const {
    return matmul(a, b, options);
  }
  // Scores [batch, key_heads, group, queries, keys] <-> [batch, heads, queries, keys]
  Tensor joined(const Tensor& s) const { return reshape(s, scores); }
  Tensor split(const Tensor& s) const {
    return reshape(s,
                   {scores[0], key_heads, key_heads > 0 ? scores[1] / key_heads : 0, scores[2], scores[3]});
  }
  Tensor dropped(const Tensor& s) const { return keep.defined() ? s * keep : s; }
  static Tensor row_sum(const Tensor& s) { return reduce_sum(s, {.axis = {-1}, .keepdims = true}); }

  // dO V^T, and the gradient of the scores that follows from it.
  Tensor dprobabilities(const Tensor& dresult) const {
    return dropped(joined(product(split_heads(dresult), value, {.transpose_b = true})));
  }

  static Tensor causal(int64_t queries, int64_t keys) {
    std::vector<int32_t> rows, columns;
    for (int64_t i = 0; i < queries; ++i) rows.push_back(static_cast<int32_t>(i));
    for (int64_t j = 0; j < keys; ++j) columns.push_back(static_cast<int32_t>(j));
    return Tensor::from(rows, {queries, 1}) >= Tensor::from(columns, {1, keys});
  }
  static double lowest(DType dtype) { return dtype == DType::float16 ? -6e4 : -1e30; }

  const AttentionAttrs& attrs;
  int64_t key_heads;
  Shape scores;
  Tensor query, key, value, visible, keep, p;
};

TensorList grad(const GradContext& g) {
  const auto& attrs = g.attrs<AttentionAttrs>();
  const Tensor dresult = g.dout();
  TensorList inputs = {g.in(0), g.in(1), g.in(2), g.out(0), g.out(1), dresult};
  for (int i = kAttentionOptional; i < g.num_inputs(); ++i) inputs.push_back(g.in(i));
  TensorList gradients(static_cast<size_t>(g.num_inputs()));
  if (g.needs(0) || g.needs(1) || g.needs(2)) {
    TensorList made = emit(kAttentionGrad, inputs, g.attributes(), std::source_location::current());
    std::move(made.begin(), made.end(), gradients.begin());
  }
  const int bias = attrs.bias_input(kAttentionOptional);
  if (bias >= 0 && g.needs(bias)) {
    const WrittenOut w(g, kAttentionOptional);
    const Tensor dp = w.dprobabilities(dresult);
    gradients[static_cast<size_t>(bias)] = sum_to_shape(w.p * (dp - w.row_sum(w.p * dp)), g.in(bias).shape());
  }
  return gradients;
}

// With P the probabilities, K what dropout keeps (scaled), O' the gradient of the result, a the scale:
//   T = (O' V^T) K,  S' = P (T - rowsum(P T)),  Q' = a S' K,  K' = a S'^T Q,  V' = (P K)^T O'.
// For gradients q, k, v that arrive at Q', K' and V', let G = a (q K^T + Q k^T) and r = rowsum(G P). Then
//   to P:  H = (O' v^T) K + G (T - rowsum(P T)) - T r,   to the scores: W = P (H - rowsum(P H)),
//   to T:  U = P (G - r),
//   to Q:  a (W K + S' k),  to K: a (W^T Q + S'^T q),  to V: (U K)^T O',  to O': (P K) v + (U K) V,  to the bias: W.
TensorList grad_grad(const GradContext& g) {
  const auto& attrs = g.attrs<AttentionAttrs>();
  const WrittenOut w(g, kAttentionGradOptional);
  const Tensor dq = w.split_heads(g.dout(0)), dk = w.split_heads(g.dout(1)), dv = w.split_heads(g.dout(2));
  const Tensor dresult = w.split_heads(g.in(5));
  const MatmulOptions transposed_a{.transpose_a = true}, transposed_b{.transpose_b = true};
  const Tensor t = w.dprobabilities(g.in(5));
  const Tensor ds = w.p * (t - w.row_sum(w.p * t));
  const Tensor gg =
      w.joined((w.product(dq, w.key, transposed_b) + w.product(w.query, dk, transposed_b)) * attrs.scale);
  const Tensor r = w.row_sum(gg * w.p);
  const Tensor h =
      w.dropped(w.joined(w.product(dresult, dv, transposed_b))) + gg * (t - w.row_sum(w.p * t)) - t * r;
  const Tensor ws = w.p * (h - w.row_sum(w.p * h));
  const Tensor u = w.split(w.dropped(w.p * (gg - r)));
  TensorList gradients(static_cast<size_t>(g.num_inputs()));
  const Tensor ws5 = w.split(ws), ds5 = w.split(ds);
  if (g.needs(0)) gradients[0] = w.join_heads((w.product(ws5, w.key) + w.product(ds5, dk)) * attrs.scale);
  if (g.needs(1))
    gradients[1] = w.join_key_heads(
        (w.product(ws5, w.query, transposed_a) + w.product(ds5, dq, transposed_a)) * attrs.scale);
  if (g.needs(2)) gradients[2] = w.join_key_heads(w.product(u, dresult, transposed_a));
  if (g.needs(5)) gradients[5] = w.join_heads(w.product(w.split(w.dropped(w.p)), dv) + w.product(u, w.value));
  const int bias = attrs.bias_input(kAttentionGradOptional);
  if (bias >= 0 && g.needs(bias)) gradients[static_cast<size_t>(bias)] = sum_to_shape(ws, g.in(bias).shape());
  return gradients;
}

}  // namespace

constinit const OpDef kAttention{
    .name = "attention", .min_inputs = 3, .max_inputs = 7, .infer = infer, .grad = grad, .cost = cost};
constinit const OpDef kAttentionGrad{.name = "attention_grad",
                                     .min_inputs = 6,
                                     .max_inputs = 10,
                                     .infer = infer_grad,
                                     .grad = grad_grad,
                                     .cost = cost};

namespace {
const RegisterOp registered[] = {RegisterOp(kAttention), RegisterOp(kAttentionGrad)};
}

Tensor scaled_dot_product_attention(const TensorArg& query, const TensorArg& key, const TensorArg& value,
                                    const AttentionOptions& options) {
  const char* op = "attention";
  const std::source_location where = query.where();
  const Shape &q = query.tensor(op).shape(), &k = key.tensor(op).shape();
  require(options.dropout >= 0 && options.dropout < 1, ErrorCode::invalid_argument, where, op,
          ": the rate of dropout is in [0, 1), received ", options.dropout);
  AttentionAttrs attrs{
      .scale = options.scale.value_or(q.rank() == 4 ? 1 / std::sqrt(static_cast<double>(q[3])) : 1),
      .causal = options.is_causal,
      .mask = options.mask.defined(),
      .bias = options.bias.defined(),
      .dropout = options.dropout};
  TensorList inputs = {query.tensor(), key.tensor(), value.tensor(op)};
  if (attrs.mask) inputs.push_back(options.mask);
  if (attrs.bias) inputs.push_back(options.bias);
  if (attrs.dropout > 0) {
    const int64_t rows = q.rank() == 4 && k.rank() == 4 ? score_shape(q, k).drop_last(1).size() : 0;
    const RandomSource source = random_source(options.generator, rows, true, where);
    attrs.instance = source.instance;
    attrs.rows_per_example = source.rows_per_example;
    inputs.push_back(source.state);
    inputs.push_back(source.example);
  }
  return emit(kAttention, inputs, attrs, where).front();
}

}  // namespace lockstep
