#include "lockstep/autodiff/gradient_tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <thread>

#include "base/error_of_test.h"
#include "graph/emit.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

using Doubles = std::vector<double>;

// float64: gradients are compared with closed forms to the last digits.
Tensor vector(const Doubles& values) { return Tensor::from(values, {static_cast<int64_t>(values.size())}); }
Tensor matrix(int64_t rows, int64_t columns, const Doubles& values) {
  return Tensor::from(values, {rows, columns});
}
Tensor number(double value) { return Tensor::scalar(value); }
Doubles read(const Tensor& tensor) { return tensor.to_vector<double>(); }

Doubles each(const Doubles& values, double (*f)(double)) {
  Doubles result;
  for (const double v : values) result.push_back(f(v));
  return result;
}

// Every test ends with no recorder on its thread.
class Tape : public testing::Test {
 protected:
  void TearDown() override { EXPECT_FALSE(has_recorders()); }
};

// --- closed forms ------------------------------------------------------------------------------------------

TEST_F(Tape, ElementwiseFunctions) {
  const Doubles x = {0.3, 1.1, 2.5};
  const auto gradient = [&](Tensor (*f)(const TensorArg&)) {
    GradientTape tape;
    const Tensor input = vector(x);
    tape.watch(input);
    return read(tape.gradient(f(input), input));
  };
  constexpr double kClose = 1e-13;
  EXPECT_THAT(gradient(square), Pointwise(DoubleNear(kClose), each(x, [](double v) { return 2 * v; })));
  EXPECT_THAT(gradient(exp), Pointwise(DoubleNear(kClose), each(x, [](double v) { return std::exp(v); })));
  EXPECT_THAT(gradient(log), Pointwise(DoubleNear(kClose), each(x, [](double v) { return 1 / v; })));
  EXPECT_THAT(gradient(sqrt),
              Pointwise(DoubleNear(kClose), each(x, [](double v) { return 0.5 / std::sqrt(v); })));
  EXPECT_THAT(gradient(sin), Pointwise(DoubleNear(kClose), each(x, [](double v) { return std::cos(v); })));
  EXPECT_THAT(gradient(tanh), Pointwise(DoubleNear(kClose),
                                        each(x, [](double v) { return 1 - std::tanh(v) * std::tanh(v); })));
  EXPECT_THAT(gradient(reciprocal),
              Pointwise(DoubleNear(kClose), each(x, [](double v) { return -1 / (v * v); })));
}

TEST_F(Tape, ExpressionsOfSeveralSources) {
  const Tensor x = number(3), y = number(5);
  GradientTape tape;
  tape.watch(x);
  tape.watch(y);
  const Tensor z = x * x * y + y / x;  // 2xy - y/x^2, x^2 + 1/x
  const std::vector<GradientSource> sources = {x, y};
  const TensorList gradients = tape.gradient(z, sources);
  EXPECT_DOUBLE_EQ(gradients[0].item<double>(), 30 - 5.0 / 9);
  EXPECT_DOUBLE_EQ(gradients[1].item<double>(), 9 + 1.0 / 3);
}

TEST_F(Tape, MatricesAndBroadcastOperands) {
  const Tensor a = matrix(2, 3, {1, 2, 3, 4, 5, 6}), b = matrix(3, 2, {1, 0, 2, 1, 0, 3}),
               bias = vector({10, 20});
  GradientTape tape;
  for (const Tensor& t : {a, b, bias}) tape.watch(t);
  const std::vector<GradientSource> sources = {a, b, bias};
  const TensorList gradients = tape.gradient(matmul(a, b) + bias, sources);
  EXPECT_THAT(read(gradients[0]), ElementsAre(1, 3, 3, 1, 3, 3));
  EXPECT_THAT(read(gradients[1]), ElementsAre(5, 5, 7, 7, 9, 9));
  EXPECT_THAT(read(gradients[2]), ElementsAre(2, 2)) << "summed over the broadcast rows";
}

TEST_F(Tape, OfANonScalarIsTheGradientOfItsSum) {
  const Tensor x = vector({1, 2, 3});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = square(x);
  EXPECT_EQ(read(tape.gradient(y, x)), read(tape.gradient(reduce_sum(y), x)));
}

