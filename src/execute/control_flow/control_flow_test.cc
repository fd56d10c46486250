#include "lockstep/compile/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/interruption.h"
#include "lockstep/device/null_device.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::one_thread_devices;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

using Doubles = std::vector<double>;
using Values = std::span<const Tensor>;

Tensor number(double value) { return Tensor::scalar(value); }
Doubles read(const Tensor& tensor) { return tensor.to_vector<double>(); }

Tensor random_tensor(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Doubles values(static_cast<size_t>(shape.size()));
  for (double& v : values) v = uniform(random);
  return Tensor::from(values, shape);
}

using Program = std::function<Tensor(Values)>;  // to a scalar

double value_of(const Program& program, const TensorList& inputs) { return program(inputs).item<double>(); }

TensorList gradients_of(const Program& program, Values inputs) {
  GradientTape tape;
  std::vector<GradientSource> sources;
  for (const Tensor& input : inputs) {
    tape.watch(input);
    sources.emplace_back(input);
  }
  return tape.gradient(program(inputs), sources, {.unconnected_gradients = UnconnectedGradients::zero});
}

// Value and gradients are the same op by op, compiled, and by finite differences.
void check(const Program& program, const TensorList& inputs) {
  FunctionCore value([&](Values in) { return TensorList{program(in)}; }, {}, std::source_location::current());
  FunctionCore gradient([&](Values in) { return gradients_of(program, in); }, {},
                        std::source_location::current());
  const auto where = std::source_location::current();
  const TensorList eager = gradients_of(program, inputs);
  for (int run = 0; run < 2; ++run) {
    EXPECT_NEAR(value.call(inputs, where)[0].item<double>(), value_of(program, inputs), 1e-12);
    const TensorList compiled = gradient.call(inputs, where);
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_THAT(read(compiled[i]), Pointwise(DoubleNear(1e-10), read(eager[i]))) << "input " << i;
  }
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Doubles expected;
    for (size_t k = 0; k < static_cast<size_t>(inputs[i].size()); ++k) {
      const auto moved = [&](double by) {
        Doubles values = read(inputs[i]);
        values[k] += by;
        TensorList changed = inputs;
        changed[i] = Tensor::from(values, inputs[i].shape());
        return value_of(program, changed);
      };
      expected.push_back((moved(kStep) - moved(-kStep)) / (2 * kStep));
    }
    EXPECT_THAT(read(eager[i]), Pointwise(DoubleNear(1e-6), expected)) << "input " << i;
  }
}

// --- cond --------------------------------------------------------------------------------------------------

TEST(Cond, TakesOneBranch) {
  auto f = function([](const Tensor& x) {
    return cond(
        x > 0.0, [&] { return x * 2.0; }, [&] { return x - 1.0; });
  });
  EXPECT_EQ(f(number(3)).item<double>(), 6);
  EXPECT_EQ(f(number(-3)).item<double>(), -4);
  EXPECT_EQ(f(number(4)).item<double>(), 8);
  EXPECT_EQ(f.traces(), 1);
}

TEST(Cond, HasTheGradientOfTheBranchThatRan) {
  const Program program = [](Values in) {
    const Tensor y = cond(
        reduce_sum(in[0]) > 0.0, [&] { return exp(in[0]) * in[1]; },
        [&] { return matmul(in[0], in[2]) * tanh(in[0]); });
    return reduce_sum(square(y));
  };
  const Tensor w = random_tensor({2, 2}, 1), v = random_tensor({2, 2}, 2);
  check(program, {Tensor::from<double>({1, 2, 3, 4}, {2, 2}), w, v});
  check(program, {Tensor::from<double>({-1, .2, -.3, -.4}, {2, 2}), w, v});
}

TEST(Cond, ReturnsWhatItWasGiven) {
  const Program program = [](Values in) {
    const TensorList y = cond(
        in[0] > 0.0,
        [&] {
          return TensorList{in[0], in[1]};
        },
        [&] {
          return TensorList{in[1], in[1]};
        });
    return y[0] * 3.0 + y[1];
  };
  check(program, {number(2), number(5)});
  check(program, {number(-2), number(5)});
}

