#include "lockstep/autodiff/recompute_grad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error_of_test.h"
#include "execute/compile_test.h"
#include "graph/emit.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/debugging.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using Values = std::vector<float>;
Values read(const Tensor& tensor) { return cast(tensor, DType::float32).to_vector<float>(); }
std::vector<Values> read(const TensorList& tensors) {
  std::vector<Values> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.defined() ? read(tensor) : Values{});
  return all;
}

Tensor numbers(const Shape& shape, uint64_t seed) {
  const random::Generator generator(seed);
  return random::normal(shape, {.stddev = 0.5, .generator = &generator});
}

using Block = std::function<Tensor(const Tensor&, const Variable&)>;

// The loss of `depth` blocks, one behind the other, and its gradients by the input and all weights.
struct Chain {
  Chain(int depth, int64_t rows, int64_t width, const Block& block, DType dtype = DType::float32)
      : input(cast(numbers({rows, width}, 1), dtype)), block(block) {
    for (int i = 0; i < depth; ++i)
      weights.emplace_back(cast(numbers({width, width}, static_cast<uint64_t>(i) + 2), dtype));
  }

  TensorList run(const Tensor& x, bool recomputes) const {
    GradientTape tape;
    tape.watch(x);
    Tensor y = x;
    for (const Variable& weight : weights)
      y = recomputes ? recompute_grad(block)(y, weight) : block(y, weight);
    const Tensor loss = reduce_sum(square(y));
    std::vector<GradientSource> sources = {x};
    sources.insert(sources.end(), weights.begin(), weights.end());
    TensorList results = tape.gradient(loss, sources);
    results.insert(results.begin(), loss);
    return results;
  }
  TensorList eager(bool recomputes) const { return run(input, recomputes); }
  auto function(bool recomputes) const {
    return lockstep::function([this, recomputes](const Tensor& x) { return run(x, recomputes); });
  }
  TensorList compiled(bool recomputes) const { return function(recomputes)(input); }

  Tensor input;
  Block block;
  std::vector<Variable> weights;
};

void expect_same_bits(const Chain& chain) {
  EXPECT_EQ(read(chain.eager(true)), read(chain.eager(false)));
  EXPECT_EQ(read(chain.compiled(true)), read(chain.compiled(false)));
}

void expect_near(const TensorList& found, const TensorList& expected, double share) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const Values a = read(found[i]), b = read(expected[i]);
    const float largest = std::abs(
        *std::max_element(b.begin(), b.end(), [](float x, float y) { return std::abs(x) < std::abs(y); }));
    for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], share * largest) << i << ' ' << k;
  }
}

Tensor several_ops(const Tensor& x, const Variable& w) {
  const Tensor h = tanh(matmul(x, w.value()));
  return h * sigmoid(x + h) - exp(-square(h)) * x;
}

class RecomputeGrad : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_FALSE(has_recorders()); }
};

TEST_F(RecomputeGrad, HasTheBitsOfThePlainFunction) {
  expect_same_bits(Chain(3, 4, 5, several_ops));
  expect_same_bits(Chain(3, 4, 5, several_ops, DType::float64));
}

// Compiled, a value that is computed where it is used is not rounded in between.
TEST_F(RecomputeGrad, SixteenBitFloats) {
  const Chain chain(2, 4, 8, several_ops, DType::bfloat16);
  EXPECT_EQ(read(chain.eager(true)), read(chain.eager(false)));
  expect_near(chain.compiled(true), chain.compiled(false), 0.02);
}

