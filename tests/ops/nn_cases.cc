#include "lockstep/ops/nn.h"

#include <cmath>
#include <map>

#include "ops/nn/batch_norm.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/normalize.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

// f(row, n) changes each row of the last dimension in place.
template <class F>
Array each_row(Array x, F f) {
  const int64_t n = x.shape[-1];
  for (size_t i = 0; i < x.values.size(); i += static_cast<size_t>(n)) f(x.values.data() + i, n);
  return x;
}

Array softmax_of(const Array& x) {
  return each_row(x, [](double* row, int64_t n) {
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += row[i] = std::exp(row[i] - largest);
    for (int64_t i = 0; i < n; ++i) row[i] /= sum;
  });
}

Array log_softmax_of(const Array& x) {
  return each_row(x, [](double* row, int64_t n) {
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(row[i] - largest);
    for (int64_t i = 0; i < n; ++i) row[i] = (row[i] - largest) - std::log(sum);
  });
}

// --- cross entropy -----------------------------------------------------------------------------------------

// The largest logit of a row and the sum of exp(logit - largest).
Array cross_entropy_stats(const Array& logits) {
  Shape shape = logits.shape;
  const auto n = static_cast<size_t>(shape[-1]);
  shape[-1] = 2;
  Array stats(shape);
  for (size_t row = 0; row < logits.values.size() / n; ++row) {
    const double* x = logits.values.data() + row * n;
    const double largest = *std::max_element(x, x + n);
    stats.values[2 * row] = largest;
    for (size_t i = 0; i < n; ++i) stats.values[2 * row + 1] += std::exp(x[i] - largest);
  }
  return stats;
}

Arrays cross_entropy_of(const Arrays& in) {
  const Array log_p = log_softmax_of(in[0]);
  const auto n = static_cast<size_t>(in[0].shape[-1]);
  Array loss(in[1].shape);
  for (size_t row = 0; row < loss.values.size(); ++row)
    loss.values[row] = -log_p.values[row * n + static_cast<size_t>(in[1].values[row])];
  return {loss, cross_entropy_stats(in[0])};
}

// (softmax(logits) - one_hot(labels)) * dloss; the statistics follow from the logits.
Array cross_entropy_grad_of(const Arrays& in) {
  Array out = softmax_of(in[0]);
  const auto n = static_cast<size_t>(in[0].shape[-1]);
  for (size_t row = 0; row < in[1].values.size(); ++row) {
    out.values[row * n + static_cast<size_t>(in[1].values[row])] -= 1;
    for (size_t i = 0; i < n; ++i) out.values[row * n + i] *= in[3].values[row];
  }
  return out;
}

OpCase cross_entropy_case(const CaseName& name, const Shape& rows, int64_t classes, DType labels) {
  Shape logits = rows;
  logits.push_back(classes);
  return {.name = name,
          .op = "sparse_softmax_cross_entropy",
          .inputs = {normal(logits), indices(rows, classes, labels)},
          .reference = cross_entropy_of,
          .tolerance = Tolerance::summed,
          .results = {same, wide},
          .differentiable_results = 1,
          .same_bits_on_threads = true};
}

OpCase cross_entropy_grad_case(const CaseName& name, const Shape& rows, int64_t classes, DType labels) {
  OpCase c = cross_entropy_case(name, rows, classes, labels);
  c.op = "sparse_softmax_cross_entropy_grad";
  c.inputs.push_back(derived([](const Arrays& in) { return cross_entropy_stats(in[0]); }, wide));
  c.inputs.push_back(normal(rows));
  c.reference = cross_entropy_grad_of;
  c.results = {same};
  c.stops = {2};
  return c;
}

// --- layer normalisation -----------------------------------------------------------------------------------

constexpr double kEpsilon = 1e-3;

struct Normalized {
  Array h, mean, rstd;
};

Normalized normalized(const Array& x) {
  Normalized result{x, Array(x.shape.drop_last(1)), Array(x.shape.drop_last(1))};
  size_t row = 0;
  result.h = each_row(x, [&](double* values, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += values[i];
    const double mean = sum / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (values[i] - mean) * (values[i] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + kEpsilon);
    for (int64_t i = 0; i < n; ++i) values[i] = (values[i] - mean) * rstd;
    result.mean.values[row] = mean;
    result.rstd.values[row++] = rstd;
  });
  return result;
}

