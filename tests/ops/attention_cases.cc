#include "ops/nn/attention.h"

#include <cmath>
#include <limits>

#include "lockstep/ops/nn.h"
#include "ops/op_case.h"
#include "ops/random/random.h"

namespace lockstep::testing {
namespace {

constexpr int64_t kState = 987654321, kExample = 3;

struct Setup {
  CaseName suffix;
  Shape query, key;
  int64_t value_dim = 3;
  AttentionAttrs attrs = {.scale = 0.7};
  Shape mask = {}, bias = {};  // of the mask and bias, where attrs has them

  Shape value() const { return {key[0], key[1], key[2], value_dim}; }
  Shape result() const { return {query[0], query[1], query[2], value_dim}; }

  std::vector<Input> optional_inputs() const {
    std::vector<Input> inputs;
    if (attrs.mask) inputs.push_back(booleans(mask));
    if (attrs.bias) inputs.push_back(normal(bias));
    if (attrs.dropout > 0) {
      inputs.push_back(given({}, {static_cast<double>(kState)}).of(always<DType::int64>));
      inputs.push_back(given({}, {static_cast<double>(kExample)}).of(always<DType::int64>));
    }
    return inputs;
  }
};

double broadcast_at(const Array& array, const Dims& index) {
  Dims own;
  for (int i = 0; i < array.shape.rank(); ++i) {
    const int from_end = i - array.shape.rank();
    own.push_back(array.shape[i] == 1 ? 0 : index[from_end]);
  }
  return array.at(own);
}

// What follows from the inputs, by the definition. The optional inputs begin at `first`.
struct Attention {
  Array result, log_sum_exp, p, kept;  // p: probabilities; kept: what dropout multiplies them by

  Attention(const AttentionAttrs& attrs, const Arrays& in, int first) {
    const Shape &q = in[0].shape, &k = in[1].shape, &v = in[2].shape;
    const Shape scores{q[0], q[2], q[1], k[1]};
    result = Array({q[0], q[1], q[2], v[3]});
    log_sum_exp = Array({q[0], q[2], q[1]});
    p = Array(scores), kept = Array(scores, 1);
    const int64_t group = k[2] > 0 ? q[2] / k[2] : 1;
    const auto seen = [&](const Dims& i) {
      return !(attrs.causal && i[3] > i[2]) &&
             !(attrs.mask && broadcast_at(in[static_cast<size_t>(attrs.mask_input(first))], i) == 0);
    };
    each_index(log_sum_exp.shape, [&](const Dims& row) {
      const int64_t n = row[0], h = row[1], i = row[2];
      std::vector<double> s;
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < k[1]; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < q[3]; ++d) dot += in[0].at({n, i, h, d}) * in[1].at({n, j, h / group, d});
        dot *= attrs.scale;
        if (attrs.bias) dot += broadcast_at(in[static_cast<size_t>(attrs.bias_input(first))], {n, h, i, j});
        if (!seen({n, h, i, j})) dot = -std::numeric_limits<double>::infinity();
        s.push_back(dot);
        largest = std::max(largest, dot);
      }
      double sum = 0;
      for (const double x : s)
        if (std::isfinite(x)) sum += std::exp(x - largest);
      log_sum_exp.at(row) = sum > 0 ? largest + std::log(sum) : std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < k[1]; ++j) {
        const Dims at{n, h, i, j};
        const double x = s[static_cast<size_t>(j)];
        p.at(at) = std::isfinite(x) ? std::exp(x - largest) / sum : 0;
        if (attrs.dropout > 0) {
          const uint64_t number = static_cast<uint64_t>(kExample * attrs.rows_per_example) +
                                  static_cast<uint64_t>((n * q[2] + h) * q[1] + i);
          const uint32_t word = Philox::block(random_key(kState, attrs.instance), number,
                                              static_cast<uint64_t>(j / 4))[static_cast<size_t>(j % 4)];
          kept.at(at) = std::ldexp(word >> 8, -24) >= attrs.dropout ? 1 / (1 - attrs.dropout) : 0;
        }
        for (int64_t d = 0; d < v[3]; ++d)
          result.at({n, i, h, d}) += p.at(at) * kept.at(at) * in[2].at({n, j, h / group, d});
      }
    });
  }
};