TEST(Cond, AssignsVariablesInOneBranch) {
  for (const bool compiled : {false, true}) {
    const Variable a(number(1)), b(number(10));
    const auto body = [&](const Tensor& x) {
      a.assign_add(number(1));
      const Tensor y = cond(
          x > 0.0,
          [&] {
            a.assign(a * 2.0);
            return a * b;
          },
          [&] {
            b.assign_sub(x);
            return b.value();
          });
      return y + a;
    };
    auto f = function(body);
    const auto run = [&](double x) { return (compiled ? f(number(x)) : body(number(x))).item<double>(); };
    EXPECT_EQ(run(1), 40 + 4);
    EXPECT_EQ(read(a.value())[0], 4);
    EXPECT_EQ(run(-3), 13 + 5);
    EXPECT_EQ(read(b.value())[0], 13);
    EXPECT_EQ(read(a.value())[0], 5);
  }
}

TEST(Cond, BranchesMustAgree) {
  const auto wrong = [](auto then_fn, auto else_fn) {
    return error_of([&] {
      function([&](const Tensor& x) { return cond(x > 0.0, Branch(then_fn), Branch(else_fn)); })(number(1));
    });
  };
  const auto one = [] { return TensorList{number(1)}; };
  EXPECT_THAT(wrong(one, [] { return TensorList{}; }).message(), HasSubstr("returned 1 tensors"));
  EXPECT_EQ(wrong(one,
                  [] {
                    return TensorList{Tensor::from<double>({1, 2}, {2})};
                  })
                .code(),
            ErrorCode::shape_mismatch);
  EXPECT_EQ(wrong(one, [] { return TensorList{Tensor::scalar(1)}; }).code(), ErrorCode::dtype_mismatch);
  EXPECT_THAT(error_of([&] { cond(number(1), Branch(one), Branch(one)); }).message(),
              HasSubstr("boolean scalar"));
}

// --- while_loop --------------------------------------------------------------------------------------------

// Newton's method for the square root, until it is close.
Tensor newton(const Tensor& x, int64_t maximum) {
  return while_loop([&](Values v) { return abs(v[0] * v[0] - x) > 1e-13; },
                    [&](Values v) { return TensorList{(v[0] + x / v[0]) * 0.5}; }, {ones_like(x)},
                    {.maximum_iterations = maximum})
      .front();
}

TEST(WhileLoop, RunsAsOftenAsItMust) {
  auto f = function([](const Tensor& x) { return newton(x, -1); });
  auto bounded = function([](const Tensor& x) { return newton(x, 2); });
  for (const double x : {2.0, 1.0, 9.0, 1e4}) {
    EXPECT_NEAR(f(number(x)).item<double>(), std::sqrt(x), 1e-9 * x);
    EXPECT_EQ(bounded(number(x)).item<double>(), newton(number(x), 2).item<double>());
  }
  EXPECT_EQ(f.traces(), 1);
}

TEST(WhileLoop, HasAGradientUpToItsBound) {
  const Program program = [](Values in) {
    const TensorList out =
        while_loop([&](Values v) { return reduce_sum(v[0]) < 10.0; },
                   [&](Values v) {
                     return TensorList{v[0] + square(in[0]) * v[1], tanh(v[1] * in[1]) + v[1]};
                   },
                   {in[0], in[1]}, {.maximum_iterations = 9});
    return reduce_sum(out[0] * out[1]);
  };
  check(program, {random_tensor({3}, 1), Tensor::from<double>({.5, .7, .9}, {3})});
  check(program, {Tensor::from<double>({4, 5, 6}, {3}), Tensor::from<double>({.5, .7, .9}, {3})});
}

TEST(WhileLoop, WithoutABoundTheGradientSaysWhatToDo) {
  auto f = function([](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    return tape.gradient(newton(x, -1), x);
  });
  EXPECT_THAT(error_of([&] { f(number(2)); }).message(), HasSubstr(".maximum_iterations"));
  GradientTape tape;
  const Tensor x = number(2);
  tape.watch(x);
  EXPECT_NEAR(tape.gradient(newton(x, -1), x).item<double>(), 0.5 / std::sqrt(2.0), 1e-6);
}