TEST_F(RecomputeGrad, AgreesWithFiniteDifferences) {
  const Variable w(Tensor::from(std::vector<double>{0.3, -0.2, 0.7, 0.5}, {2, 2}));
  const auto f = [&](const Tensor& x) { return reduce_sum(several_ops(x, w)); };
  const Tensor x = Tensor::from(std::vector<double>{0.1, 0.4, -0.6, 0.2}, {2, 2});
  GradientTape tape;
  tape.watch(x);
  const auto found = tape.gradient(recompute_grad(f)(x), x).to_vector<double>();
  for (size_t i = 0; i < found.size(); ++i) {
    const auto at = [&](double step) {
      auto moved = x.to_vector<double>();
      moved[i] += step;
      return f(Tensor::from(moved, {2, 2})).item<double>();
    };
    EXPECT_NEAR(found[i], (at(1e-5) - at(-1e-5)) / 2e-5, 1e-8);
  }
}

// What is alive between the forward and the backward pass.
TEST_F(RecomputeGrad, ATapeHoldsNothingOfTheInside) {
  constexpr int64_t kSize = 1 << 16;
  const Tensor x = numbers({kSize}, 1);
  const auto inside = [](const Tensor& v) {
    Tensor y = v;
    for (int i = 0; i < 10; ++i) y = tanh(y) * v;
    return y;
  };
  const auto held = [&](const std::function<Tensor(const Tensor&)>& f) {
    GradientTape tape;
    tape.watch(x);
    const int64_t before = x.device().memory_info().current;
    const Tensor y = f(x);
    const int64_t bytes = x.device().memory_info().current - before;
    EXPECT_TRUE(tape.gradient(y, x).defined());
    return bytes;
  };
  constexpr int64_t kBytes = kSize * 4;
  EXPECT_EQ(held(recompute_grad(inside)), kBytes);  // y
  EXPECT_GE(held(inside), 20 * kBytes);
}

TEST_F(RecomputeGrad, TheFunctionIsCalledOnceAndNeedNotLiveOn) {
  int calls = 0;
  const Tensor x = numbers({3}, 1);
  GradientTape tape;
  tape.watch(x);
  Tensor y;
  {
    const std::vector<double> factors = {2, 3};
    y = recompute_grad([&](const Tensor& v) {
      ++calls;
      return exp(v * factors[0]) * factors[1];
    })(x);
  }
  const Tensor gradient = tape.gradient(y, x);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(read(gradient), read(exp(x * 2.0) * 3.0 * 2.0));
}

TEST_F(RecomputeGrad, WhatTheFunctionRefersToHasGradientsToo) {
  const Tensor x = numbers({3}, 1), outside = numbers({3}, 2);
  const Variable scale(numbers({3}, 3)), unused(numbers({3}, 4)),
      fixed(numbers({3}, 5), {.trainable = false});
  GradientTape tape;
  tape.watch(x);
  tape.watch(outside);
  const Tensor related = outside * 2.0;
  const Tensor y = recompute_grad([&] { return x * related * scale.value() * fixed.value(); })();
  const TensorList found = tape.gradient(y, std::vector<GradientSource>{x, outside, scale, unused, fixed});
  expect_near({found[0], found[1], found[2]},
              {related * scale.value() * fixed.value(), x * scale.value() * fixed.value() * 2.0,
               x * related * fixed.value()},
              1e-6);
  EXPECT_FALSE(found[3].defined());
  EXPECT_FALSE(found[4].defined());
}

TEST_F(RecomputeGrad, SeveralInputsAndOutputs) {
  const Tensor a = numbers({2, 3}, 1), b = numbers({2, 3}, 2);
  const auto f = [](const Tensor& x, const Tensor& y) {
    const Tensor product = sin(x) * y;
    return TensorList{product, x, cast(greater(y, 0.0), DType::int32), cos(product)};
  };
  const auto gradients = [&](const auto& g) {
    GradientTape tape;
    tape.watch(a);
    tape.watch(b);
    const TensorList out = g(a, b);
    EXPECT_EQ(out[2].dtype(), DType::int32);
    const Tensor target = reduce_sum(out[0] * 3.0 + out[1] * out[3]);  // out[1] is an input itself
    return read(tape.gradient(target, std::vector<GradientSource>{a, b}));
  };
  EXPECT_EQ(gradients(recompute_grad(f)), gradients(f));
}

