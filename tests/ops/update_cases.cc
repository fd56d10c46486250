#include <array>
#include <cmath>

#include "ops/op_case.h"
#include "ops/update/update.h"

namespace lockstep::testing {
namespace {

// All inputs but the rate have the weights' shape.
std::vector<std::vector<Shape>> edges(size_t inputs) {
  std::vector<std::vector<Shape>> all;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0}, Shape{2, 0}}) {
    all.emplace_back(inputs, shape);
    all.back().back() = {};
  }
  return all;
}

std::vector<Shape> large(size_t inputs) {
  std::vector<Shape> shapes(inputs, {200, 400});
  shapes.back() = {};
  return shapes;
}

OpCase momentum_case(const std::string& name, double momentum, bool nesterov) {
  const auto step = [=](double w, double m, double gradient, double rate) {
    const double moved = momentum * m - rate * gradient;
    return std::array{nesterov ? w + momentum * moved - rate * gradient : w + moved, moved};
  };
  return {.name = name,
          .op = "sgd_momentum_update",
          .inputs = {normal({4, 6}), normal({4, 6}), normal({4, 6}), within({}, 0.01, 0.1)},
          .attrs = MomentumAttrs{momentum, nesterov},
          .reference = each(step),
          .tolerance = Tolerance::summed,
          .results = {same, same},
          .derivatives = 0,
          .edge_shapes = edges(4),
          .large = large(4)};
}

OpCases cases() {
  const auto adam = [](double w, double m, double v, double gradient, double rate) {
    const double new_m = 0.8 * m + 0.2 * gradient;
    const double new_v = 0.9 * v + 0.1 * gradient * gradient;
    return std::array{w - rate * new_m / (std::sqrt(new_v) + 1e-3), new_m, new_v};
  };
  return {
      {.name = "sgd_update",
       .op = "sgd_update",
       .inputs = {normal({4, 6}), normal({4, 6}), within({}, 0.01, 0.1)},
       .reference = each([](double w, double gradient, double rate) { return w - rate * gradient; }),
       .tolerance = Tolerance::summed,
       .derivatives = 0,
       .edge_shapes = edges(3),
       .large = large(3)},
      momentum_case("sgd_momentum_update", 0.9, false),
      momentum_case("sgd_nesterov_update", 0.9, true),
      {.name = "adam_update",
       .op = "adam_update",
       .inputs = {normal({4, 6}), normal({4, 6}), within({4, 6}, 0.1, 1), normal({4, 6}),
                  within({}, 0.01, 0.1)},
       .attrs = AdamUpdateAttrs{.beta_1 = 0.8, .beta_2 = 0.9, .epsilon = 1e-3},
       .reference = each(adam),
       .tolerance = Tolerance::summed,
       .results = {same, same, same},
       .derivatives = 0,
       .edge_shapes = edges(5),
       .large = large(5)},
  };
}

BadCalls bad_calls() {
  const Tensor w = sample({2, 3}), rate = sample({});
  const auto here = std::source_location::current();
  using enum ErrorCode;
  return {
      {"sgd_update_shapes",
       shape_mismatch,
       {"sgd_update: ", "(2, 3)", "(3, 2)"},
       [=] {
         sgd_update(w, sample({3, 2}), rate, here);
       }},
      {"sgd_update_rate",
       shape_mismatch,
       {"sgd_update: ", "rate", "(1,)"},
       [=] { sgd_update(w, w, sample({1}), here); }},
      {"sgd_momentum_update_shapes",
       shape_mismatch,
       {"sgd_momentum_update: ", "(2, 3)", "(3,)"},
       [=] { sgd_momentum_update(w, sample({3}), w, rate, {}, here); }},
      {"adam_update_shapes",
       shape_mismatch,
       {"adam_update: ", "(2, 3)", "()"},
       [=] { adam_update(w, w, rate, w, rate, {}, here); }},
      {"adam_update_none",
       invalid_argument,
       {"adam_update: ", "none"},
       [=] { adam_update(w, w, w, Tensor(), rate, {}, here); }},
  };
}

}  // namespace

const Family kUpdateFamily{cases, bad_calls};

}  // namespace lockstep::testing