// As a check of an interpreter's signals does.
TEST(WhileLoop, EndsWhereItIsInterrupted) {
  auto f = function([](const Tensor& x) {
    return while_loop([&](Values v) { return v[0] < x; }, [](Values v) { return TensorList{v[0] + 1.0}; },
                      {zeros_like(x)})
        .front();
  });
  EXPECT_EQ(f(number(10)).item<double>(), 10);
  set_interruption_check([] { throw std::runtime_error("interrupted"); });
  std::string message;
  try {
    f(number(1e15));  // years
  } catch (const std::exception& error) {
    message = error.what();
  }
  set_interruption_check(nullptr);
  EXPECT_THAT(message, HasSubstr("interrupted"));
  EXPECT_EQ(f(number(20)).item<double>(), 20) << "the function can be called again";
}

TEST(WhileLoop, CarriesVariables) {
  const Variable count(Tensor::scalar(int64_t{0}), {.trainable = false});
  auto f = function([&](const Tensor& x) {
    return while_loop(
               [&](Values v) {
                 return logical_and(v[0] < 100.0, count.value() < Tensor::scalar(int64_t{5}));
               },
               [&](Values v) {
                 count.assign_add(Tensor::scalar(int64_t{1}));
                 return TensorList{v[0] * 2.0};
               },
               {x})
        .front();
  });
  EXPECT_EQ(f(number(30)).item<double>(), 120);
  EXPECT_EQ(count.value().item<int64_t>(), 2);
  EXPECT_EQ(f(number(1)).item<double>(), 8);
  EXPECT_EQ(count.value().item<int64_t>(), 5);
}

// --- scan --------------------------------------------------------------------------------------------------

TEST(Scan, StacksResultsWhereTheSlicesStood) {
  for (const bool reverse : {false, true}) {
    const auto sums = [&](const Tensor& x) {
      const ScanResult r = scan(
          [](Values c, Values s) {
            return ScanResult{{c[0] + s[0]}, {c[0] + s[0], c[0], s[0] * 10.0}};
          },
          {number(100)}, {x}, {.reverse = reverse});
      return TensorList{r.carry[0], r.ys[0], r.ys[1], r.ys[2]};
    };
    auto f = function(sums);
    const Tensor x = Tensor::from<double>({1, 2, 3}, {3});
    for (const TensorList& r : {sums(x), f(x), f(x)}) {
      EXPECT_EQ(r[0].item<double>(), 106);
      if (reverse) {
        EXPECT_THAT(read(r[1]), ElementsAre(106, 105, 103));
        EXPECT_THAT(read(r[2]), ElementsAre(105, 103, 100));
      } else {
        EXPECT_THAT(read(r[1]), ElementsAre(101, 103, 106));
        EXPECT_THAT(read(r[2]), ElementsAre(100, 101, 103));
      }
      EXPECT_THAT(read(r[3]), ElementsAre(10, 20, 30));
    }
  }
}

ScanResult recurrent(const Tensor& x, const Tensor& w, const Tensor& u, const Tensor& b, bool reverse) {
  return scan(
      [&](Values c, Values s) {
        const Tensor h = tanh(matmul(s[0], w) + matmul(c[0], u) + b);
        return ScanResult{{h, c[1] * 0.5 + square(h)}, {h, sigmoid(c[1])}};
      },
      {zeros_like(matmul(slice(reshape(x, {-1, x.shape()[2]}), {0, 0}, {x.shape()[1], -1}), w)),
       fill({x.dtype(), {x.shape()[1], u.shape()[0]}}, 0.25)},
      {x}, {.reverse = reverse});
}

TEST(Scan, GradientsOfARecurrentNetwork) {
  for (const bool reverse : {false, true})
    check(
        [&](Values in) {
          const ScanResult r = recurrent(in[0], in[1], in[2], in[3], reverse);
          return reduce_sum(r.ys[0] * r.ys[1]) + reduce_sum(square(r.carry[1])) + reduce_sum(r.carry[0]);
        },
        {random_tensor({4, 2, 3}, 1), random_tensor({3, 5}, 2), random_tensor({5, 5}, 3),
         random_tensor({5}, 4)});
}

