// Attention of 16-bit floats, which cuDNN makes where heads have a multiple of eight dimensions, against
// float32.
#include <cmath>

#include "gpu/gpu.h"
#include "gpu/numbers.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::testing {
namespace {

class GpuAttention : public Gpu {
 protected:
  void TearDown() override { config::enable_op_determinism(was_deterministic_); }

  // The result, and the gradients of queries, keys and values where `arriving` arrives at it.
  static TensorList attend(const TensorList& in, const Tensor& arriving, bool causal) {
    GradientTape tape;
    for (const Tensor& operand : in) tape.watch(operand);
    const Tensor result = scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = causal});
    const std::vector<GradientSource> sources(in.begin(), in.end());
    TensorList results = tape.gradient(reduce_sum(result * arriving), sources);
    results.push_back(result);
    return results;
  }

 private:
  const bool was_deterministic_ = config::op_determinism_enabled();
};

TEST_F(GpuAttention, OfSixteenBitsIsThatOfFloat32) {
  const DeviceScope scope(gpu());
  struct Case {
    int64_t queries, keys;
    bool causal;
  };
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const Case& c : {Case{256, 256, true}, Case{200, 200, false}, Case{130, 260, false}}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << ", " << c.queries << " queries, " << c.keys
                                        << " keys" << (c.causal ? ", causal" : ""));
      const Shape rows = {2, c.queries, 3, 64}, others = {2, c.keys, 3, 64};
      TensorList narrow, wide;
      for (const Tensor& x : {numbers(rows, 1), numbers(others, 2), numbers(others, 3), numbers(rows, 4)}) {
        narrow.push_back(cast(x, dtype));
        wide.push_back(cast(narrow.back(), DType::float32));
      }
      const auto all = [&](const TensorList& in) { return attend({in[0], in[1], in[2]}, in[3], c.causal); };
      const TensorList got = all(narrow), again = all(narrow), want = all(wide);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_LT(relative_error(got[i], want[i]), 1e-2) << "result " << i;
        EXPECT_EQ(relative_error(got[i], again[i]), 0) << "another call gave other bits, result " << i;
      }
    }
}

TEST_F(GpuAttention, WithoutOpDeterminismIsTheSameButForRounding) {
  const DeviceScope scope(gpu());
  for (const bool causal : {true, false}) {
    TensorList narrow, wide;
    const Shape rows = {2, 520, 3, 64};
    for (const Tensor& x : {numbers(rows, 1), numbers(rows, 2), numbers(rows, 3), numbers(rows, 4)}) {
      narrow.push_back(cast(x, DType::bfloat16));
      wide.push_back(cast(narrow.back(), DType::float32));
    }
    const auto all = [&](const TensorList& in) { return attend({in[0], in[1], in[2]}, in[3], causal); };
    config::enable_op_determinism(false);
    const TensorList got = all(narrow), again = all(narrow);  // what was added to is cleared before
    config::enable_op_determinism(true);
    const TensorList want = all(wide);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(relative_error(got[i], want[i]), 1e-2) << "result " << i << (causal ? ", causal" : "");
      EXPECT_LT(relative_error(again[i], want[i]), 1e-2) << "result " << i << (causal ? ", causal" : "");
    }
  }
}

// The gradients of 8 x 4,096 x 4,096 scores, 268 MB, are held with it alone.
TEST_F(GpuAttention, WithoutOpDeterminismHoldsLessMemory) {
  const DeviceScope scope(gpu());
  // `dim` differs between the two, so that neither is served by the kernels of the other.
  const auto peak = [](bool deterministic, int64_t dim) {
    config::enable_op_determinism(deterministic);
    TensorList operands;
    for (uint64_t i = 1; i <= 4; ++i)
      operands.push_back(cast(numbers({1, 4096, 8, dim}, i), DType::bfloat16));
    gpu().synchronize();
    const int64_t before = config::get_memory_info("/GPU:0").current;
    config::reset_memory_stats("/GPU:0");
    attend({operands[0], operands[1], operands[2]}, operands[3], true);
    gpu().synchronize();
    return config::get_memory_info("/GPU:0").peak - before;
  };
  const int64_t with = peak(true, 64), without = peak(false, 56);
  EXPECT_LT(without, with) << "bytes";
}

