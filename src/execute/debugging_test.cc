// print, check_numerics and assertions, op by op and compiled.
#include "lockstep/ops/debugging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::one_thread_devices;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Values = std::span<const Tensor>;

Tensor number(double value) { return Tensor::scalar(value); }

TEST(Print, PrintsAtOnceOutsideOfTraces) {
  std::ostringstream out;
  print({"x", Tensor::from<float>({1, 2.5}, {2}), 7, true, "y:", Variable(number(3))}, {.output = &out});
  EXPECT_EQ(out.str(), "x [1.  2.5] 7 true y: 3.0\n");
  ::testing::internal::CaptureStderr();
  print("plain", 1, number(2));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "plain 1 2.0\n");
}

TEST(Print, ShowsTheEndsOfLargeTensors) {
  std::ostringstream out;
  std::vector<int64_t> many(100);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i);
  const Tensor x = Tensor::from(many, {100});
  print({x}, {.output = &out});
  print({x}, {.output = &out, .summarize = 1});
  EXPECT_EQ(out.str(), "[ 0  1  2 ... 97 98 99]\n[ 0 ... 99]\n");
  out.str("");
  print({reshape(x, {10, 10})}, {.output = &out, .summarize = -1});
  EXPECT_THAT(out.str(), Not(HasSubstr("...")));
}

TEST(Print, PrintsAtEveryRunInOrder) {
  std::ostringstream out;
  const PrintOptions options{.output = &out};
  auto f = function([&](const Tensor& x) {
    print({"first", x}, options);
    const Tensor y = x * 2.0;
    scan(
        [&](Values, Values) {
          print({"loop"}, options);
          return ScanResult{};
        },
        {}, {}, {.length = 2});
    cond(
        x > 0.0,
        [&] {
          print({"positive", y}, options);
          return TensorList{};
        },
        [] { return TensorList{}; });
    print({"last", y}, options);
    return x;
  });
  f(number(1));
  EXPECT_EQ(out.str(), "first 1.0\nloop\nloop\npositive 2.0\nlast 2.0\n");
  out.str("");
  f(number(-1));
  EXPECT_EQ(out.str(), "first -1.0\nloop\nloop\nlast -2.0\n");
  EXPECT_EQ(f.traces(), 1);
}

TEST(Print, NamesTheReplica) {
  std::ostringstream out;
  auto f = function(
      [&](const Tensor& x) {
        print({"rows", x, "shared"}, {.output = &out});
        return x * 2.0;
      },
      {.replicas = {.devices = one_thread_devices(2)}});
  f(Tensor::from<float>({1, 2, 3}, {3}));
  EXPECT_THAT(out.str(), AllOf(HasSubstr("[replica 0] rows [1. 2.] shared\n"),
                               HasSubstr("[replica 1] rows [3.] shared\n")));
}

TEST(Print, IsInNobodysWay) {
  std::ostringstream out;
  auto f = function([&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const ScanResult r = scan(
        [&](Values c, Values) {
          print({"carry", c[0]}, {.output = &out});
          return ScanResult{{c[0] * x}, {}};
        },
        {x}, {}, {.length = 2});
    return tape.gradient(r.carry[0], x);
  });
  EXPECT_EQ(f(number(2)).item<double>(), 12);
  EXPECT_EQ(out.str(), "carry 2.0\ncarry 4.0\n");
}

class CheckNumerics : public ::testing::Test {
 protected:
  void SetUp() override { debugging::enable_check_numerics(); }
  void TearDown() override { debugging::disable_check_numerics(); }
};

TEST_F(CheckNumerics, NamesTheOpThatWentWrong) {
  uint32_t line = 0;
  const auto body = [&](const Tensor& x) {
    const Tensor y = x * 2.0 + 1.0;
    line = std::source_location::current().line() + 1;
    const Tensor z = log(y - 5.0);
    return exp(z) + 1.0;
  };
  const Tensor good = Tensor::from<float>({3, 4}, {2}), bad = Tensor::from<float>({3, -1}, {2});
  auto f = function(body);
  for (const bool compiled : {false, true}) {
    const auto run = [&](const Tensor& x) { return compiled ? f(x) : body(x); };
    run(good);
    const Error error = error_of([&] { run(bad); });
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("log: output 0 float32(2,) has 1 NaN and 0 Inf among 2 elements"),
                      HasSubstr("input 0 float32(2,) in [-6, 2]")));
    EXPECT_EQ(error.where().line(), line);
  }
}

TEST_F(CheckNumerics, LooksIntoBodies) {
  auto f = function([](const Tensor& x) {
    return scan(
               [](Values c, Values) {
                 return ScanResult{{square(c[0])}, {}};
               },
               {x}, {}, {.length = 20})
        .carry[0];
  });
  EXPECT_EQ(f(Tensor::scalar(1.0f)).item<float>(), 1);
  EXPECT_THAT(error_of([&] { f(Tensor::scalar(2.0f)); }).message(), HasSubstr("square: output 0"));
}

TEST_F(CheckNumerics, CompilesAnewWhenItIsSwitched) {
  auto f = function([](const Tensor& x) { return log(x) * 2.0; });
  const Tensor bad = number(0);
  EXPECT_THROW(f(bad), Error);
  debugging::disable_check_numerics();
  EXPECT_TRUE(std::isinf(f(bad).item<double>()));
  EXPECT_EQ(f.traces(), 2);
  debugging::enable_check_numerics();
  EXPECT_THROW(f(bad), Error);
  EXPECT_EQ(f.traces(), 2);
}

TEST(CheckNumericsOp, PassesFiniteValuesOn) {
  const auto body = [](const Tensor& x) {
    return debugging::check_numerics(x * 1e300 * 1e10, "too much") * 2.0;
  };
  auto f = function(body);
  for (const bool compiled : {false, true}) {
    const auto run = [&](double x) { return compiled ? f(number(x)) : body(number(x)); };
    EXPECT_EQ(run(0).item<double>(), 0);
    EXPECT_THAT(error_of([&] { run(1); }).message(), AllOf(HasSubstr("too much"), HasSubstr("1 Inf")));
  }
}

TEST(Assertions, HoldInEveryRun) {
  const auto body = [](const Tensor& x) {
    debugging::assert_equal(x, 3.0, "x is three");
    return number(1);
  };
  auto f = function(body);
  for (const bool compiled : {false, true}) {
    const auto run = [&](double x) { return compiled ? f(number(x)) : body(number(x)); };
    EXPECT_EQ(run(3).item<double>(), 1);
    EXPECT_THAT(error_of([&] { run(4); }).message(), HasSubstr("x is three (1 of 1 elements)"));
  }
}

}  // namespace
}  // namespace lockstep
