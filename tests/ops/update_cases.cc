#include <algorithm>
#include <array>
#include <cmath>

#include "graph/emit.h"
#include "ops/elementwise/expander.h"
#include "ops/op_case.h"
#include "ops/update/sparse_update.h"
#include "ops/update/update.h"

namespace lockstep::testing {
namespace {

// All inputs but the scalars, the last ones, have the weights' shape.
std::vector<Shape> shapes(const std::vector<Input>& inputs, const Shape& weights) {
  std::vector<Shape> all;
  for (const Input& input : inputs) all.push_back(input.shape.rank() == 0 ? Shape{} : weights);
  return all;
}

// Weights, momenta and gradients; what is never negative; and scalars, which are wide.
const Input kAny = normal({4, 6}), kPositive = within({4, 6}, 0.1, 1);
const Input kRate = within({}, 0.01, 0.1).of(wide);

template <size_t Results, class F>
OpCase update_case(const CaseName& name, const std::string& op, std::vector<Input> inputs, Attrs attrs,
                   F reference) {
  OpCase c{.name = name,
           .op = op,
           .inputs = inputs,
           .attrs = std::move(attrs),
           .reference = each(reference),
           .tolerance = Tolerance::summed,
           .results = std::vector<DTypeRule>(Results, same),
           .derivatives = 0,
           .large = shapes(inputs, {200, 400})};
  for (const Shape& weights : {Shape{}, Shape{1}, Shape{0}, Shape{2, 0}})
    c.edge_shapes.push_back(shapes(inputs, weights));
  return c;
}

OpCase momentum_case(const CaseName& name, double momentum, bool nesterov) {
  return update_case<2>(name, "sgd_momentum_update", {kAny, kAny, kAny, kRate},
                        MomentumAttrs{momentum, nesterov}, [=](double w, double m, double g, double rate) {
                          const double moved = momentum * m - rate * g;
                          return std::array{nesterov ? w + momentum * moved - rate * g : w + moved, moved};
                        });
}

OpCase ftrl_case(const CaseName& name, const FtrlAttrs& a) {
  return update_case<3>(
      name, "ftrl_update", {kAny, kPositive, kAny, kAny, kRate}, a,
      [=](double w, double accumulator, double linear, double g, double rate) {
        const double sum = accumulator + g * g;
        const double power = -a.learning_rate_power;
        const double moved = linear + g + 2 * a.l2_shrinkage * w -
                             (std::pow(sum, power) - std::pow(accumulator, power)) / rate * w;
        const double quadratic = std::pow(sum, power) / rate + 2 * (a.l2 + a.beta / (2 * rate));
        return std::array{(std::clamp(moved, -a.l1, a.l1) - moved) / quadratic, sum, moved};
      });
}

// Adam's update of a table whose gradient are values by row. Its program is one of these dtypes.
OpCase sparse_case(const CaseName& name, DType dtype, const Shape& values, const Input& rows,
                   const Shape& table) {
  const DTypes dtypes = {dtype, dtype, dtype, dtype, wide(dtype)};
  const AdamUpdateAttrs adam{.beta_1 = 0.8, .beta_2 = 0.9, .epsilon = 1e-3};
  const Reference whole = each([](double w, double m, double v, double g, double rate) {
    const double new_m = 0.8 * m + 0.2 * g, new_v = 0.9 * v + 0.1 * g * g;
    return std::array{w - rate * new_m / (std::sqrt(new_v) + 1e-3), new_m, new_v};
  });
  const auto reference = [=](const Arrays& in) {
    Array gradient(table);
    gradient.dtype = in[0].dtype;
    const int64_t width = table.size() / table[0];
    for (size_t i = 0; i < in[0].values.size(); ++i) {
      const auto element = static_cast<int64_t>(i);
      const auto row = static_cast<int64_t>(in[1].values[static_cast<size_t>(element / width)]);
      gradient.values[static_cast<size_t>(row * width + element % width)] += in[0].values[i];
    }
    return whole({in[2], in[3], in[4], gradient, in[5]});
  };
  return {.name = name,
          .op = "sparse_update",
          .inputs = {normal(values), rows, normal(table), normal(table), within(table, 0.1, 1), kRate},
          .attrs = SparseUpdateAttrs{.program = elementwise::expand(*find_op("adam_update"), adam, dtypes),
                                     .gradient = 3,
                                     .rows = table[0]},
          .reference = reference,
          .dtypes = {dtype},
          .tolerance = Tolerance::summed,
          .slack = 4,  // a 16-bit gradient is rounded before it is used
          .results = {same, same, same},
          .derivatives = 0};
}

OpCases cases() {
  const auto mix = [](double old, double fresh, double keep) { return keep * old + (1 - keep) * fresh; };
  const BetaAttrs betas{.beta_1 = 0.8, .beta_2 = 0.9, .epsilon = 1e-3};
  return {
      update_case<1>("sgd_update", "sgd_update", {kAny, kAny, kRate}, {},
                     [](double w, double g, double rate) { return w - rate * g; }),
      momentum_case("sgd_momentum_update", 0.9, false),
      momentum_case("sgd_nesterov_update", 0.9, true),
      update_case<3>("adam_update", "adam_update", {kAny, kAny, kPositive, kAny, kRate},
                     AdamUpdateAttrs{.beta_1 = 0.8, .beta_2 = 0.9, .epsilon = 1e-3},
                     [=](double w, double m, double v, double g, double rate) {
                       const double new_m = mix(m, g, 0.8), new_v = mix(v, g * g, 0.9);
                       return std::array{w - rate * new_m / (std::sqrt(new_v) + 1e-3), new_m, new_v};
                     }),
      update_case<4>(
          "adam_update_amsgrad", "adam_update", {kAny, kAny, kPositive, kPositive, kAny, kRate},
          AdamUpdateAttrs{.beta_1 = 0.8, .beta_2 = 0.9, .epsilon = 1e-3, .amsgrad = true},
          [=](double w, double m, double v, double v_hat, double g, double rate) {
            const double new_m = mix(m, g, 0.8), new_v = mix(v, g * g, 0.9);
            const double largest = std::max(v_hat, new_v);
            return std::array{w - rate * new_m / (std::sqrt(largest) + 1e-3), new_m, new_v, largest};
          }),
      update_case<3>("adamax_update", "adamax_update", {kAny, kAny, kPositive, kAny, kRate}, betas,
                     [=](double w, double m, double norm, double g, double rate) {
                       const double new_m = mix(m, g, 0.8), new_norm = std::max(0.9 * norm, std::abs(g));
                       return std::array{w - rate * new_m / (new_norm + 1e-3), new_m, new_norm};
                     }),
      update_case<3>("nadam_update", "nadam_update",
                     {kAny, kAny, kPositive, kAny, kRate, kRate, within({}, 1, 2).of(wide)}, betas,
                     [=](double w, double m, double v, double g, double m_rate, double g_rate, double scale) {
                       const double new_m = mix(m, g, 0.8), new_v = mix(v, g * g, 0.9);
                       return std::array{
                           w - (m_rate * new_m + g_rate * g) / (std::sqrt(scale * new_v) + 1e-3), new_m,
                           new_v};
                     }),
      update_case<2>("rmsprop_update", "rmsprop_update", {kAny, kPositive, kAny, kRate},
                     RmspropAttrs{.rho = 0.8, .epsilon = 1e-3},
                     [=](double w, double v, double g, double rate) {
                       const double new_v = mix(v, g * g, 0.8);
                       return std::array{w - rate * g / std::sqrt(new_v + 1e-3), new_v};
                     }),
      update_case<3>("rmsprop_update_momentum", "rmsprop_update", {kAny, kPositive, kAny, kAny, kRate},
                     RmspropAttrs{.rho = 0.8, .momentum = 0.7, .epsilon = 1e-3},
                     [=](double w, double v, double m, double g, double rate) {
                       const double new_v = mix(v, g * g, 0.8);
                       const double new_m = 0.7 * m + rate * g / std::sqrt(new_v + 1e-3);
                       return std::array{w - new_m, new_v, new_m};
                     }),
      // The average is small beside the root of the velocity, as that of real gradients is.
      update_case<4>("rmsprop_update_centered", "rmsprop_update",
                     {kAny, within({4, 6}, 1, 2), kAny, within({4, 6}, -0.1, 0.1), kAny, kRate},
                     RmspropAttrs{.rho = 0.8, .momentum = 0.7, .epsilon = 1e-3, .centered = true},
                     [=](double w, double v, double m, double average, double g, double rate) {
                       const double new_v = mix(v, g * g, 0.8), new_average = mix(average, g, 0.8);
                       const double new_m =
                           0.7 * m + rate * g / std::sqrt(new_v - new_average * new_average + 1e-3);
                       return std::array{w - new_m, new_v, new_m, new_average};
                     }),
      update_case<2>("adagrad_update", "adagrad_update", {kAny, kPositive, kAny, kRate}, EpsilonAttrs{1e-3},
                     [](double w, double accumulator, double g, double rate) {
                       const double sum = accumulator + g * g;
                       return std::array{w - rate * g / std::sqrt(sum + 1e-3), sum};
                     }),
      update_case<3>("adadelta_update", "adadelta_update", {kAny, kPositive, kPositive, kAny, kRate},
                     AdadeltaAttrs{.rho = 0.8, .epsilon = 1e-3},
                     [=](double w, double gradients, double steps, double g, double rate) {
                       const double sum = mix(gradients, g * g, 0.8);
                       const double step = std::sqrt(steps + 1e-3) * g / std::sqrt(sum + 1e-3);
                       return std::array{w - rate * step, sum, mix(steps, step * step, 0.8)};
                     }),
      // Gradients of the momentum's sign: a sum near zero has no certain one.
      update_case<2>("lion_update", "lion_update",
                     {kAny, off_zero({4, 6}), derived([](const Arrays& in) { return in[1]; }), kRate},
                     BetaAttrs{.beta_1 = 0.8, .beta_2 = 0.9},
                     [=](double w, double m, double g, double rate) {
                       const double direction = mix(m, g, 0.8);
                       return std::array{w - rate * (direction > 0 ? 1 : -1), mix(m, g, 0.9)};
                     }),
      ftrl_case("ftrl_update", {}),
      ftrl_case("ftrl_update_regularized",
                {.learning_rate_power = -0.7, .l1 = 0.3, .l2 = 0.1, .l2_shrinkage = 0.2, .beta = 0.4}),
      update_case<3>("lamb_direction", "lamb_direction",
                     {kAny, kPositive, kAny, within({}, 1, 2).of(wide), within({}, 1, 2).of(wide)}, betas,
                     [=](double m, double v, double g, double m_scale, double v_scale) {
                       const double new_m = mix(m, g, 0.8), new_v = mix(v, g * g, 0.9);
                       return std::array{new_m, new_v, m_scale * new_m / (std::sqrt(v_scale * new_v) + 1e-3)};
                     }),
      sparse_case("sparse_update", DType::float32, {5, 6}, indices({5}, 4), {4, 6}),
      sparse_case("sparse_update_float64", DType::float64, {2, 3, 6}, indices({2, 3}, 7, DType::int32),
                  {7, 6}),
      sparse_case("sparse_update_bfloat16", DType::bfloat16, {5, 3}, indices({5}, 4), {4, 3}),
      sparse_case("sparse_update_float16", DType::float16, {5, 2, 2}, indices({5}, 9), {9, 2, 2}),
      sparse_case("sparse_update_vector", DType::float32, {4}, indices({4}, 9), {9}),
      sparse_case("sparse_update_nothing", DType::float32, {0, 6}, indices({0}, 4), {4, 6}),
      sparse_case("sparse_update_no_width", DType::float32, {5, 0}, indices({5}, 4), {4, 0}),
      sparse_case("sparse_update_one_row", DType::float32, {70, 5},
                  given({70}, std::vector<double>(70, 2)).of(always<DType::int64>), {4, 5}),
      threads_only(sparse_case("sparse_update_threads", DType::float32, {3000, 64}, indices({3000}, 4000),
                               {4000, 64})),
  };
}

BadCalls bad_calls() {
  const Tensor w = sample({2, 3}), rate = sample({});
  const auto call = [](const Update& update, const TensorList& inputs) {
    return [=] { update.apply(inputs, std::source_location::current()); };
  };
  using enum ErrorCode;
  return {
      {"sgd_update_shapes",
       shape_mismatch,
       {"sgd_update: ", "(2, 3)", "(3, 2)"},
       call(sgd_update(), {w, sample({3, 2}), rate})},
      {"sgd_update_rate",
       shape_mismatch,
       {"sgd_update: ", "rate", "(1,)"},
       call(sgd_update(), {w, w, sample({1})})},
      {"sgd_update_rate_dtype",
       dtype_mismatch,
       {"sgd_update: ", "rate", "float32", "float64"},
       call(sgd_update(), {w, w, sample({}, DType::float64)})},
      {"sgd_momentum_update_shapes",
       shape_mismatch,
       {"sgd_momentum_update: ", "(2, 3)", "(3,)"},
       call(momentum_update({}), {w, sample({3}), w, rate})},
      {"adam_update_shapes",
       shape_mismatch,
       {"adam_update: ", "(2, 3)", "()"},
       call(adam_update({}), {w, w, rate, w, rate})},
      {"adam_update_none",
       invalid_argument,
       {"adam_update: ", "none"},
       call(adam_update({}), {w, w, w, Tensor(), rate})},
      {"adam_update_slots",
       invalid_argument,
       {"adam_update: ", "takes 3 slots", "received 2"},
       call(adam_update({.amsgrad = true}), {w, w, w, w, rate})},
      {"rmsprop_update_slots",
       invalid_argument,
       {"rmsprop_update: ", "takes 1 slots", "received 2"},
       call(rmsprop_update({}), {w, w, w, w, rate})},
      {"sparse_update_row",
       invalid_argument,
       {"scatter_add: ", "position", "is 7", "4 rows"},
       [] {
         const OpCase c = sparse_case("", DType::float32, {1, 6}, indices({1}, 4), {4, 6});
         const Tensor table = sample({4, 6});
         emit(*find_op("sparse_update"),
              TensorList{sample({1, 6}), Tensor::from(std::vector<int64_t>{7}, {1}), table, table, table,
                         sample({})},
              c.attrs, std::source_location::current());
       }},
      {"sparse_update_of_booleans",
       dtype_mismatch,
       {"sparse_update: takes numbers"},
       [] {
         const elementwise::ScalarProgram keeps = {
             .inputs = {DType::boolean},
             .instructions = {{.op = elementwise::Opcode::input, .dtype = DType::boolean, .index = 0}},
             .outputs = {0}};
         emit(*find_op("sparse_update"),
              TensorList{Tensor::full(DType::boolean, {1, 6}, 1), Tensor::from(std::vector<int64_t>{1}, {1})},
              SparseUpdateAttrs{.program = keeps, .gradient = 0, .rows = 4}, std::source_location::current());
       }},
      {"sparse_update_shapes",
       shape_mismatch,
       {"sparse_update: ", "like the table (4, 6)", "(3, 6)"},
       [] {
         const OpCase c = sparse_case("", DType::float32, {1, 6}, indices({1}, 4), {4, 6});
         const Tensor table = sample({4, 6});
         emit(*find_op("sparse_update"),
              TensorList{sample({1, 6}), Tensor::from(std::vector<int64_t>{1}, {1}), sample({3, 6}), table,
                         table, sample({})},
              c.attrs, std::source_location::current());
       }},
  };
}

}  // namespace

const Family kUpdateFamily{cases, bad_calls};

}  // namespace lockstep::testing