TEST(Scan, GradientsWhereNothingOrOnlyOneResultIsUsed) {
  const auto use = [](const std::function<Tensor(const ScanResult&)>& of) {
    check(
        [&](Values in) {
          return of(scan(
              [&](Values c, Values s) {
                return ScanResult{{c[0] * s[0] + in[2], c[1] + 1.0}, {c[0] + c[1], in[2] * 2.0}};
              },
              {in[0], in[0]}, {in[1]}));
        },
        {number(.5), Tensor::from<double>({.1, .2, .3}, {3}), number(.7)});
  };
  use([](const ScanResult& r) { return r.carry[0]; });
  use([](const ScanResult& r) { return r.carry[1]; });
  use([](const ScanResult& r) { return reduce_sum(r.ys[0]); });
  use([](const ScanResult& r) { return reduce_sum(r.ys[1]) + r.carry[0] * 0.0; });
}

TEST(Scan, LoopsAndBranchesNest) {
  check(
      [](Values in) {
        const ScanResult outer = scan(
            [&](Values c, Values s) {
              const ScanResult inner = scan(
                  [&](Values d, Values t) {
                    const Tensor next = cond(
                        t[0] > 0.0, [&] { return tanh(d[0] * t[0] + s[0]); },
                        [&] { return d[0] * in[1] + square(c[0]); });
                    return ScanResult{{next}, {next * c[0]}};
                  },
                  {c[0]}, {in[2]});
              return ScanResult{{inner.carry[0] + s[0]}, {reduce_sum(inner.ys[0])}};
            },
            {number(.3)}, {in[0]});
        return reduce_sum(outer.ys[0]) + outer.carry[0];
      },
      {Tensor::from<double>({.1, .2, .3}, {3}), number(.7), Tensor::from<double>({.5, -.4, .3, -.2}, {4})});
}

TEST(Scan, SecondDerivatives) {
  const auto f = [](const Tensor& x, const Tensor& w) {
    return scan(
        [&](Values c, Values s) {
          return ScanResult{{sin(c[0] * w + s[0])}, {c[0] * c[0]}};
        },
        {number(.5)}, {x});
  };
  const Program first = [&](Values in) {
    GradientTape tape;
    tape.watch(in[0]);
    tape.watch(in[1]);
    const ScanResult r = f(in[0], in[1]);
    const std::vector<GradientSource> sources = {in[0], in[1]};
    const TensorList g = tape.gradient(r.carry[0] + reduce_sum(r.ys[0]), sources);
    return reduce_sum(square(g[0])) + g[1];
  };
  check(first, {Tensor::from<double>({.1, .2, .3, .4}, {4}), number(.8)});
}

TEST(Scan, VariablesInsideHaveGradientsAndCanBeAssigned) {
  for (const bool compiled : {false, true}) {
    const Variable w(number(2), {.name = "w"});
    const Variable seen(number(0), {.name = "seen", .trainable = false});
    const auto body = [&](const Tensor& x) {
      GradientTape tape;
      const ScanResult r = scan(
          [&](Values c, Values s) {
            seen.assign_add(s[0]);
            return ScanResult{{c[0] * w + s[0]}, {seen.value()}};
          },
          {number(1)}, {x});
      return TensorList{r.carry[0], r.ys[0], tape.gradient(r.carry[0], w)};
    };
    auto f = function(body);
    const Tensor x = Tensor::from<double>({3, 4}, {2});
    for (int run = 0; run < 2; ++run) {
      const TensorList r = compiled ? f(x) : body(x);
      EXPECT_EQ(r[0].item<double>(), (1 * 2 + 3) * 2 + 4);
      EXPECT_THAT(read(r[1]), ElementsAre(run * 7 + 3, run * 7 + 7));
      EXPECT_EQ(r[2].item<double>(), 5 + 2);
    }
  }
}

