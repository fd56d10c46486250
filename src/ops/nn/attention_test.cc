#include "ops/nn/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::values;

ProgramStatistics training_figures(int64_t length) {
  auto step = function([](const Tensor& q, const Tensor& k, const Tensor& v) {
    GradientTape tape;
    for (const Tensor* x : {&q, &k, &v}) tape.watch(*x);
    const Tensor loss = reduce_sum(square(scaled_dot_product_attention(q, k, v, {.is_causal = true})));
    const GradientSource sources[] = {q, k, v};
    const TensorList gradients = tape.gradient(loss, std::span(sources));
    return gradients[0] + gradients[1] + gradients[2];
  });
  const Tensor x = Tensor::full(DType::float32, {1, length, 8, 64}, 0.1);
  return step.statistics(x, x, x);
}

// A matrix of all scores of 8 heads over 2048 tokens is 128 MiB, and a backward pass would hold several.
TEST(Attention, MemoryGrowsWithTheLengthNotItsSquare) {
  const ProgramStatistics half = training_figures(1024), whole = training_figures(2048);
  EXPECT_LT(whole.arena_bytes, half.arena_bytes * 21 / 10);
  EXPECT_LT(whole.arena_bytes, 8 * 2048 * 2048 * 4 / 2);
}

// What dropout keeps is a function of the generator: the same numbers give the same result, others another.
TEST(Attention, DropoutFollowsItsGenerator) {
  const Tensor q = random_tensor(DType::float32, {2, 70, 2, 16}, 1),
               v = random_tensor(DType::float32, {2, 70, 2, 16}, 2);
  const random::Generator generator(5);
  const AttentionOptions options{.dropout = 0.5, .generator = &generator};
  const auto first = values(scaled_dot_product_attention(q, q, v, options));
  const auto second = values(scaled_dot_product_attention(q, q, v, options));
  generator.reset(5);
  EXPECT_EQ(values(scaled_dot_product_attention(q, q, v, options)), first);
  EXPECT_NE(first, second);
}

// Its backward pass draws what the forward pass drew: the result is linear in the values, so its derivative
// along them is the result itself.
TEST(Attention, BackwardDropsWhatForwardDropped) {
  const Tensor q = random_tensor(DType::float64, {1, 70, 2, 8}, 1),
               v = random_tensor(DType::float64, {1, 70, 2, 8}, 2);
  GradientTape tape;
  tape.watch(v);
  const Tensor sum = reduce_sum(scaled_dot_product_attention(q, q, v, {.dropout = 0.4}));
  const Tensor gradient = tape.gradient(sum, v);
  EXPECT_NEAR(reduce_sum(gradient * v).item<double>(), sum.item<double>(), 1e-9);
}

TEST(Attention, AQueryThatSeesNothingGivesZeros) {
  const Tensor q = random_tensor(DType::float32, {1, 2, 1, 4}, 1),
               k = random_tensor(DType::float32, {1, 3, 1, 4}, 2);
  const Tensor mask = Tensor::from(std::vector<bool>{false, false, false, true, false, true}, {2, 3});
  GradientTape tape;
  tape.watch(q);
  const Tensor y = scaled_dot_product_attention(q, k, k, {.mask = mask});
  const auto result = values(y), gradient = values(tape.gradient(reduce_sum(y), q));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result[i], 0);
    EXPECT_EQ(gradient[i], 0);
    EXPECT_NE(result[4 + i], 0);
  }
}

// A network that has diverged says so, instead of going on with zeros.
TEST(Attention, NaNReachesTheResultAndTheGradients) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << (causal ? ", causal" : ""));
      const int64_t tokens = 200, dim = 16,
                    diverged = 150;  // more than one tile, and the last one has an end
      const Tensor x = random_tensor(dtype, {tokens, dim}, 1);
      const Tensor factor =
          reshape(where(equal(range(tokens, DType::int64), diverged),
                        Tensor::full(dtype, {tokens}, std::nan("")), Tensor::full(dtype, {tokens}, 1)),
                  {tokens, 1});
      const auto heads = [&](const Tensor& t) { return reshape(t, {1, tokens, 1, dim}); };
      const Tensor q = heads(x * factor), k = heads(x);
      GradientTape tape;
      tape.watch(q);
      tape.watch(k);
      const Tensor y = scaled_dot_product_attention(q, k, k, {.is_causal = causal});
      const TensorList gradients = tape.gradient(reduce_sum(y), std::vector<GradientSource>{q, k});
      const auto result = values(y), dq = values(gradients[0]), dk = values(gradients[1]);
      for (size_t i = 0; i < result.size(); ++i) {
        const bool is_nan = i / dim == diverged;
        ASSERT_EQ(std::isnan(result[i]), is_nan) << i;
        ASSERT_EQ(std::isnan(dq[i]), is_nan) << i;
        if (!causal || i / dim <= diverged) {
          ASSERT_TRUE(std::isnan(dk[i])) << i;
        }
      }
    }
}

// Scores far apart, across tiles: the running maximum keeps everything finite.
TEST(Attention, LargeScoresStayFinite) {
  const Tensor q = random_tensor(DType::float32, {1, 130, 1, 16}, 1) * 100.0,
               v = random_tensor(DType::float32, {1, 130, 1, 16}, 2);
  const auto flat = [](const Tensor& x) { return reshape(x, {130, 16}); };
  const Tensor expected = matmul(softmax(matmul(flat(q), flat(q), {.transpose_b = true}) * 0.25), flat(v));
  const auto want = values(expected), got = values(scaled_dot_product_attention(q, q, v));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
}

}  // namespace
}  // namespace lockstep