TEST_F(RecomputeGrad, OutputsThatNobodyUsesAndInputsThatNothingDependsOn) {
  const Tensor a = numbers({3}, 1), b = numbers({3}, 2);
  GradientTape tape;
  tape.watch(a);
  tape.watch(b);
  const TensorList out = recompute_grad([](const Tensor& x, const Tensor& y) {
    return TensorList{exp(x), exp(y)};
  })(a, b);
  const TensorList found = tape.gradient(out[0], std::vector<GradientSource>{a, b});
  EXPECT_EQ(read(found[0]), read(exp(a)));
  EXPECT_FALSE(found[1].defined());
}

TEST_F(RecomputeGrad, NestsAndKeepsLess) {
  const Block inner = [](const Tensor& x, const Variable& w) {
    const Block part = recompute_grad(several_ops);
    return part(part(x, w), w);
  };
  expect_same_bits(Chain(2, 4, 5, inner));
}

TEST_F(RecomputeGrad, SecondDerivatives) {
  const Tensor x = numbers({4}, 1);
  const auto second = [&](const auto& f) {
    GradientTape outer;
    outer.watch(x);
    GradientTape tape;
    tape.watch(x);
    const Tensor first = tape.gradient(f(x), x);
    return read(outer.gradient(first, x));
  };
  const auto f = [](const Tensor& v) { return exp(sin(v)) * v; };
  EXPECT_EQ(second(recompute_grad(f)), second(f));
  const auto compiled = [&](const auto& g) {
    return read(function([&](const Tensor& v) {
      GradientTape outer;
      outer.watch(v);
      GradientTape tape;
      tape.watch(v);
      const Tensor first = tape.gradient(g(v), v);
      return outer.gradient(first, v);
    })(x));
  };
  EXPECT_EQ(compiled(recompute_grad(f)), compiled(f));
}

TEST_F(RecomputeGrad, ATapeInside) {
  const Tensor x = numbers({4}, 1);
  const auto f = [](const Tensor& v) {
    GradientTape inner;
    inner.watch(v);
    return square(inner.gradient(exp(sin(v)), v));
  };
  const auto gradient = [&](const auto& g) {
    GradientTape tape;
    tape.watch(x);
    return read(tape.gradient(g(x), x));
  };
  EXPECT_EQ(gradient(recompute_grad(f)), gradient(f));
}

TEST_F(RecomputeGrad, DrawsTheSameRandomNumbers) {
  const Tensor x = Tensor::full(DType::float32, {1000}, 1.0);
  const auto kept = [&](const Tensor& v) {
    GradientTape tape;
    tape.watch(v);
    const Tensor y = recompute_grad([](const Tensor& u) { return square(dropout(u, 0.5)); })(v);
    return TensorList{y, tape.gradient(y, v)};
  };
  const TensorList eager = kept(x);
  EXPECT_EQ(read(eager[0] * 2.0), read(eager[1]));
  auto compiled = function(kept);
  const TensorList first = compiled(x);
  EXPECT_EQ(read(first[0] * 2.0), read(first[1]));
  const TensorList second = compiled(x);
  EXPECT_EQ(read(second[0] * 2.0), read(second[1]));
  EXPECT_NE(read(first[0]), read(second[0]));
}

TEST_F(RecomputeGrad, VariablesAreAssignedOnceAndReadAsTheyWere) {
  const auto step = [](const Variable& count, const Variable& w, const Tensor& x) {
    GradientTape tape;
    const Tensor y = recompute_grad([&](const Tensor& v) {
      count.assign_add(Tensor::scalar(1.0f));
      return exp(v * w.value());
    })(x);
    w.assign(w.value() * 100.0);  // before the gradient is asked for
    return tape.gradient(y, w);
  };
  const Tensor x = numbers({3}, 1);
  for (const bool compiled : {false, true}) {
    const Variable count(Tensor::scalar(0.0f), {.trainable = false}), w(numbers({3}, 2));
    const Tensor before = identity(w.value());
    const auto run = [&](const Tensor& v) { return step(count, w, v); };
    const Tensor found = compiled ? function(run)(x) : run(x);
    EXPECT_EQ(count.value().item<float>(), 1);
    EXPECT_EQ(read(found), read(exp(x * before) * x)) << compiled;
  }
}