TEST(Scan, TrainsInsideALoop) {
  // A whole gradient step is a body: several steps in one program.
  for (const bool compiled : {false, true}) {
    const Variable w(number(1), {.name = "w"});
    const auto steps = [&](const Tensor& x) {
      return scan(
                 [&](Values, Values s) {
                   GradientTape tape;
                   const Tensor loss = square(w * s[0] - 6.0);
                   w.assign_sub(tape.gradient(loss, w) * 0.05);
                   return ScanResult{{}, {loss}};
                 },
                 {}, {x})
          .ys[0];
    };
    auto f = function(steps);
    const Tensor x = Tensor::from<double>({2, 2, 2}, {3});
    const Tensor losses = compiled ? f(x) : steps(x);
    EXPECT_THAT(read(losses), Pointwise(DoubleNear(1e-12), Doubles{16, 16 * .36, 16 * .36 * .36}));
    EXPECT_NEAR(w.value().item<double>(), 3 - 2 * .6 * .6 * .6, 1e-12);
  }
}

TEST(Scan, WorksOnReplicas) {
  const Variable w(random_tensor({3, 3}, 5), {.name = "w"});
  const auto step = [&](const Tensor& x) {  // (batch, time, 3)
    GradientTape tape;
    const Tensor time_major = transpose(x, {1, 0, 2});
    const ScanResult r = scan(
        [&](Values c, Values s) {
          const Tensor h = tanh(matmul(c[0], w) + s[0]);
          return ScanResult{{h},
                            {cond(
                                reduce_sum(w) > 0.0, [&] { return h; }, [&] { return h * 2.0; })}};
        },
        {fill({DType::float64, {x.shape()[0], 3}}, 0)}, {time_major});
    const Tensor loss = reduce_sum(square(r.ys[0])) * (1.0 / static_cast<double>(global_batch_size(x)));
    return TensorList{all_reduce_sum(loss), all_reduce_sum(tape.gradient(loss, w)), r.carry[0]};
  };
  const Tensor x = random_tensor({5, 4, 3}, 6);
  const TensorList expected = step(x);
  for (const ReplicaOptions& replicas :
       {ReplicaOptions{}, ReplicaOptions{.devices = one_thread_devices(1)},
        ReplicaOptions{.devices = one_thread_devices(2)},
        ReplicaOptions{.devices = one_thread_devices(2), .reproducible = true}}) {
    auto f = function(step, {.replicas = replicas});
    for (int run = 0; run < 2; ++run) {
      const TensorList r = f(x);
      for (size_t i = 0; i < r.size(); ++i)
        EXPECT_THAT(read(r[i]), Pointwise(DoubleNear(1e-12), read(expected[i])));
    }
  }
}

TEST(Scan, ReplicasCannotMeetInside) {
  auto f = function(
      [](const Tensor& x) {
        return scan(
                   [](Values c, Values) {
                     return ScanResult{{all_reduce_sum(c[0])}, {}};
                   },
                   {x}, {}, {.length = 2})
            .carry[0];
      },
      {.replicas = {.devices = one_thread_devices(2)}});
  EXPECT_THAT(error_of([&] { f(random_tensor({4}, 1)); }).message(),
              AllOf(HasSubstr("all_reduce_sum"), HasSubstr("outside")));
}

TEST(Scan, EveryIterationDrawsOtherNumbers) {
  random::set_seed(7);
  auto f = function([](const Tensor& x) {
    const ScanResult r = scan(
        [&](Values, Values) {
          const ScanResult inner = scan(
              [&](Values, Values) {
                return ScanResult{{}, {random::uniform({2}, {.dtype = DType::float64})}};
              },
              {}, {}, {.length = 3});
          return ScanResult{{}, {inner.ys[0], random::uniform({2}, {.dtype = DType::float64})}};
        },
        {}, {}, {.length = 4});
    return TensorList{r.ys[0], r.ys[1] + x};
  });
  std::vector<double> all;
  for (int run = 0; run < 2; ++run)
    for (const Tensor& t : f(number(0)))
      for (const double v : read(t)) all.push_back(v);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  EXPECT_EQ(all.size(), 2u * (4 * 3 * 2 + 4 * 2));
}

