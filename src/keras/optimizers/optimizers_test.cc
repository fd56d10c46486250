#include "lockstep/keras/optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error_of_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::optimizers {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Doubles = std::vector<double>;

Tensor tensor(DType dtype, const Doubles& values) {
  const auto size = static_cast<int64_t>(values.size());
  if (dtype == DType::float64) return Tensor::from(values, {size});
  return Tensor::from(std::vector<float>(values.begin(), values.end()), {size});
}

Doubles read(const Tensor& value) {
  if (value.dtype() == DType::float64) return value.to_vector<double>();
  const auto floats = value.to_vector<float>();
  return {floats.begin(), floats.end()};
}
Doubles read(const Variable& variable) { return read(variable.value()); }

// --- Keras' formulas, in double ----------------------------------------------------------------------------

// One weight's state; `gradient` is its gradient at step t = 1, 2, ...
struct Weight {
  double w = 0, m = 0, v = 0;
};
using Formula = std::function<void(Weight&, double gradient, int t)>;

Formula adam(double rate, double beta_1, double beta_2, double epsilon) {
  return [=](Weight& s, double g, int t) {
    s.m += (g - s.m) * (1 - beta_1);
    s.v += (g * g - s.v) * (1 - beta_2);
    const double alpha = rate * std::sqrt(1 - std::pow(beta_2, t)) / (1 - std::pow(beta_1, t));
    s.w -= alpha * s.m / (std::sqrt(s.v) + epsilon);
  };
}

Formula sgd(double rate, double momentum, bool nesterov) {
  return [=](Weight& s, double g, int) {
    if (momentum == 0) {
      s.w -= rate * g;
      return;
    }
    s.m = momentum * s.m - rate * g;
    s.w += nesterov ? momentum * s.m - rate * g : s.m;
  };
}

struct Case {
  const char* name;
  std::function<Optimizer()> make;
  Formula formula;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const Case kCases[] = {
    {"adam", [] { return Adam(); }, adam(1e-3, 0.9, 0.999, 1e-7)},
    {"adam_with_options",
     [] { return Adam({.learning_rate = 0.05, .beta_1 = 0.8, .beta_2 = 0.95, .epsilon = 1e-3}); },
     adam(0.05, 0.8, 0.95, 1e-3)},
    {"sgd", [] { return SGD(); }, sgd(0.01, 0, false)},
    {"sgd_with_rate", [] { return SGD({.learning_rate = 0.3}); }, sgd(0.3, 0, false)},
    {"momentum", [] { return SGD({.learning_rate = 0.1, .momentum = 0.9}); }, sgd(0.1, 0.9, false)},
    {"nesterov", [] { return SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}); },
     sgd(0.1, 0.9, true)},
};

const Doubles kStart = {1, -2, 0.5, 0, 3};
// Different at every step, of both signs, very small and zero too.
Doubles gradient_at(int t) {
  Doubles g;
  for (size_t i = 0; i < kStart.size(); ++i)
    g.push_back(std::sin(1.7 * t + static_cast<double>(i)) * std::pow(10, -static_cast<double>(i)));
  if (t % 5 == 0) g[0] = 0;
  return g;
}

constexpr int kSteps = 20;

class Optimizers : public ::testing::TestWithParam<Case> {
 protected:
  static Doubles expected(int steps = kSteps) {
    Doubles result;
    for (size_t i = 0; i < kStart.size(); ++i) {
      Weight weight{.w = kStart[i]};
      for (int t = 1; t <= steps; ++t) GetParam().formula(weight, gradient_at(t)[i], t);
      result.push_back(weight.w);
    }
    return result;
  }

  static void expect_close(const Doubles& actual, const Doubles& wanted, double bound) {
    ASSERT_EQ(actual.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(actual[i], wanted[i], bound) << "weight " << i;
  }
};

TEST_P(Optimizers, FollowTheFormulaEagerly) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float32, kStart));
  for (int t = 1; t <= kSteps; ++t)
    optimizer.apply_gradients(TensorList{tensor(DType::float32, gradient_at(t))}, {w});
  expect_close(read(w), expected(), 3e-6);
}

TEST_P(Optimizers, FollowTheFormulaCompiled) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float32, kStart));
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  for (int t = 1; t <= kSteps; ++t) step(tensor(DType::float32, gradient_at(t)));
  expect_close(read(w), expected(), 3e-6);
  EXPECT_EQ(step.traces(), 1);
}