Arrays layer_norm_of(const Arrays& in) {
  const Normalized x = normalized(in[0]);
  const Array y = broadcast_each({x.h, in[1], in[2]}, 1,
                                 [](const double* v, double* out) { *out = v[0] * v[1] + v[2]; })[0];
  return {y, x.mean, x.rstd};
}

Arrays layer_norm_grad_of(const Arrays& in) {
  const Array &gamma = in[1], &dy = in[4];
  const Normalized x = normalized(in[0]);
  const auto n = static_cast<size_t>(gamma.shape[0]);
  Array dx(in[0].shape), dgamma(gamma.shape), dbeta(gamma.shape);
  for (size_t row = 0; row < x.mean.values.size(); ++row) {
    double sum = 0, along = 0;
    for (size_t i = 0; i < n; ++i) {
      const double d = dy.values[row * n + i], h = x.h.values[row * n + i], a = d * gamma.values[i];
      sum += a / static_cast<double>(n);
      along += a * h / static_cast<double>(n);
      dgamma.values[i] += d * h;
      dbeta.values[i] += d;
    }
    for (size_t i = 0; i < n; ++i)
      dx.values[row * n + i] = x.rstd.values[row] * (dy.values[row * n + i] * gamma.values[i] - sum -
                                                     x.h.values[row * n + i] * along);
  }
  return {dx, dgamma, dbeta};
}

// --- other normalisations ----------------------------------------------------------------------------------

// x / sqrt(mean of squares + epsilon), and that factor.
Normalized rms_normalized(const Array& x) {
  Normalized result{x, {}, Array(x.shape.drop_last(1))};
  size_t row = 0;
  result.h = each_row(x, [&](double* values, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += values[i] * values[i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + kEpsilon);
    for (int64_t i = 0; i < n; ++i) values[i] *= rstd;
    result.rstd.values[row++] = rstd;
  });
  return result;
}

Arrays rms_norm_of(const Arrays& in) {
  const Normalized x = rms_normalized(in[0]);
  const Array y =
      broadcast_each({x.h, in[1]}, 1, [](const double* v, double* out) { *out = v[0] * v[1]; })[0];
  return {y, x.rstd};
}

Arrays rms_norm_grad_of(const Arrays& in) {
  const Array &gamma = in[1], &dy = in[3];
  const Normalized x = rms_normalized(in[0]);
  const auto n = static_cast<size_t>(gamma.shape[0]);
  Array dx(in[0].shape), dgamma(gamma.shape);
  for (size_t row = 0; row < x.rstd.values.size(); ++row) {
    double along = 0;
    for (size_t i = 0; i < n; ++i) {
      const double d = dy.values[row * n + i], h = x.h.values[row * n + i];
      along += d * gamma.values[i] * h / static_cast<double>(n);
      dgamma.values[i] += d * h;
    }
    for (size_t i = 0; i < n; ++i)
      dx.values[row * n + i] =
          x.rstd.values[row] * (dy.values[row * n + i] * gamma.values[i] - x.h.values[row * n + i] * along);
  }
  return {dx, dgamma};
}

// The elements of every index of `kept` axes together: mean 0 and variance 1.
Array standardized(const Array& x, const std::function<int64_t(const Dims&)>& group, double epsilon) {
  std::map<int64_t, std::vector<double>> groups;
  each_index(x.shape, [&](const Dims& i) { groups[group(i)].push_back(x.at(i)); });
  Array y = x;
  each_index(x.shape, [&](const Dims& i) {
    const std::vector<double>& members = groups[group(i)];
    double mean = 0, variance = 0;
    for (const double v : members) mean += v / static_cast<double>(members.size());
    for (const double v : members) variance += (v - mean) * (v - mean) / static_cast<double>(members.size());
    y.at(i) = (x.at(i) - mean) / std::sqrt(variance + epsilon);
  });
  return y;
}