TEST(Scan, GradientsMatchTheNumbersDrawnForward) {
  random::set_seed(3);
  auto f = function([](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const ScanResult r = scan(
        [&](Values c, Values) {
          return ScanResult{{c[0] + dropout(x, 0.5)}, {}};
        },
        {zeros_like(x)}, {}, {.length = 7});
    return TensorList{r.carry[0], tape.gradient(r.carry[0], x)};
  });
  const TensorList r = f(fill({DType::float64, {64}}, 1));
  EXPECT_EQ(read(r[0]), read(r[1]));
}

TEST(Scan, NoIterationsAtAll) {
  const auto run = [](const Tensor& x) {
    const ScanResult r = scan(
        [](Values c, Values s) {
          return ScanResult{{c[0] + s[0]}, {c[0] * 2.0}};
        },
        {number(5)}, {x});
    return TensorList{r.carry[0], r.ys[0]};
  };
  auto f = function(run);
  const Tensor none = Tensor::from<double>({}, {0});
  for (const TensorList& r : {run(none), f(none)}) {
    EXPECT_EQ(r[0].item<double>(), 5);
    EXPECT_EQ(r[1].spec(), (TensorSpec{DType::float64, {0}}));
  }
}

TEST(Scan, RefusesWhatDoesNotFit) {
  const auto same = [](Values c, Values) { return ScanResult{{c[0]}, {}}; };
  for (const bool compiled : {false, true}) {
    const auto error = [&](const auto& body) {
      return error_of([&] {
        if (compiled)
          function([&](const Tensor&) { return body().carry[0]; })(number(0));
        else
          body();
      });
    };
    EXPECT_THAT(error([&] { return scan(same, {number(1)}, {}); }).message(), HasSubstr(".length"));
    EXPECT_THAT(error([&] { return scan(same, {number(1)}, {number(1)}); }).message(),
                HasSubstr("first dimension"));
    EXPECT_THAT(error([&] {
                  return scan(
                      [](Values, Values) {
                        return ScanResult{{Tensor::scalar(1)}, {}};
                      },
                      {number(1)}, {}, {.length = 1});
                }).message(),
                HasSubstr("must keep its dtype and shape"));
    EXPECT_THAT(error([&] {
                  return scan([](Values, Values) { return ScanResult{}; }, {number(1)}, {}, {.length = 1});
                }).message(),
                HasSubstr("returned 0"));
  }
}

TEST(Scan, CostsItsBodyTimesItsLength) {
  const auto flops = [](int64_t length) {
    const Tensor w = random_tensor({8, 8}, 1);
    auto f = function([&](const Tensor& x) {
      return scan(
                 [&](Values c, Values) {
                   return ScanResult{{matmul(c[0], w)}, {}};
                 },
                 {x}, {}, {.length = length})
          .carry[0];
    });
    return f.statistics(random_tensor({4, 8}, 2));
  };
  EXPECT_EQ(flops(10).flops, 10 * 2 * 4 * 8 * 8);
  EXPECT_EQ(flops(10).flops, 10 * flops(1).flops);
  EXPECT_EQ(flops(10).bytes_accessed, 10 * flops(1).bytes_accessed);
}

TEST(Compositions, DoWhatTheirNamesSay) {
  const auto all = [](const Tensor& x) {
    TensorList r =
        fori_loop(2, 5, [](const Tensor& i, Values v) { return TensorList{v[0] * cast(i, DType::float64)}; },
                  {number(1)});
    r.push_back(map_fn([](Values v) { return TensorList{square(v[0]) + 1.0}; }, {x})[0]);
    r.push_back(foldl([](const Tensor& sum, const Tensor& v) { return sum * 10.0 + v; }, number(0), x));
    return r;
  };
  auto f = function(all);
  const Tensor x = Tensor::from<double>({1, 2, 3}, {3});
  for (const TensorList& r : {all(x), f(x)}) {
    EXPECT_EQ(r[0].item<double>(), 24);
    EXPECT_THAT(read(r[1]), ElementsAre(2, 5, 10));
    EXPECT_EQ(r[2].item<double>(), 123);
  }
}

}  // namespace
}  // namespace lockstep