Arrays gradients_of(const AttentionAttrs& attrs, const Arrays& in) {
  const Attention a(attrs, in, kAttentionGradOptional);
  const Shape &q = in[0].shape, &k = in[1].shape, &v = in[2].shape;
  const int64_t group = k[2] > 0 ? q[2] / k[2] : 1;
  Array dq(q), dk(k), dv(v);
  each_index(a.log_sum_exp.shape, [&](const Dims& row) {
    const int64_t n = row[0], h = row[1], i = row[2];
    std::vector<double> dp(static_cast<size_t>(k[1]));
    double along = 0;
    for (int64_t j = 0; j < k[1]; ++j) {
      const Dims at{n, h, i, j};
      double& d = dp[static_cast<size_t>(j)];
      for (int64_t c = 0; c < v[3]; ++c) {
        const double g = in[5].at({n, i, h, c});
        d += a.kept.at(at) * g * in[2].at({n, j, h / group, c});
        dv.at({n, j, h / group, c}) += a.p.at(at) * a.kept.at(at) * g;
      }
      along += a.p.at(at) * d;
    }
    for (int64_t j = 0; j < k[1]; ++j) {
      const double ds = attrs.scale * a.p.at({n, h, i, j}) * (dp[static_cast<size_t>(j)] - along);
      for (int64_t c = 0; c < q[3]; ++c) {
        dq.at({n, i, h, c}) += ds * in[1].at({n, j, h / group, c});
        dk.at({n, j, h / group, c}) += ds * in[0].at({n, i, h, c});
      }
    }
  });
  return {dq, dk, dv};
}

// Attention and its gradient.
OpCases attention_cases(const Setup& s) {
  const AttentionAttrs attrs = s.attrs;
  // Results and statistics are rounded to the dtype before the gradient reads them.
  OpCase forward{.name = "attention" + s.suffix,
                 .op = "attention",
                 .inputs = {normal(s.query), normal(s.key), normal(s.value())},
                 .attrs = attrs,
                 .reference =
                     [=](const Arrays& in) {
                       const Attention a(attrs, in, kAttentionOptional);
                       return Arrays{a.result, a.log_sum_exp};
                     },
                 .tolerance = Tolerance::summed,
                 .slack = 2,
                 .results = {same, wide},
                 .differentiable_results = 1,
                 .same_bits_on_threads = true};
  OpCase backward = forward;
  backward.name = "attention_grad" + s.suffix;
  backward.op = "attention_grad";
  backward.reference = [=](const Arrays& in) { return gradients_of(attrs, in); };
  backward.results = {same, same, same};
  backward.differentiable_results = -1;
  backward.derivatives = 1;
  backward.stops = {3, 4};
  backward.slack = 4;
  const std::vector<Input> optional = s.optional_inputs();
  // The gradient's optional inputs stand behind these; references of derived inputs see those before them
  // only.
  const auto derived_of = [=](Array Attention::*member) {
    return [=](const Arrays& in) {
      Arrays known = in;
      for (uint64_t i = 0; i < optional.size(); ++i) {
        const Input& input = optional[i];
        Array array(input.shape);
        array.values = input.draw(input.shape, 79 + i);
        known.push_back(array);
      }
      return Attention(attrs, known, static_cast<int>(in.size())).*member;
    };
  };
  backward.inputs.push_back(derived(derived_of(&Attention::result)));
  backward.inputs.push_back(derived(derived_of(&Attention::log_sum_exp), wide));
  backward.inputs.push_back(normal(s.result()));
  for (uint64_t i = 0; i < optional.size(); ++i) {
    forward.inputs.push_back(optional[i]);
    Input fixed = optional[i];
    fixed.draw = [draw = fixed.draw, i](const Shape& shape, uint64_t) { return draw(shape, 79 + i); };
    backward.inputs.push_back(fixed);
  }
  return {forward, backward};
}