// Of the columns of x, taken as a matrix.
struct ColumnMoments {
  Array mean, variance;
};
ColumnMoments column_moments(const Array& x) {
  const auto n = static_cast<size_t>(x.shape[-1]), rows = x.values.size() / n;
  ColumnMoments m{Array({x.shape[-1]}, rows > 0 ? 0 : NAN), Array({x.shape[-1]}, rows > 0 ? 0 : NAN)};
  for (size_t i = 0; i < x.values.size(); ++i)
    m.mean.values[i % n] += x.values[i] / static_cast<double>(rows);
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double d = x.values[i] - m.mean.values[i % n];
    m.variance.values[i % n] += d * d / static_cast<double>(rows);
  }
  return m;
}

Arrays batch_norm_of(const Arrays& in) {
  const ColumnMoments m = column_moments(in[0]);
  const Array y =
      broadcast_each({in[0], m.mean, m.variance, in[1], in[2]}, 1, [](const double* v, double* out) {
        *out = (v[0] - v[1]) / std::sqrt(v[2] + kEpsilon) * v[3] + v[4];
      })[0];
  return {y, m.mean, m.variance};
}

Arrays batch_norm_grad_of(const Arrays& in) {
  const ColumnMoments m = column_moments(in[0]);
  const Array &x = in[0], &gamma = in[1], &dy = in[4];
  const auto n = static_cast<size_t>(x.shape[-1]), rows = x.values.size() / n;
  Array dx(x.shape), dgamma(gamma.shape), dbeta(gamma.shape);
  const auto rstd = [&](size_t c) { return 1 / std::sqrt(m.variance.values[c] + kEpsilon); };
  const auto h = [&](size_t i) { return (x.values[i] - m.mean.values[i % n]) * rstd(i % n); };
  for (size_t i = 0; i < x.values.size(); ++i) {
    dgamma.values[i % n] += dy.values[i] * h(i);
    dbeta.values[i % n] += dy.values[i];
  }
  for (size_t i = 0; i < x.values.size(); ++i) {
    const size_t c = i % n;
    dx.values[i] = gamma.values[c] * rstd(c) *
                   (dy.values[i] - (dbeta.values[c] + h(i) * dgamma.values[c]) / static_cast<double>(rows));
  }
  return {dx, dgamma, dbeta};
}

Arrays batch_norm_sums_of(const Arrays& in) {
  const Array &x = in[0], &mean = in[1], &dy = in[2];
  Array sum(mean.shape), product(mean.shape);
  const size_t n = mean.values.size();
  for (size_t i = 0; i < x.values.size(); ++i) {
    sum.values[i % n] += dy.values[i];
    product.values[i % n] += dy.values[i] * (x.values[i] - mean.values[i % n]);
  }
  return {sum, product};
}

Array scaled(const Array& h, const Array& gamma, const Array& beta) {
  return broadcast_each({h, gamma, beta}, 1,
                        [](const double* v, double* out) { *out = v[0] * v[1] + v[2]; })[0];
}

// --- tables ------------------------------------------------------------------------------------------------

const std::vector<std::vector<Shape>> kRowEdges = {{{1}}, {{0, 3}}, {{2, 1}}, {{2, 0, 3}}};