TEST_P(Optimizers, FollowTheFormulaInFloat64) {
  for (const bool compiled : {false, true}) {
    SCOPED_TRACE(compiled);
    Optimizer optimizer = GetParam().make();
    const Variable w(tensor(DType::float64, kStart));
    const auto body = [&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); };
    auto step = function(body);
    for (int t = 1; t <= kSteps; ++t)
      if (compiled)
        step(tensor(DType::float64, gradient_at(t)));
      else
        body(tensor(DType::float64, gradient_at(t)));
    expect_close(read(w), expected(), 1e-12);
  }
}

// The two ways share slots and counters: a step here, a step there.
TEST_P(Optimizers, EagerAndCompiledStepsMix) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float32, kStart));
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  for (int t = 1; t <= kSteps; ++t) {
    const Tensor g = tensor(DType::float32, gradient_at(t));
    if (t % 2 == 0)
      step(g);
    else
      optimizer.apply_gradients(TensorList{g}, {w});
  }
  expect_close(read(w), expected(), 3e-6);
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), kSteps);
}

TEST_P(Optimizers, IterationsCountUpdates) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float32, kStart));
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 0);
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  const Tensor g = tensor(DType::float32, gradient_at(1));
  optimizer.apply_gradients(TensorList{g}, {w});
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 1);
  step(g);
  step(g);
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 3);
}

TEST_P(Optimizers, AnUndefinedGradientLeavesItsVariableAlone) {
  Optimizer optimizer = GetParam().make();
  const Variable a(tensor(DType::float32, kStart)), b(tensor(DType::float32, kStart));
  for (int t = 1; t <= kSteps; ++t)
    optimizer.apply_gradients(TensorList{tensor(DType::float32, gradient_at(t)), Tensor()}, {a, b});
  expect_close(read(a), expected(), 3e-6);
  EXPECT_EQ(read(b), kStart);
}

TEST_P(Optimizers, NoGradientAtAllIsAnError) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float32, kStart));
  const uint32_t line = std::source_location::current().line() + 1;
  const Error error = error_of([&] { optimizer.apply_gradients(TensorList{Tensor()}, {w}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("no variable has a gradient"));
  EXPECT_EQ(error.where().line(), line);
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 0);
}

TEST_P(Optimizers, WrongGradientsAreNamed) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float32, kStart), {.name = "dense/kernel"});
  EXPECT_THAT(error_of([&] {
                optimizer.apply_gradients(TensorList{w.value(), w.value()}, {w});
              }).message(),
              HasSubstr("2 gradients for 1 variables"));
  const Error shape = error_of([&] {
    optimizer.apply_gradients(TensorList{tensor(DType::float32, {1, 2})}, {w});
  });
  EXPECT_EQ(shape.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(shape.what(),
              AllOf(HasSubstr("\"dense/kernel\""), HasSubstr("float32(2,)"), HasSubstr("float32(5,)")));
  EXPECT_THROW(optimizer.apply_gradients(TensorList{tensor(DType::float64, kStart)}, {w}), Error);
  EXPECT_EQ(read(w), kStart);
}

TEST_P(Optimizers, SeveralVariablesOfSeveralShapesAndDtypes) {
  Optimizer optimizer = GetParam().make();
  const Variable a(tensor(DType::float32, kStart)), b(tensor(DType::float64, kStart)),
      c(Tensor::scalar(2.0f));
  auto step = function([&](const Tensor& g, const Tensor& h) {
    optimizer.apply_gradients(TensorList{g, h, reduce_sum(g)}, {a, b, c});
  });
  for (int t = 1; t <= kSteps; ++t)
    step(tensor(DType::float32, gradient_at(t)), tensor(DType::float64, gradient_at(t)));
  expect_close(read(a), expected(), 3e-6);
  expect_close(read(b), expected(), 3e-6);
  EXPECT_NE(c.value().item<float>(), 2.0f);
}

TEST_P(Optimizers, CopiesShareTheirState) {
  Optimizer optimizer = GetParam().make();
  Optimizer copy = optimizer;
  const Variable w(tensor(DType::float32, kStart));
  for (int t = 1; t <= kSteps; ++t)
    (t % 2 == 0 ? optimizer : copy).apply_gradients(TensorList{tensor(DType::float32, gradient_at(t))}, {w});
  expect_close(read(w), expected(), 3e-6);
}

// A rate of 0 from the outside stops a step that was compiled with another one.
TEST_P(Optimizers, TheLearningRateChangesCompiledSteps) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float32, kStart));
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  const Tensor g = tensor(DType::float32, {1, 1, 1, 1, 1});
  step(g);
  const Doubles moved = read(w);
  EXPECT_NE(moved, kStart);
  optimizer.learning_rate().assign(Tensor::scalar(0.0f));
  if (std::string(GetParam().name) == "momentum" || std::string(GetParam().name) == "nesterov") {
    // What is in motion goes on moving: the rate enters the momentum alone.
    step(g);
    EXPECT_NE(read(w), moved);
  } else {
    step(g);
    EXPECT_EQ(read(w), moved);
  }
  optimizer.learning_rate().assign(Tensor::scalar(100.0f));
  step(g);
  EXPECT_THAT(read(w), Each(::testing::Lt(-5)));
  EXPECT_EQ(step.traces(), 1);
}