TEST_F(RecomputeGrad, CustomGradients) {
  for (const bool repeatable : {false, true}) {
    int calls = 0;
    const auto twice = [&](const Tensor& x) {
      const Tensor inputs[] = {x};
      return custom_gradient(
          [&calls, repeatable](std::span<const Tensor> in) {
            ++calls;
            const Tensor e = exp(in[0]);
            return CustomGradient{
                {e}, [e](std::span<const Tensor> dy) { return TensorList{dy[0] * e * 10.0}; }, repeatable};
          },
          inputs)[0];
    };
    const Tensor x = numbers({1 << 14}, 1);
    GradientTape tape;
    tape.watch(x);
    const int64_t before = x.device().memory_info().current;
    const Tensor y = recompute_grad([&](const Tensor& v) { return twice(v * 1.0) * 1.0; })(x);
    const int64_t held = x.device().memory_info().current - before;
    // The result; else that of the inside and what its gradient keeps, too. Numbers are a few bytes.
    EXPECT_EQ(held / (4 << 14), repeatable ? 1 : 3);
    EXPECT_EQ(read(tape.gradient(y, x)), read(exp(x) * 10.0));
    EXPECT_EQ(calls, repeatable ? 2 : 1);
  }
}

TEST_F(RecomputeGrad, ControlFlowInside) {
  const Block looping = [](const Tensor& x, const Variable& w) {
    const TensorList found = while_loop([](std::span<const Tensor> v) { return less(v[0], 3.0); },
                                        [&](std::span<const Tensor> v) {
                                          return TensorList{v[0] + 1.0, tanh(matmul(v[1], w.value()))};
                                        },
                                        {Tensor::scalar(0.0f), x}, {.maximum_iterations = 5});
    return cond(
        reduce_sum(found[1]) > 1000.0, [&] { return found[1]; }, [&] { return found[1] * sin(x); });
  };
  expect_same_bits(Chain(2, 4, 5, looping));
}

TEST_F(RecomputeGrad, InsideTheBodyOfALoop) {
  const Variable w(numbers({5, 5}, 2));
  const Tensor elems = numbers({6, 4, 5}, 3), start = numbers({4, 5}, 4);
  const auto gradients = [&](bool recomputes) {
    return function([&, recomputes](const Tensor& xs) {
      GradientTape tape;
      tape.watch(xs);
      const auto cell = [&](const Tensor& state, const Tensor& x) { return several_ops(state + x, w); };
      const ScanResult result = scan(
          [&](std::span<const Tensor> carry, std::span<const Tensor> x) {
            const Tensor next = recomputes ? recompute_grad(cell)(carry[0], x[0]) : cell(carry[0], x[0]);
            return ScanResult{{next}, {next}};
          },
          {start}, {xs});
      return tape.gradient(reduce_sum(square(result.ys[0])), std::vector<GradientSource>{xs, w});
    });
  };
  auto plain = gradients(false), recomputed = gradients(true);
  EXPECT_EQ(read(recomputed(elems)), read(plain(elems)));
  const auto bytes = [&](auto& f) { return f.statistics(elems).arena_bytes; };
  EXPECT_LT(bytes(recomputed), bytes(plain));
}