// A thread a row where they are short, tiles of scores otherwise; and a view that begins anywhere, which has
// tiles too.
TEST_F(GpuAttention, OfFloat32IsThatOfFloat64) {
  const DeviceScope scope(gpu());
  struct Case {
    int64_t queries, keys, heads, dim, value_dim;
    bool causal;
    int64_t first = 0;  // where operands begin in the memory that they are a part of
  };
  for (const Case& c :
       {Case{64, 64, 4, 16, 16, true}, Case{64, 64, 4, 16, 16, false}, Case{1, 5, 3, 4, 4, false},
        Case{33, 65, 3, 12, 8, true}, Case{128, 128, 5, 32, 32, true}, Case{100, 7, 2, 20, 32, false},
        Case{64, 64, 4, 16, 16, true, 1}, Case{129, 40, 2, 16, 16, true}}) {
    SCOPED_TRACE(::testing::Message()
                 << c.queries << " queries, " << c.keys << " keys, " << c.heads << " heads of " << c.dim
                 << (c.causal ? ", causal" : "") << ", from element " << c.first);
    const auto all = [&](DType dtype) {
      const auto made = [&](int64_t rows, int64_t columns, uint64_t seed) {
        const Shape shape = {37, rows, c.heads, columns};
        return reshape(slice(cast(numbers({c.first + shape.size()}, seed), dtype), {c.first}, {shape.size()}),
                       shape);
      };
      return attend({made(c.queries, c.dim, 1), made(c.keys, c.dim, 2), made(c.keys, c.value_dim, 3)},
                    made(c.queries, c.value_dim, 4), c.causal);
    };
    const TensorList got = all(DType::float32), again = all(DType::float32), want = all(DType::float64);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(relative_error(got[i], want[i]), 2e-6) << "result " << i;
      EXPECT_EQ(relative_error(got[i], again[i]), 0) << "another call gave other bits, result " << i;
    }
  }
}

// A network that has diverged says so, instead of going on with zeros.
TEST_F(GpuAttention, NaNReachesTheResultAndTheGradients) {
  const DeviceScope scope(gpu());
  for (const DType dtype : {DType::float32, DType::float64})
    for (const int64_t dim : {16, 64})  // one thread per row, and tiles
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << name(dtype) << ", " << dim << (causal ? " dimensions, causal" : " dimensions"));
        const int64_t tokens = 100, diverged = 70;
        const Tensor is_diverged = reshape(equal(range(tokens, DType::int64), diverged), {1, tokens, 1, 1});
        const Tensor k = cast(numbers({1, tokens, 1, dim}, 1), dtype);
        const Tensor q = where(is_diverged, Tensor::full(dtype, {}, std::nan("")), k);
        const TensorList all = attend({q, k, k}, k, causal);
        for (const Tensor& by_query : {all[0], all[3]}) {
          const auto is_nan = cast(not_equal(by_query, by_query), DType::int64).to_vector<int64_t>();
          for (size_t i = 0; i < is_nan.size(); ++i)
            ASSERT_EQ(is_nan[i], static_cast<int64_t>(i) / dim == diverged) << i;
        }
        // What the query has looked at.
        const Tensor by_key = slice(all[1], {0, 0, 0, 0}, {1, diverged + 1, 1, dim});
        const auto is_nan = cast(not_equal(by_key, by_key), DType::int64).to_vector<int64_t>();
        for (size_t i = 0; i < is_nan.size(); ++i) ASSERT_EQ(is_nan[i], 1) << i;
      }
}

// 8,192 x 8,192 scores of 24 heads have gradients of 3.2 GB: they are made one part after the other.
TEST_F(GpuAttention, LongSequencesAreMadeInParts) {
  const DeviceScope scope(gpu());
  for (const bool causal : {true, false}) {
    const Shape shape = {2, 8192, 12, 64};
    TensorList operands;
    for (uint64_t i = 1; i <= 4; ++i) operands.push_back(cast(numbers(shape, i), DType::bfloat16));
    const int64_t before = config::get_memory_info("/GPU:0").current;
    config::reset_memory_stats("/GPU:0");
    const TensorList got = attend({operands[0], operands[1], operands[2]}, operands[3], causal);
    EXPECT_LT(config::get_memory_info("/GPU:0").peak - before, int64_t{5} << 29);
    for (int64_t example = 0; example < 2; ++example) {
      const auto one = [&](const Tensor& x) { return slice(x, {example, 0, 0, 0}, {1, -1, -1, -1}); };
      const TensorList want =
          attend({one(operands[0]), one(operands[1]), one(operands[2])}, one(operands[3]), causal);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LT(relative_error(one(got[i]), want[i]), 5e-3) << "result " << i << " of example " << example;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