OpCases cases() {
  OpCases all;
  const auto add = [&](const Setup& s, std::vector<std::vector<Shape>> edges = {}) {
    for (OpCase& c : attention_cases(s)) {
      if (c.op == "attention") c.edge_shapes = edges;
      for (auto& shapes : edges)
        if (c.op == "attention_grad") {
          c.edge_shapes.push_back(shapes);
          c.edge_shapes.back().insert(c.edge_shapes.back().end(),
                                      {{}, {}, {shapes[0][0], shapes[0][1], shapes[0][2], shapes[2][3]}});
        }
      all.push_back(std::move(c));
    }
  };
  add({.suffix = "", .query = {2, 3, 2, 4}, .key = {2, 5, 2, 4}},
      {{{0, 3, 2, 4}, {0, 5, 2, 4}, {0, 5, 2, 3}},
       {{1, 0, 2, 4}, {1, 5, 2, 4}, {1, 5, 2, 3}},
       {{1, 2, 2, 4}, {1, 0, 2, 4}, {1, 0, 2, 3}},
       {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}}});
  add({.suffix = "_causal",
       .query = {1, 4, 2, 3},
       .key = {1, 4, 2, 3},
       .attrs = {.scale = 0.5, .causal = true}});
  add({.suffix = "_masked",
       .query = {2, 3, 2, 2},
       .key = {2, 4, 2, 2},
       .attrs = {.scale = 1.2, .mask = true},
       .mask = {2, 1, 3, 4}});
  add({.suffix = "_biased",
       .query = {2, 3, 2, 2},
       .key = {2, 4, 2, 2},
       .attrs = {.scale = 0.6, .bias = true},
       .bias = {2, 1, 4}});
  add({.suffix = "_grouped",
       .query = {1, 3, 4, 3},
       .key = {1, 4, 2, 3},
       .attrs = {.scale = 0.6, .causal = true, .mask = true, .bias = true},
       .mask = {1, 4},
       .bias = {4, 3, 1}});
  add({.suffix = "_dropped",
       .query = {2, 3, 2, 2},
       .key = {2, 5, 2, 2},
       .attrs = {.scale = 0.6, .dropout = 0.3, .instance = 2, .rows_per_example = 6}});
  // Several tiles of both, the last ones not whole; columns that fill no vector.
  const Setup large{.suffix = "_large",
                    .query = {1, 70, 2, 20},
                    .key = {1, 130, 1, 20},
                    .value_dim = 17,
                    .attrs = {.scale = 0.2,
                              .causal = true,
                              .mask = true,
                              .bias = true,
                              .dropout = 0.2,
                              .instance = 1,
                              .rows_per_example = 2 * 70},
                    .mask = {1, 1, 1, 130},
                    .bias = {2, 70, 130}};
  Setup plain = large;
  plain.suffix = "_large_plain";
  plain.attrs = {.scale = 0.2};
  for (const Setup& s : {large, plain})
    for (OpCase& c : attention_cases(s)) all.push_back(threads_only(std::move(c)));
  all.push_back(
      {.name = "scaled_dot_product_attention",
       .inputs = {normal({2, 3, 2, 4}), normal({2, 3, 2, 4}), normal({2, 3, 2, 5})},
       .reference =
           [](const Arrays& in) {
             return Attention({.scale = 0.5, .causal = true}, in, kAttentionOptional).result;
           },
       .tolerance = Tolerance::summed,
       .slack = 2,
       .function =
           [](auto in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true}); }});
  return all;
}

BadCalls bad_calls() {
  const Tensor q = sample({2, 3, 4, 5}), k = sample({2, 6, 2, 5}), v = sample({2, 6, 2, 7});
  using enum ErrorCode;
  const auto call = [](const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options = {}) {
    return [=] { scaled_dot_product_attention(query, key, value, options); };
  };
  return {
      {"attention_rank", shape_mismatch, {"attention: ", "(2, 3, 4)"}, call(sample({2, 3, 4}), k, v)},
      {"attention_lengths",
       shape_mismatch,
       {"attention: ", "(2, 6, 2, 5)", "(2, 5, 2, 7)"},
       call(q, k, sample({2, 5, 2, 7}))},
      {"attention_batch", shape_mismatch, {"attention: ", "batch"}, call(sample({1, 3, 4, 5}), k, v)},
      {"attention_dimension",
       shape_mismatch,
       {"attention: ", "(2, 3, 4, 6)"},
       call(sample({2, 3, 4, 6}), k, v)},
      {"attention_heads", shape_mismatch, {"attention: ", "multiple"}, call(sample({2, 3, 3, 5}), k, v)},
      {"attention_dtypes",
       dtype_mismatch,
       {"attention: ", "float64(2, 6, 2, 5)"},
       call(q, sample({2, 6, 2, 5}, DType::float64), v)},
      {"attention_mask_dtype",
       dtype_mismatch,
       {"attention: ", "mask", "float32(3, 6)"},
       call(q, k, v, {.mask = sample({3, 6})})},
      {"attention_mask_shape",
       shape_mismatch,
       {"attention: ", "mask", "(2, 4, 3, 6)", "(3, 5)"},
       call(q, k, v, {.mask = sample({3, 5}, DType::boolean)})},
      {"attention_bias_shape",
       shape_mismatch,
       {"attention: ", "bias", "(2, 4, 3, 6)", "(3, 3, 6)"},
       call(q, k, v, {.bias = sample({3, 3, 6})})},
      {"attention_dropout", invalid_argument, {"attention: ", "dropout", "1"}, call(q, k, v, {.dropout = 1})},
      {"attention_of_none", invalid_argument, {"attention: ", "none"}, call(q, Tensor(), v)},
  };
}

}  // namespace

const Family kAttentionFamily{cases, bad_calls};

}  // namespace lockstep::testing