TEST_F(RecomputeGrad, EffectsHappenOnce) {
  const Tensor x = numbers({3}, 1);
  auto f = function([](const Tensor& v) {
    GradientTape tape;
    tape.watch(v);
    const Tensor y = recompute_grad([](const Tensor& u) {
      print("once ", u);
      return exp(u);
    })(v);
    return tape.gradient(y, v);
  });
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const Tensor found = f(x);
  const std::string said =
      ::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(read(found), read(exp(x)));
  EXPECT_EQ(said.find("once"), said.rfind("once")) << said;
  EXPECT_NE(said.find("once"), std::string::npos);
}

TEST_F(RecomputeGrad, WithoutATapeItIsAPlainCall) {
  const Tensor x = numbers({3}, 1);
  const Tensor same = recompute_grad([](const Tensor& v) { return v; })(x);
  EXPECT_EQ(same.impl(), x.impl());
}

TEST_F(RecomputeGrad, MistakesNameTheLine) {
  const Tensor x = numbers({3}, 1);
  GradientTape tape;
  tape.watch(x);
  EXPECT_THAT(error_of([&] { recompute_grad([](const Tensor&) { return Tensor(); })(x); }).message(),
              HasSubstr("recompute_grad: the function returned an undefined tensor"));
  EXPECT_EQ(error_of([&] { recompute_grad([](const Tensor& v) { return matmul(v, v); })(x); }).code(),
            ErrorCode::shape_mismatch);
}

// --- compiled ----------------------------------------------------------------------------------------------

// Of a deep network, the inside of one block is there at a time instead of all.
TEST_F(RecomputeGrad, APlanTakesLessMemory) {
  const Chain chain(16, 256, 64, [](const Tensor& x, const Variable& w) {
    Tensor h = x;
    for (int i = 0; i < 6; ++i) h = tanh(matmul(h, w.value())) * sigmoid(h);
    return h;
  });
  auto plain = chain.function(false), recomputed = chain.function(true);
  EXPECT_EQ(read(recomputed(chain.input)), read(plain(chain.input)));
  const ProgramStatistics much = plain.statistics(chain.input), little = recomputed.statistics(chain.input);
  EXPECT_LT(little.arena_bytes, 0.35 * static_cast<double>(much.arena_bytes));
  EXPECT_LT(little.peak_bytes, 0.35 * static_cast<double>(much.peak_bytes));
  // One more forward pass: of three products in a layer's forward and backward pass, four.
  EXPECT_GT(little.flops, 1.2 * static_cast<double>(much.flops));
  EXPECT_LT(little.flops, 1.5 * static_cast<double>(much.flops));
}

// Replicas recompute as well: what is summed over them is summed once, and the bits depend on no device.
TEST_F(RecomputeGrad, ReplicasMeetOnce) {
  const Variable w(numbers({5, 5}, 1));
  const auto centred = [](const Tensor& x, const Variable& v) {
    const Tensor h = tanh(matmul(x, v.value()));
    return h - all_reduce_sum(reduce_sum(h, {.axis = {0}})) * (1.0 / 16);
  };
  const auto step = [&](bool recomputes) {
    return [&, recomputes](std::span<const Tensor> in) {
      GradientTape tape;
      Tensor y = in[0];
      for (int i = 0; i < 2; ++i) y = recomputes ? recompute_grad(centred)(y, w) : centred(y, w);
      const Tensor loss = all_reduce_sum(reduce_sum(square(y) * y));
      return TensorList{loss, all_reduce_sum(tape.gradient(loss, w))};
    };
  };
  const auto run = [&](bool recomputes, int devices) {
    FunctionOptions options;
    options.replicas = {.devices = testing::one_thread_devices(devices), .reproducible = true};
    FunctionCore core(step(recomputes), options, std::source_location::current());
    const Tensor x = numbers({16, 5}, 2);
    return read(core.call(std::span(&x, 1), std::source_location::current()));
  };
  const auto plain = run(false, 1);
  for (const int devices : {1, 2, 3}) EXPECT_EQ(run(true, devices), plain) << devices;
}

}  // namespace
}  // namespace lockstep