TEST_F(Tape, OutputGradientWeighsTheTarget) {
  const Tensor x = vector({1, 2, 3});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = square(x);
  EXPECT_THAT(read(tape.gradient(y, x, {.output_gradient = vector({1, 10, 0})})), ElementsAre(2, 40, 0));
  const Error error = error_of([&] { tape.gradient(y, x, {.output_gradient = number(1)}); });
  EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("float64()"), HasSubstr("float64(3,)")));
}

TEST_F(Tape, ATensorUsedManyTimesCollectsAllGradients) {
  const Tensor x = number(2);
  GradientTape tape;
  tape.watch(x);
  Tensor y = x;
  for (int i = 0; i < 5; ++i) y = y * x;  // x^6
  EXPECT_DOUBLE_EQ(tape.gradient(y, x).item<double>(), 6 * 32);
}

TEST_F(Tape, OfATensorWithRespectToItselfIsOne) {
  const Tensor x = vector({4, 5});
  GradientTape tape;
  tape.watch(x);
  EXPECT_THAT(read(tape.gradient(x, x)), ElementsAre(1, 1));
}

TEST_F(Tape, WithRespectToAnIntermediateTensor) {
  const Tensor x = number(3);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = x * x;
  const Tensor z = y * y;
  EXPECT_DOUBLE_EQ(tape.gradient(z, y).item<double>(), 18);
  EXPECT_DOUBLE_EQ(tape.gradient(z, x).item<double>(), 108);
  EXPECT_FALSE(tape.gradient(x, y).defined()) << "y comes after x";
}