TEST_P(Optimizers, UpdatesAreNotDifferentiated) {
  Optimizer optimizer = GetParam().make();
  const Variable w(tensor(DType::float64, kStart));
  GradientTape tape({.persistent = true});
  const Tensor loss = reduce_sum(square(w));
  optimizer.apply_gradients(TensorList{tape.gradient(loss, w)}, {w});
  const Tensor after = reduce_sum(square(w));
  const Doubles now = read(w), gradient = read(tape.gradient(after, w));
  for (size_t i = 0; i < now.size(); ++i) EXPECT_DOUBLE_EQ(gradient[i], 2 * now[i]);
}

INSTANTIATE_TEST_SUITE_P(Rules, Optimizers, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// --- state -------------------------------------------------------------------------------------------------

TEST(OptimizerState, VariablesAreIterationsRateAndSlotsInOrder) {
  Optimizer optimizer = Adam();
  EXPECT_EQ(optimizer.variables().size(), 2u);
  const Variable a(Tensor::full(DType::float32, {2}, 1), {.name = "a"}),
      b(Tensor::full(DType::float64, {3}, 1), {.name = "b"});
  optimizer.apply_gradients(TensorList{a.value(), b.value()}, {a, b});
  const std::vector<Variable> all = optimizer.variables();
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].id(), optimizer.iterations().id());
  EXPECT_EQ(all[1].id(), optimizer.learning_rate().id());
  EXPECT_EQ(all[1].spec(), (TensorSpec{DType::float64, {}})) << "as wide as the widest of the variables";
  EXPECT_EQ(all[2].spec(), a.spec());
  EXPECT_EQ(all[3].spec(), a.spec());
  EXPECT_EQ(all[4].spec(), b.spec());
  EXPECT_EQ(all[5].spec(), b.spec());
  for (const Variable& variable : all) EXPECT_FALSE(variable.trainable());
  EXPECT_THAT(all[2].name(), HasSubstr("a/"));
  EXPECT_THAT(all[5].name(), HasSubstr("b/"));
}

TEST(OptimizerState, PlainSgdHasNoSlots) {
  Optimizer optimizer = SGD();
  const Variable w(Tensor::full(DType::float32, {2}, 1));
  optimizer.apply_gradients(TensorList{w.value()}, {w});
  EXPECT_EQ(optimizer.variables().size(), 2u);
  Optimizer momentum = SGD({.momentum = 0.5});
  momentum.apply_gradients(TensorList{w.value()}, {w});
  EXPECT_EQ(momentum.variables().size(), 3u);
}

TEST(OptimizerState, SlotsAreMadeOnceThoughTracedAgain) {
  Optimizer optimizer = Adam();
  const Variable w(Tensor::full(DType::float32, {2}, 1));
  auto step =
      function([&](const Tensor& x) { optimizer.apply_gradients(TensorList{w * reduce_sum(x)}, {w}); });
  step(Tensor::full(DType::float32, {3}, 1));
  step(Tensor::full(DType::float32, {4}, 1));
  EXPECT_EQ(step.traces(), 2);
  EXPECT_EQ(optimizer.variables().size(), 4u);
}

TEST(OptimizerState, SavedAndRestoredItGoesOnAsBefore) {
  const auto train = [](Optimizer& optimizer, const Variable& w, int from, int to) {
    for (int t = from; t <= to; ++t)
      optimizer.apply_gradients(TensorList{tensor(DType::float32, gradient_at(t))}, {w});
  };
  Optimizer whole = Adam({.learning_rate = 0.1});
  const Variable w(tensor(DType::float32, kStart));
  train(whole, w, 1, 5);
  std::vector<Tensor> saved;
  for (const Variable& variable : whole.variables()) saved.push_back(variable.value());
  const Tensor weights = w.value();
  train(whole, w, 6, 12);

  Optimizer restored = Adam({.learning_rate = 7});
  const Variable v(tensor(DType::float32, kStart));
  train(restored, v, 1, 1);  // so that the slots are there
  const auto variables = restored.variables();
  for (size_t i = 0; i < saved.size(); ++i) variables[i].assign(saved[i]);
  v.assign(weights);
  train(restored, v, 6, 12);
  EXPECT_EQ(read(v), read(w));
}

}  // namespace
}  // namespace lockstep::keras::optimizers