OpCases cases() {
  const auto transposed = [](const Array& x) {
    Array out({x.shape[1], x.shape[0]});
    each_index(x.shape, [&](const Dims& i) { out.at({i[1], i[0]}) = x.at(i); });
    return out;
  };
  OpCases all = {
      {.name = "softmax",
       .op = "softmax",
       .inputs = {normal({4, 6})},
       .reference = [](const Arrays& in) { return softmax_of(in[0]); },
       .slack = 2,
       .function = [](auto in) { return softmax(in[0]); },
       .edge_shapes = kRowEdges,
       .large = {{300, 500}},
       .same_bits_on_threads = true},
      {.name = "log_softmax",
       .op = "log_softmax",
       .inputs = {normal({4, 6})},
       .reference = [](const Arrays& in) { return log_softmax_of(in[0]); },
       .slack = 2,
       .function = [](auto in) { return log_softmax(in[0]); },
       .edge_shapes = kRowEdges,
       .large = {{300, 500}},
       .same_bits_on_threads = true},
      {.name = "softmax_long_rows",
       .op = "softmax",
       .inputs = {normal({2, 3, 37})},
       .reference = [](const Arrays& in) { return softmax_of(in[0]); },
       .slack = 2,
       .derivatives = kUnchecked},
      {.name = "softmax_far_logits",
       .op = "softmax",
       .inputs = {given({3, 3}, {1000, 0, -1000, -1000, -1000, -1000, 80, 81, 82})},
       .reference = [](const Arrays& in) { return softmax_of(in[0]); },
       .slack = 2,
       .derivatives = kUnchecked},
      {.name = "log_softmax_far_logits",
       .op = "log_softmax",
       .inputs = {given({3, 3}, {1000, 0, -1000, -1000, -1000, -1000, 80, 81, 82})},
       .reference = [](const Arrays& in) { return log_softmax_of(in[0]); },
       .slack = 2,
       .derivatives = kUnchecked},
      {.name = "softmax_of_columns",
       .inputs = {normal({4, 6})},
       .reference = [=](const Arrays& in) { return transposed(softmax_of(transposed(in[0]))); },
       .slack = 2,
       .function = [](auto in) { return softmax(in[0], 0); }},
      {.name = "log_softmax_of_columns",
       .inputs = {normal({4, 6})},
       .reference = [=](const Arrays& in) { return transposed(log_softmax_of(transposed(in[0]))); },
       .slack = 2,
       .function = [](auto in) { return log_softmax(in[0], -2); }},
      cross_entropy_case("sparse_cross_entropy", {5}, 4, DType::int64),
      cross_entropy_case("sparse_cross_entropy_int32", {2, 3}, 4, DType::int32),
      cross_entropy_grad_case("sparse_cross_entropy_grad", {5}, 4, DType::int64),
      cross_entropy_grad_case("sparse_cross_entropy_grad_int32", {2, 3}, 4, DType::int32),
      {.name = "sparse_softmax_cross_entropy_with_logits",
       .inputs = {indices({5}, 4), normal({5, 4})},
       .reference =
           [](const Arrays& in) {
             return cross_entropy_of({in[1], in[0]})[0];
           },
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return sparse_softmax_cross_entropy_with_logits(in[0], in[1]); }},
      {.name = "softmax_cross_entropy_with_logits",
       .inputs = {within({5, 4}, 0.1, 0.5), normal({5, 4})},
       .reference =
           [](const Arrays& in) {
             const Array log_p = log_softmax_of(in[1]);
             Array loss({5});
             each_index(log_p.shape, [&](const Dims& i) { loss.at({i[0]}) -= in[0].at(i) * log_p.at(i); });
             return loss;
           },
       // Each 16-bit product and sum on the way is rounded.
       .tolerance = Tolerance::summed,
       .slack = 3,
       .function = [](auto in) { return softmax_cross_entropy_with_logits(in[0], in[1]); }},
      {.name = "layer_norm",
       .op = "layer_norm",
       .inputs = {normal({4, 6}), normal({6}), normal({6})},
       .attrs = LayerNormAttrs{kEpsilon},
       .reference = layer_norm_of,
       .tolerance = Tolerance::summed,
       .results = {same, wide, wide},
       .differentiable_results = 1,
       .edge_shapes = {{{1}, {1}, {1}}, {{0, 3}, {3}, {3}}, {{2, 1, 3}, {3}, {3}}},
       .large = {{300, 500}, {500}, {500}},
       .same_bits_on_threads = true},
      {.name = "layer_norm_long_rows",
       .op = "layer_norm",
       .inputs = {normal({2, 3, 37}), normal({37}), normal({37})},
       .attrs = LayerNormAttrs{kEpsilon},
       .reference = layer_norm_of,
       .tolerance = Tolerance::summed,
       .results = {same, wide, wide},
       .derivatives = kUnchecked},
      {.name = "layer_norm_grad",
       .op = "layer_norm_grad",
       .inputs = {normal({4, 6}), normal({6}),
                  derived([](const Arrays& in) { return normalized(in[0]).mean; }, wide),
                  derived([](const Arrays& in) { return normalized(in[0]).rstd; }, wide), normal({4, 6})},
       .attrs = LayerNormAttrs{kEpsilon},
       .reference = layer_norm_grad_of,
       .tolerance = Tolerance::summed,
       .results = {same, same, same},
       .stops = {2, 3},
       .edge_shapes = {{{1}, {1}, {}, {}, {1}},
                       {{0, 3}, {3}, {}, {}, {0, 3}},
                       {{2, 1, 3}, {3}, {}, {}, {2, 1, 3}}},
       .large = {{300, 500}, {500}, {}, {}, {300, 500}},
       .same_bits_on_threads = true},
      {.name = "layer_norm_of_last",
       .inputs = {normal({4, 6}), normal({6}), normal({6})},
       .reference = [](const Arrays& in) { return layer_norm_of(in)[0]; },
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return layer_norm(in[0], in[1], in[2]); }},
      {.name = "layer_norm_of_first",
       .inputs = {normal({6, 4}), normal({6}), normal({6})},
       .reference =
           [=](const Arrays& in) {
             return transposed(layer_norm_of({transposed(in[0]), in[1], in[2]})[0]);
           },
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return layer_norm(in[0], in[1], in[2], {.axis = {0}}); }},
      {.name = "layer_norm_of_two",
       .inputs = {normal({2, 3, 4}), normal({3, 4}), normal({3, 4})},
       .reference =
           [](const Arrays& in) {
             return scaled(standardized(
                               in[0], [](const Dims& i) { return i[0]; }, kEpsilon),
                           in[1], in[2]);
           },
       .tolerance = Tolerance::summed,
       .function =
           [](auto in) {
             return layer_norm(in[0], in[1], in[2], {.axis = {1, 2}});
           }},
      {.name = "layer_norm_of_first_and_last",
       .inputs = {normal({2, 3, 4}), normal({8}), normal({8})},
       .reference =
           [](const Arrays& in) {
             Array gamma = in[1], beta = in[2];
             gamma.shape = beta.shape = {2, 1, 4};
             return scaled(standardized(
                               in[0], [](const Dims& i) { return i[1]; }, kEpsilon),
                           gamma, beta);
           },
       .tolerance = Tolerance::summed,
       .function =
           [](auto in) {
             return layer_norm(in[0], in[1], in[2], {.axis = {0, -1}});
           }},
      {.name = "rms_norm",
       .op = "rms_norm",
       .inputs = {normal({4, 6}), normal({6})},
       .attrs = LayerNormAttrs{kEpsilon},
       .reference = rms_norm_of,
       .tolerance = Tolerance::summed,
       .results = {same, wide},
       .differentiable_results = 1,
       .edge_shapes = {{{1}, {1}}, {{0, 3}, {3}}, {{2, 1, 3}, {3}}},
       .large = {{300, 500}, {500}},
       .same_bits_on_threads = true},
      {.name = "rms_norm_grad",
       .op = "rms_norm_grad",
       .inputs = {normal({4, 6}), normal({6}),
                  derived([](const Arrays& in) { return rms_normalized(in[0]).rstd; }, wide), normal({4, 6})},
       .attrs = LayerNormAttrs{kEpsilon},
       .reference = rms_norm_grad_of,
       .tolerance = Tolerance::summed,
       .results = {same, same},
       .stops = {2},
       .edge_shapes = {{{0, 3}, {3}, {}, {0, 3}}, {{2, 1, 3}, {3}, {}, {2, 1, 3}}},
       .large = {{300, 500}, {500}, {}, {300, 500}},
       .same_bits_on_threads = true},
      {.name = "rms_norm_of_first",
       .inputs = {normal({6, 4}), normal({6})},
       .reference =
           [=](const Arrays& in) {
             return transposed(rms_norm_of({transposed(in[0]), in[1]})[0]);
           },
       .tolerance = Tolerance::summed,
       .function = [](auto in) { return rms_norm(in[0], in[1], {.axis = {0}, .epsilon = kEpsilon}); }},
      {.name = "moments",
       .inputs = {normal({3, 4, 2})},
       .reference =
           [](const Arrays& in) {
             Array mean({3, 2}), variance({3, 2});
             each_index(in[0].shape, [&](const Dims& i) { mean.at({i[0], i[2]}) += in[0].at(i) / 4; });
             each_index(in[0].shape, [&](const Dims& i) {
               const double d = in[0].at(i) - mean.at({i[0], i[2]});
               variance.at({i[0], i[2]}) += d * d / 4;
             });
             return Arrays{mean, variance};
           },
       .tolerance = Tolerance::summed,
       .slack = 3,
       .function =
           [](auto in) {
             const Moments m = moments(in[0], {.axis = {1}});
             return TensorList{m.mean, m.variance};
           },
       .results = {same, same}},
      {.name = "batch_normalization",
       .inputs = {normal({2, 3, 2, 4}), normal({4}), within({4}, 0.5, 2), normal({4}), normal({4})},
       .reference =
           [](const Arrays& in) {
             return broadcast_each(in, 1, [](const double* v, double* out) {
               *out = (v[0] - v[1]) / std::sqrt(v[2] + 1e-3) * v[3] + v[4];
             })[0];
           },
       .dtypes = {DType::float32, DType::float64},  // 16-bit ones are rounded between ops that are not fused
       .tolerance = Tolerance::summed,
       .slack = 4,
       .function =
           [](auto in) { return batch_normalization(in[0], in[1], in[2], {.gamma = in[3], .beta = in[4]}); }},
      {.name = "batch_normalization_in_training",
       .inputs = {normal({3, 4, 2}), normal({4})},
       .reference =
           [](const Arrays& in) {
             Array gamma = in[1];
             gamma.shape = {4, 1};
             return scaled(standardized(
                               in[0], [](const Dims& i) { return i[1]; }, 1e-3),
                           gamma, Array({1}, 0));
           },
       .dtypes = {DType::float32, DType::float64},  // 16-bit ones are rounded between ops that are not fused
       .tolerance = Tolerance::summed,
       .slack = 6,
       .function =
           [](auto in) {
             const Moments m = moments(in[0], {.axis = {0, 2}});
             return batch_normalization(in[0], m.mean, m.variance, {.gamma = in[1], .axis = 1});
           }},
      {.name = "batch_norm",
       .op = "batch_norm",
       .inputs = {normal({2, 4, 3}), normal({3}), normal({3})},
       .attrs = BatchNormAttrs{kEpsilon},
       .reference = batch_norm_of,
       .tolerance = Tolerance::summed,
       .slack = 2,
       .results = {same, wide, wide},
       .differentiable_results = 1,  // with no rows the others are NaN
       .edge_shapes = {{{0, 3}, {3}, {3}}, {{5, 1}, {1}, {1}}},
       .large = {{90, 10, 83}, {83}, {83}},
       .same_bits_on_threads = true},
      {.name = "batch_norm_grad",
       .op = "batch_norm_grad",
       .inputs = {normal({2, 4, 3}), normal({3}),
                  derived([](const Arrays& in) { return column_moments(in[0]).mean; }, wide),
                  derived([](const Arrays& in) { return column_moments(in[0]).variance; }, wide),
                  normal({2, 4, 3})},
       .attrs = BatchNormAttrs{kEpsilon},
       .reference = batch_norm_grad_of,
       .tolerance = Tolerance::summed,
       .slack = 2,
       .results = {same, same, same},
       .stops = {2, 3},
       .edge_shapes = {{{0, 3}, {3}, {}, {}, {0, 3}}, {{5, 1}, {1}, {}, {}, {5, 1}}},
       .large = {{90, 10, 83}, {83}, {}, {}, {90, 10, 83}},
       .same_bits_on_threads = true},
      {.name = "batch_moments",
       .op = "batch_moments",
       .inputs = {normal({2, 4, 3})},
       .reference = [](const Arrays& in) -> Arrays {
         if (in[0].values.empty()) return {Array({in[0].shape[-1]}), Array({in[0].shape[-1]})};
         const ColumnMoments m = column_moments(in[0]);
         return {m.mean, m.variance};
       },
       .tolerance = Tolerance::summed,
       .results = {wide, wide},
       .edge_shapes = {{{0, 3}}, {{5, 1}}, {{1, 3}}},
       .large = {{90, 10, 83}},
       .same_bits_on_threads = true},
      {.name = "batch_norm_sums",
       .op = "batch_norm_sums",
       .inputs = {normal({2, 4, 3}),
                  derived([](const Arrays& in) { return column_moments(in[0]).mean; }, wide),
                  normal({2, 4, 3})},
       .attrs = BatchNormSumsAttrs{},
       .reference = batch_norm_sums_of,
       .tolerance = Tolerance::summed,
       .results = {wide, wide},
       .stops = {1},
       .edge_shapes = {{{0, 3}, {}, {0, 3}}, {{5, 1}, {}, {5, 1}}},
       .large = {{90, 10, 83}, {}, {90, 10, 83}},
       .same_bits_on_threads = true},
      {.name = "fused_batch_norm",
       .inputs = {normal({2, 4, 3}), normal({3}), normal({3})},
       .reference = batch_norm_of,
       .tolerance = Tolerance::summed,
       .slack = 2,
       .function =
           [](auto in) {
             const BatchNormResult r = fused_batch_norm(in[0], in[1], in[2]);
             return TensorList{r.y, r.mean, r.variance};
           },
       .results = {same, wide, wide}},
      {.name = "group_norm",
       .inputs = {normal({2, 3, 4}), normal({4}), normal({4})},
       .reference =
           [](const Arrays& in) {
             return scaled(standardized(
                               in[0], [](const Dims& i) { return 2 * i[0] + i[2] / 2; }, 1e-3),
                           in[1], in[2]);
           },
       .tolerance = Tolerance::summed,
       .slack = 6,
       .function = [](auto in) { return group_norm(in[0], in[1], in[2], {.groups = 2}); }},
      {.name = "instance_norm",
       .inputs = {normal({2, 4, 3}), normal({3}), normal({3})},
       .reference =
           [](const Arrays& in) {
             return scaled(standardized(
                               in[0], [](const Dims& i) { return 3 * i[0] + i[2]; }, 1e-3),
                           in[1], in[2]);
           },
       .tolerance = Tolerance::summed,
       .slack = 6,
       .function = [](auto in) { return group_norm(in[0], in[1], in[2], {.groups = -1}); }},
      {.name = "l2_normalize",
       .inputs = {normal({3, 4})},
       .reference =
           [](const Arrays& in) {
             return each_row(in[0], [](double* row, int64_t n) {
               double squares = 0;
               for (int64_t i = 0; i < n; ++i) squares += row[i] * row[i];
               for (int64_t i = 0; i < n; ++i) row[i] /= std::sqrt(squares);
             });
           },
       .tolerance = Tolerance::summed,
       .slack = 3,
       .function = [](auto in) { return l2_normalize(in[0], {-1}); }},
  };
  for (OpCase& c : all) {
    if (c.name == "sparse_cross_entropy")
      c.edge_shapes = {{{4}, {}}, {{0, 4}, {0}}, {{1, 4}, {1}}}, c.large = {{900, 100}, {900}};
    if (c.name == "sparse_cross_entropy_grad")
      c.edge_shapes = {{{4}, {}, {}, {}}, {{0, 4}, {0}, {}, {0}}, {{1, 4}, {1}, {}, {1}}},
      c.large = {{900, 100}, {900}, {}, {900}};
  }
  return all;
}