TEST_F(Tape, ThroughOpsWithSeveralResults) {
  const Tensor x = vector({1, 2, 3, 4});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const TensorList halves = split(x, 2, 0);
  EXPECT_THAT(read(tape.gradient(halves[0] * halves[1], x)), ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(read(tape.gradient(square(halves[1]), x)), ElementsAre(0, 0, 6, 8))
      << "the other half has no gradient";
}

// --- what is watched ---------------------------------------------------------------------------------------

TEST_F(Tape, OpsOfNothingWatchedAreNotRecorded) {
  const Tensor x = number(2), y = number(3);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  EXPECT_FALSE(tape.gradient(y * y, y).defined());
  EXPECT_DOUBLE_EQ(tape.gradient(x * (y * y), x).item<double>(), 9);
}

TEST_F(Tape, WhatHappenedBeforeTheWatchDoesNotCount) {
  const Tensor x = number(2);
  GradientTape tape;
  const Tensor early = x * x;
  tape.watch(x);
  EXPECT_DOUBLE_EQ(tape.gradient(early * x, x).item<double>(), 4);
}

TEST_F(Tape, TrainableVariablesAreWatchedOthersAreNot) {
  const Variable w(number(2), {.name = "w"}), fixed(number(3), {.name = "fixed", .trainable = false});
  GradientTape tape;
  const TensorList gradients = tape.gradient(w * fixed, std::vector<Variable>{w, fixed});
  EXPECT_DOUBLE_EQ(gradients[0].item<double>(), 3);
  EXPECT_FALSE(gradients[1].defined());
}

TEST_F(Tape, AVariableThatIsNotTrainableCanBeWatched) {
  const Variable fixed(number(3), {.trainable = false});
  GradientTape tape;
  tape.watch(fixed);
  EXPECT_DOUBLE_EQ(tape.gradient(square(fixed), fixed).item<double>(), 6);
}

TEST_F(Tape, WatchesOnlyWhatItIsToldWhereAsked) {
  const Variable a(number(2)), b(number(3));
  GradientTape tape({.watch_accessed_variables = false});
  tape.watch(a);
  const TensorList gradients = tape.gradient(a * b, std::vector<Variable>{a, b});
  EXPECT_DOUBLE_EQ(gradients[0].item<double>(), 3);
  EXPECT_FALSE(gradients[1].defined());
}

TEST_F(Tape, UnconnectedSourcesAreNoneOrZero) {
  const Variable used(number(2)), unused(vector({1, 2, 3}));
  const Tensor stranger = vector({1, 2});
  GradientTape tape({.persistent = true});
  const Tensor y = square(used);
  unused.value();
  EXPECT_FALSE(tape.gradient(y, unused).defined());
  EXPECT_FALSE(tape.gradient(y, stranger).defined());
  const GradientOptions zero{.unconnected_gradients = UnconnectedGradients::zero};
  const Tensor zeros = tape.gradient(y, unused, zero);
  EXPECT_EQ(zeros.spec(), (TensorSpec{DType::float64, {3}}));
  EXPECT_THAT(read(zeros), Each(0));
  EXPECT_THAT(read(tape.gradient(y, stranger, zero)), ElementsAre(0, 0));
  EXPECT_DOUBLE_EQ(tape.gradient(y, used, zero).item<double>(), 4);
}

// --- variables that change ---------------------------------------------------------------------------------

TEST_F(Tape, BothReadsOfAVariableCountThoughItWasAssignedBetween) {
  const Variable v(number(3));
  GradientTape tape;
  const Tensor first = v.value();
  v.assign(number(5));
  const Tensor loss = first * first * v;  // 2 * 3 * 5 + 9
  EXPECT_DOUBLE_EQ(loss.item<double>(), 45);
  EXPECT_DOUBLE_EQ(tape.gradient(loss, v).item<double>(), 39);
}

// An assignment is not an op: what was assigned is a new value, whatever it was computed from.
TEST_F(Tape, GradientsDoNotFlowThroughAssignments) {
  const Variable v(number(3));
  const Tensor x = number(4);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  v.assign(v * x);
  const Tensor loss = square(v);  // v is 12 now
  EXPECT_DOUBLE_EQ(loss.item<double>(), 144);
  EXPECT_DOUBLE_EQ(tape.gradient(loss, v).item<double>(), 24);
  EXPECT_FALSE(tape.gradient(loss, x).defined());
}

TEST_F(Tape, GradientsDoNotFlowThroughAssignmentsInAFunction) {
  const Variable v(number(3));
  auto f = function([&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    v.assign(v * x);
    return tape.gradient(square(v), v);
  });
  EXPECT_DOUBLE_EQ(f(number(4)).item<double>(), 24);
}

// --- persistence, stopping, resetting ----------------------------------------------------------------------

TEST_F(Tape, IsUsedOnce) {
  const Variable w(number(2));
  GradientTape tape;
  const Tensor y = square(w);
  tape.gradient(y, w);
  const uint32_t line = std::source_location::current().line() + 1;
  const Error error = error_of([&] { tape.gradient(y, w); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("second time"), HasSubstr("persistent = true")));
  EXPECT_EQ(error.where().line(), line);
}

TEST_F(Tape, APersistentTapeAnswersAgainAndGoesOnRecording) {
  const Variable w(number(2));
  GradientTape tape({.persistent = true});
  const Tensor y = square(w);
  EXPECT_DOUBLE_EQ(tape.gradient(y, w).item<double>(), 4);
  EXPECT_DOUBLE_EQ(tape.gradient(y, w).item<double>(), 4);
  EXPECT_DOUBLE_EQ(tape.gradient(y * w, w).item<double>(), 12);
}

TEST_F(Tape, StopsRecordingAndKeepsWhatItHas) {
  const Variable w(number(2));
  for (const bool persistent : {false, true}) {
    GradientTape tape({.persistent = persistent});
    const Tensor y = square(w);
    tape.stop_recording();
    EXPECT_FALSE(has_recorders());
    const Tensor z = y * y;
    if (persistent) {
      EXPECT_FALSE(tape.gradient(z, w).defined());
    }
    EXPECT_DOUBLE_EQ(tape.gradient(y, w).item<double>(), 4);
    EXPECT_FALSE(has_recorders()) << "asking does not start it again";
  }
}

TEST_F(Tape, ResetForgetsAndGoesOn) {
  const Variable w(number(2));
  GradientTape tape({.persistent = true});
  const Tensor y = square(w);
  tape.reset();
  EXPECT_FALSE(tape.gradient(y, w).defined());
  EXPECT_DOUBLE_EQ(tape.gradient(w * w * w, w).item<double>(), 12);
}

TEST_F(Tape, LeavesNoRecorderBehind) {
  const Variable w(number(2));
  { const GradientTape unused; }
  EXPECT_FALSE(has_recorders());
  {
    GradientTape used;
    used.gradient(square(w), w);
    EXPECT_FALSE(has_recorders()) << "a tape that was used is done";
  }
  try {
    const GradientTape tape;
    throw 1;
  } catch (int) {
  }
  EXPECT_FALSE(has_recorders());
  // Not the last one first.
  auto outer = std::make_optional<GradientTape>();
  auto inner = std::make_optional<GradientTape>(GradientTapeOptions{.persistent = true});
  outer.reset();
  EXPECT_TRUE(has_recorders());
  EXPECT_DOUBLE_EQ(inner->gradient(square(w), w).item<double>(), 4);
  inner.reset();
  EXPECT_FALSE(has_recorders());
}

TEST_F(Tape, DestroyedWhereRecordingIsSuspendedItIsGoneForGood) {
  const Variable w(number(2));
  auto tape = std::make_optional<GradientTape>();
  {
    const RecorderPause pause;
    EXPECT_FALSE(has_recorders());
    tape.reset();
  }
  EXPECT_FALSE(has_recorders());
  EXPECT_DOUBLE_EQ(square(w).item<double>(), 4);
}

TEST_F(Tape, APersistentTapeRecordsOnAfterAFailedGradient) {
  const Variable w(number(2));
  GradientTape tape({.persistent = true});
  const Tensor y = square(w);
  EXPECT_THROW(tape.gradient(y, w, {.output_gradient = vector({1, 2})}), Error);
  EXPECT_DOUBLE_EQ(tape.gradient(y * w, w).item<double>(), 12);
}

TEST_F(Tape, RecordsItsOwnThreadAlone) {
  const Variable w(number(2));
  GradientTape tape;
  Tensor elsewhere;
  std::thread([&] { elsewhere = square(w); }).join();
  EXPECT_FALSE(tape.gradient(elsewhere, w).defined());
}

// --- cutting and replacing gradients -----------------------------------------------------------------------

TEST_F(Tape, StopGradientCutsOnePath) {
  const Tensor x = number(3);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  EXPECT_DOUBLE_EQ(tape.gradient(x * stop_gradient(x), x).item<double>(), 3);
  EXPECT_FALSE(tape.gradient(stop_gradient(x * x), x).defined());
}

TensorList clipped_cube(std::span<const Tensor> inputs) {
  return custom_gradient(
      [](std::span<const Tensor> in) {
        const Tensor& x = in[0];
        return CustomGradient{.outputs = {x * x * x}, .grad = [x](std::span<const Tensor> dy) -> TensorList {
                                return {dy[0] * x * 100.0};
                              }};
      },
      inputs);
}

TEST_F(Tape, CustomGradientReplacesTheRealOne) {
  const Tensor x = number(2);
  GradientTape tape;
  tape.watch(x);
  const Tensor y = clipped_cube({&x, 1})[0];
  EXPECT_DOUBLE_EQ(y.item<double>(), 8);
  EXPECT_DOUBLE_EQ(tape.gradient(y * 2.0, x).item<double>(), 2 * 200);
}

TEST_F(Tape, CustomGradientInsideAFunction) {
  auto f = function([](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const Tensor y = clipped_cube({&x, 1})[0];
    return std::pair(y, tape.gradient(y, x));
  });
  const auto [y, dy] = f(number(2));
  EXPECT_DOUBLE_EQ(y.item<double>(), 8);
  EXPECT_DOUBLE_EQ(dy.item<double>(), 200);
}

TEST_F(Tape, CustomGradientIsDifferentiatedAgain) {
  const Tensor x = number(2);
  GradientTape outer;
  outer.watch(x);
  GradientTape inner;
  inner.watch(x);
  const Tensor first = inner.gradient(clipped_cube({&x, 1})[0], x);  // 100 x
  EXPECT_DOUBLE_EQ(outer.gradient(first, x).item<double>(), 100);
}

TEST_F(Tape, CustomGradientOfSeveralInputsAndOutputs) {
  const Tensor x = number(2), y = number(3);
  GradientTape tape({.persistent = true});
  tape.watch(x);
  tape.watch(y);
  const TensorList inputs = {x, y};
  const TensorList outputs = custom_gradient(
      [](std::span<const Tensor> in) {
        // The second output is an input as it is.
        return CustomGradient{.outputs = {in[0] * in[1], in[1]},
                              .grad = [](std::span<const Tensor> d) -> TensorList {
                                return {d[0] * 7.0, d[1] * 11.0};
                              }};
      },
      inputs);
  EXPECT_DOUBLE_EQ(outputs[0].item<double>(), 6);
  EXPECT_DOUBLE_EQ(outputs[1].item<double>(), 3);
  const std::vector<GradientSource> sources = {x, y};
  const TensorList gradients = tape.gradient(outputs[0] + 2.0 * outputs[1], sources);
  EXPECT_DOUBLE_EQ(gradients[0].item<double>(), 7);
  EXPECT_DOUBLE_EQ(gradients[1].item<double>(), 22);
  // Only one output is used: the other's gradient arrives as zeros.
  EXPECT_DOUBLE_EQ(tape.gradient(outputs[0], y).item<double>(), 0);
}

TEST_F(Tape, CustomGradientMustAnswerForEveryInput) {
  const Tensor x = number(2);
  GradientTape tape;
  tape.watch(x);
  const TensorList y = custom_gradient(
      [](std::span<const Tensor> in) {
        return CustomGradient{.outputs = {in[0] * 2.0},
                              .grad = [](std::span<const Tensor>) { return TensorList{}; }};
      },
      {&x, 1});
  const Error error = error_of([&] { tape.gradient(y[0], x); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("custom_gradient"), HasSubstr("0 gradients for 1 inputs")));
}

TEST_F(Tape, NothingInsideACustomGradientIsRecorded) {
  const Variable w(number(5));
  const Tensor x = number(2);
  GradientTape tape;
  tape.watch(x);
  const TensorList y = custom_gradient(
      [&](std::span<const Tensor> in) {
        return CustomGradient{.outputs = {in[0] * w},
                              .grad = [](std::span<const Tensor> d) -> TensorList { return {d[0]}; }};
      },
      {&x, 1});
  EXPECT_FALSE(tape.gradient(y[0], w).defined());
}

// --- higher derivatives ------------------------------------------------------------------------------------

TEST_F(Tape, NestedTapesGiveHigherDerivatives) {
  const Tensor x = number(1.5);
  GradientTape third;
  third.watch(x);
  GradientTape second;
  second.watch(x);
  GradientTape first;
  first.watch(x);
  const Tensor y = x * x * x * x;
  const Tensor dy = first.gradient(y, x);
  const Tensor ddy = second.gradient(dy, x);
  const Tensor dddy = third.gradient(ddy, x);
  EXPECT_DOUBLE_EQ(dy.item<double>(), 4 * 1.5 * 1.5 * 1.5);
  EXPECT_DOUBLE_EQ(ddy.item<double>(), 12 * 1.5 * 1.5);
  EXPECT_DOUBLE_EQ(dddy.item<double>(), 24 * 1.5);
}

TEST_F(Tape, SecondDerivativesThroughOps) {
  const Doubles x = {0.4, -0.7, 1.3};
  const auto second = [&](const std::function<Tensor(const Tensor&)>& f) {
    const Tensor input = vector(x);
    GradientTape outer;
    outer.watch(input);
    GradientTape inner;
    inner.watch(input);
    return read(outer.gradient(inner.gradient(f(input), input), input));
  };
  constexpr double kClose = 1e-12;
  EXPECT_THAT(second([](const Tensor& t) { return sin(t); }),
              Pointwise(DoubleNear(kClose), each(x, [](double v) { return -std::sin(v); })));
  EXPECT_THAT(second([](const Tensor& t) { return exp(t * 2.0); }),
              Pointwise(DoubleNear(kClose), each(x, [](double v) { return 4 * std::exp(2 * v); })));
  EXPECT_THAT(second([](const Tensor& t) { return tanh(t); }),
              Pointwise(DoubleNear(kClose), each(x, [](double v) {
                          return -2 * std::tanh(v) * (1 - std::tanh(v) * std::tanh(v));
                        })));
  EXPECT_THAT(second([](const Tensor& t) { return reciprocal(t); }),
              Pointwise(DoubleNear(1e-10), each(x, [](double v) { return 2 / (v * v * v); })));
}

// A gradient penalty: d/dw of |d/dx (w . x)^2|^2 with x and w vectors.
TEST_F(Tape, AGradientPenalty) {
  const Variable w(vector({0.5, -1}));
  const Tensor x = vector({2, 3});
  GradientTape outer;
  GradientTape inner;
  inner.watch(x);
  const Tensor y = square(reduce_sum(w * x));           // (w.x)^2, w.x = -2
  const Tensor gradient = inner.gradient(y, x);         // 2 (w.x) w
  const Tensor penalty = reduce_sum(square(gradient));  // 4 (w.x)^2 |w|^2
  const Tensor result = outer.gradient(penalty, w);     // 8 (w.x) |w|^2 x + 8 (w.x)^2 w
  EXPECT_THAT(read(result), Pointwise(DoubleNear(1e-12), Doubles{8 * -2 * 1.25 * 2 + 8 * 4 * 0.5,
                                                                 8 * -2 * 1.25 * 3 + 8 * 4 * -1.0}));
}

TEST_F(Tape, SoftmaxHasSecondDerivatives) {
  const Tensor x = vector({0.2, -0.3, 0.9});
  const auto value = [&](const Tensor& t) { return square(softmax(t)); };
  const auto gradient_at = [&](const Tensor& t) {
    GradientTape tape;
    tape.watch(t);
    return read(tape.gradient(value(t), t));
  };
  GradientTape outer;
  outer.watch(x);
  GradientTape inner;
  inner.watch(x);
  const Tensor first = inner.gradient(value(x), x);
  const Doubles second = read(outer.gradient(first, x));  // d/dx_j of the sum of the first gradients
  for (size_t j = 0; j < 3; ++j) {
    Doubles up = read(x), down = up;
    constexpr double kStep = 1e-5;
    up[j] += kStep;
    down[j] -= kStep;
    const Doubles a = gradient_at(vector(up)), b = gradient_at(vector(down));
    double estimate = 0;
    for (size_t i = 0; i < 3; ++i) estimate += (a[i] - b[i]) / (2 * kStep);
    EXPECT_NEAR(second[j], estimate, 1e-9);
  }
}

// --- jacobians ---------------------------------------------------------------------------------------------

TEST_F(Tape, JacobianOfALinearMapIsItsMatrix) {
  const Tensor a = matrix(3, 2, {1, 2, 3, 4, 5, 6}), x = matrix(2, 1, {0.5, 1.5});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor jacobian = tape.jacobian(matmul(a, x), x);
  EXPECT_EQ(jacobian.shape(), Shape({3, 1, 2, 1}));
  EXPECT_EQ(read(jacobian), read(a));
}

TEST_F(Tape, JacobianOfElementwiseFunctionsIsDiagonal) {
  const Variable x(vector({1, 2, 3}));
  GradientTape tape({.persistent = true});
  const Tensor y = square(x);
  EXPECT_THAT(read(tape.jacobian(y, x)), ElementsAre(2, 0, 0, 0, 4, 0, 0, 0, 6));
  EXPECT_THAT(read(tape.jacobian(reduce_sum(y), x)), ElementsAre(2, 4, 6)) << "of a scalar: the gradient";
  EXPECT_EQ(tape.jacobian(reduce_sum(y), x).shape(), Shape({3}));
}

TEST_F(Tape, JacobianIsOneUseOfATapeThatIsNotPersistent) {
  const Tensor x = vector({1, 2, 3});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = square(x);
  EXPECT_THAT(read(tape.jacobian(y, x)), ElementsAre(2, 0, 0, 0, 4, 0, 0, 0, 6));
  EXPECT_THROW(tape.gradient(y, x), Error);
}

TEST_F(Tape, BatchJacobianHasAMatrixForEveryExample) {
  const Tensor x = matrix(3, 2, {1, 2, 3, 4, 5, 6}), a = matrix(2, 2, {1, 2, 3, 4});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = square(matmul(x, a));
  const Tensor jacobians = tape.batch_jacobian(y, x);
  EXPECT_EQ(jacobians.shape(), Shape({3, 2, 2}));
  // 2 (x a)_i a_ji: of the first example x a is (7, 10).
  EXPECT_THAT(read(slice(jacobians, {0, 0, 0}, {1, 2, 2})), ElementsAre(14, 42, 40, 80));
  GradientTape other;
  EXPECT_THROW(other.batch_jacobian(y, matrix(2, 2, {1, 2, 3, 4})), Error);
}

TEST_F(Tape, WhatComesBetweenPauseAndResumeIsNotRecorded) {
  const Variable w(vector({2, 3}));
  GradientTape tape({.persistent = true});
  const Tensor y = square(w);
  tape.pause();
  tape.pause();
  EXPECT_THAT(read(tape.gradient(y, w)), ElementsAre(4, 6));
  const Tensor unseen = square(w);
  tape.resume();
  tape.resume();
  const Tensor z = y * 3.0;
  EXPECT_FALSE(tape.gradient(unseen, w).defined());
  EXPECT_THAT(read(tape.gradient(z, w)), ElementsAre(12, 18));
  ASSERT_EQ(tape.watched_variables().size(), 1U);
  EXPECT_EQ(tape.watched_variables()[0].id(), w.id());
}

TEST_F(Tape, JacobianOfAnUnconnectedSourceIsZero) {
  const Tensor x = vector({1, 2}), other = vector({1, 2, 3});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor jacobian = tape.jacobian(square(x), other);
  EXPECT_EQ(jacobian.shape(), Shape({2, 3}));
  EXPECT_THAT(read(jacobian), Each(0));
}

TEST_F(Tape, JacobianInsideAFunction) {
  auto f = function([](const Tensor& x) {
    GradientTape tape({.persistent = true});
    tape.watch(x);
    return tape.jacobian(softmax(x), x);
  });
  const Tensor x = vector({0.1, 0.7, -0.4});
  const Doubles p = read(softmax(x)), j = read(f(x));
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(j[i * 3 + k], p[i] * ((i == k ? 1 : 0) - p[k]), 1e-14);
}

// --- inside functions --------------------------------------------------------------------------------------

TEST_F(Tape, InsideAFunctionIsCompiled) {
  const Variable w(vector({1, 2}));
  auto f = function([&](const Tensor& x) {
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const Tensor y = reduce_sum(square(w * x));
    return std::tuple(y, tape.gradient(y, w), tape.gradient(y, x));
  });
  for (const double scale : {1.0, 2.0}) {
    const auto [y, dw, dx] = f(vector({3 * scale, 4 * scale}));
    EXPECT_DOUBLE_EQ(y.item<double>(), (9 + 64) * scale * scale);
    EXPECT_THAT(read(dw), ElementsAre(2 * 9 * scale * scale, 2 * 2 * 16 * scale * scale));
    EXPECT_THAT(read(dx), ElementsAre(2 * 3 * scale, 2 * 4 * 4 * scale));
  }
  EXPECT_EQ(f.traces(), 1);
}

TEST_F(Tape, SecondDerivativesInsideAFunction) {
  auto f = function([](const Tensor& x) {
    GradientTape outer;
    outer.watch(x);
    GradientTape inner;
    inner.watch(x);
    return outer.gradient(inner.gradient(x * x * x, x), x);
  });
  EXPECT_DOUBLE_EQ(f(number(5)).item<double>(), 30);
}

TEST_F(Tape, AroundAFunctionSeesItsOps) {
  const Variable w(number(3));
  int calls = 0;
  auto inner = function([&](const Tensor& x) {
    ++calls;
    return x * w;
  });
  auto f = function([&](const Tensor& x) { return square(inner(x)); });
  const Tensor x = number(2);
  EXPECT_DOUBLE_EQ(f(x).item<double>(), 36);
  EXPECT_EQ(calls, 1);
  for (int i = 0; i < 2; ++i) {
    GradientTape tape;
    EXPECT_DOUBLE_EQ(tape.gradient(f(x), w).item<double>(), 24);
  }
  EXPECT_EQ(calls, 3) << "under a tape the body runs every time";
  EXPECT_EQ(f.traces(), 1);
}

TEST_F(Tape, UnconnectedZerosInsideAFunction) {
  const Variable w(vector({1, 2}));
  auto f = function([&](const Tensor& x) {
    GradientTape tape;
    return tape.gradient(square(x), w, {.unconnected_gradients = UnconnectedGradients::zero});
  });
  EXPECT_THAT(read(f(number(1))), ElementsAre(0, 0));
}

// --- wrong use ---------------------------------------------------------------------------------------------

TEST_F(Tape, IntegersHaveNoGradients) {
  const Tensor i = Tensor::from<int32_t>({1, 2}, {2});
  GradientTape tape({.persistent = true});
  const Error watched = error_of([&] { tape.watch(i); });
  EXPECT_EQ(watched.code(), ErrorCode::dtype_mismatch);
  EXPECT_THAT(watched.message(), HasSubstr("int32(2,)"));
  const Error target = error_of([&] { tape.gradient(i, i); });
  EXPECT_EQ(target.code(), ErrorCode::dtype_mismatch);
  EXPECT_THAT(target.message(), AllOf(HasSubstr("target"), HasSubstr("int32(2,)")));
  EXPECT_THROW(tape.watch(Tensor()), Error);
  EXPECT_THROW(tape.gradient(Tensor(), i), Error);
  EXPECT_THROW(tape.gradient(number(1), Tensor()), Error);
}

TEST_F(Tape, NoGradientFlowsThroughIntegers) {
  const Tensor x = vector({1.5, 2.5});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor rounded = cast(cast(x, DType::int32), DType::float64);
  EXPECT_FALSE(tape.gradient(rounded, x).defined());
  EXPECT_THAT(read(tape.gradient(rounded * x, x)), ElementsAre(1, 2));
}

TEST_F(Tape, DtypesOfGradientsAreTheirSources) {
  const Tensor x = Tensor::from<float>({1, 2}, {2});
  GradientTape tape;
  tape.watch(x);
  const Tensor gradient = tape.gradient(square(cast(x, DType::float64)), x);
  EXPECT_EQ(gradient.dtype(), DType::float32);
  EXPECT_THAT(gradient.to_vector<float>(), ElementsAre(2, 4));
}

// --- reads in another dtype --------------------------------------------------------------------------------

Tensor cast_to(const Tensor& value, DType dtype, std::source_location where) {
  return cast(TensorArg(value, where), dtype);
}

TEST_F(Tape, GradientsOfConvertedReadsHaveTheVariablesDtype) {
  const Variable w(number(3), {.autocast = true});
  const Variable plain(number(5));
  for (const bool compiled : {false, true}) {
    const auto gradients = [&] {
      const VariableReadScope scope(cast_to, DType::float32);
      EXPECT_EQ(w.value().dtype(), DType::float32);
      EXPECT_EQ(w.dtype(), DType::float64);
      EXPECT_EQ(plain.value().dtype(), DType::float64);
      {
        const VariableReadScope wider(cast_to, DType::float16);
        EXPECT_EQ(w.value().dtype(), DType::float16);
        const VariableReadScope as_kept;
        EXPECT_EQ(w.value().dtype(), DType::float64);
      }
      EXPECT_EQ(w.value().dtype(), DType::float32);
      GradientTape tape({.watch_accessed_variables = false});
      tape.watch(w);
      const Tensor y = cast(w * w, DType::float64) * plain;
      const std::vector<GradientSource> sources = {w, plain};
      return tape.gradient(y, sources, {.unconnected_gradients = UnconnectedGradients::zero});
    };
    const TensorList g = compiled ? function([&] { return gradients(); })() : gradients();
    EXPECT_EQ(g[0].dtype(), DType::float64);
    EXPECT_EQ(g[0].item<double>(), 30);
    EXPECT_EQ(g[1].item<double>(), 0);
  }
  const VariableReadScope scope(cast_to, DType::float32);
  w.assign_add(number(1));
  EXPECT_EQ(w.value().item<float>(), 4);
}

}  // namespace
}  // namespace lockstep