BadCalls bad_calls() {
  const Tensor logits = sample({2, 3}), labels = sample({2}, DType::int64),
               whole = sample({2, 3}, DType::int32);
  const Tensor far = Tensor::from({0, 3}, {2});
  using enum ErrorCode;
  return {
      {"softmax_dtype", dtype_mismatch, {"softmax: ", "int32(2, 3)"}, [=] { softmax(whole); }},
      {"softmax_axis", invalid_argument, {"softmax: ", "axis 2"}, [=] { softmax(logits, 2); }},
      {"softmax_of_scalar", invalid_argument, {"softmax: ", "scalar"}, [=] { softmax(sample({})); }},
      {"log_softmax_axis", invalid_argument, {"log_softmax: ", "axis -3"}, [=] { log_softmax(logits, -3); }},
      {"sparse_cross_entropy_labels",
       dtype_mismatch,
       {"sparse_softmax_cross_entropy", "float32(2,)"},
       [=] { sparse_softmax_cross_entropy_with_logits(sample({2}), logits); }},
      {"sparse_cross_entropy_logits",
       dtype_mismatch,
       {"sparse_softmax_cross_entropy", "int32(2, 3)"},
       [=] { sparse_softmax_cross_entropy_with_logits(labels, whole); }},
      {"sparse_cross_entropy_shapes",
       shape_mismatch,
       {"sparse_softmax_cross_entropy", "(2,)", "(3,)"},
       [=] { sparse_softmax_cross_entropy_with_logits(sample({3}, DType::int64), logits); }},
      {"sparse_cross_entropy_no_classes",
       shape_mismatch,
       {"sparse_softmax_cross_entropy", "(2, 0)"},
       [=] {
         sparse_softmax_cross_entropy_with_logits(labels, sample({2, 0}));
       }},
      {"sparse_cross_entropy_label_outside",
       invalid_argument,
       {"sparse_softmax_cross_entropy", "(1,)", "3"},
       [=] { sparse_softmax_cross_entropy_with_logits(far, logits); }},
      {"softmax_cross_entropy_shapes",
       shape_mismatch,
       {"(2, 4)", "(2, 3)"},
       [=] {
         softmax_cross_entropy_with_logits(sample({2, 4}), logits);
       }},
      {"softmax_cross_entropy_dtypes",
       dtype_mismatch,
       {"float64(2, 3)", "float32(2, 3)"},
       [=] {
         softmax_cross_entropy_with_logits(sample({2, 3}, DType::float64), logits);
       }},
      {"layer_norm_axis",
       invalid_argument,
       {"layer_norm: ", "axis 2"},
       [=] { layer_norm(logits, sample({3}), sample({3}), {.axis = {2}}); }},
      {"layer_norm_axis_twice",
       invalid_argument,
       {"layer_norm: ", "twice"},
       [=] {
         layer_norm(logits, sample({3}), sample({3}), {.axis = {1, -1}});
       }},
      {"rms_norm_gamma",
       shape_mismatch,
       {"rms_norm: ", "gamma", "(2, 3)", "(2,)"},
       [=] { rms_norm(logits, sample({2})); }},
      {"rms_norm_dtype", dtype_mismatch, {"rms_norm: ", "int32(2, 3)"}, [=] { rms_norm(whole, whole); }},
      {"batch_normalization_mean",
       shape_mismatch,
       {"batch_normalization: ", "mean", "(2, 3)", "(2,)"},
       [=] { batch_normalization(logits, sample({2}), sample({3})); }},
      {"batch_norm_gamma",
       shape_mismatch,
       {"batch_norm: ", "gamma", "(3,)", "(2,)"},
       [=] { fused_batch_norm(logits, sample({2}), sample({3})); }},
      {"batch_norm_dtype",
       dtype_mismatch,
       {"batch_norm: ", "int32(2, 3)"},
       [=] { fused_batch_norm(whole, whole, whole); }},
      {"group_norm_groups",
       shape_mismatch,
       {"group_norm: ", "2", "(2, 3)"},
       [=] { group_norm(logits, sample({3}), sample({3}), {.groups = 2}); }},
      {"layer_norm_gamma",
       shape_mismatch,
       {"layer_norm: ", "gamma", "(2, 3)", "(2,)"},
       [=] { layer_norm(logits, sample({2}), sample({3})); }},
      {"layer_norm_beta",
       shape_mismatch,
       {"layer_norm: ", "beta", "(2, 3)", "(4,)"},
       [=] { layer_norm(logits, sample({3}), sample({4})); }},
      {"layer_norm_dtype",
       dtype_mismatch,
       {"layer_norm: ", "int32(2, 3)"},
       [=] { layer_norm(whole, whole, whole); }},
      {"layer_norm_of_nothing",
       shape_mismatch,
       {"layer_norm: ", "(2, 0)"},
       [=] {
         layer_norm(sample({2, 0}), sample({0}), sample({0}));
       }},
  };
}

}  // namespace

const Family kNnFamily{cases, bad_calls};

}  // namespace lockstep::testing
