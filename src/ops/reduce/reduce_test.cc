#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "backends/cpu/simd.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/reduce.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_cpu_simd.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::tensor_of;
using testing::values;

constexpr DType kNumbers[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16,
                              DType::int32,   DType::int64,   DType::uint8};

long double combine(const OpDef& op, long double a, long double b) {
  if (&op == &kReduceSum) return a + b;
  if (&op == &kReduceProd) return a * b;
  if (&op == &kReduceMax) return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
  return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
}

double neutral(const OpDef& op) {
  const double infinity = std::numeric_limits<double>::infinity();
  return &op == &kReduceSum ? 0 : &op == &kReduceProd ? 1 : &op == &kReduceMax ? -infinity : infinity;
}

// Element by element, in more than double precision.
std::vector<double> reference(const OpDef& op, const Tensor& x, const Dims& axes) {
  const Shape& shape = x.shape();
  Shape kept = shape;
  for (const int64_t axis : axes) kept[static_cast<int>(axis)] = 1;
  const Strides strides = broadcast_strides(kept, contiguous_strides(kept), shape);
  std::vector<long double> result(static_cast<size_t>(kept.size()), neutral(op));
  const std::vector<double> in = values(x);
  for (int64_t i = 0; i < shape.size(); ++i) {
    int64_t rest = i, target = 0;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      target += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    auto& r = result[static_cast<size_t>(target)];
    r = combine(op, r, in[static_cast<size_t>(i)]);
  }
  return {result.begin(), result.end()};
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::float32: return 0x1p-23;
    case DType::float64: return 0x1p-52;
    case DType::bfloat16: return 0x1p-7;
    case DType::float16: return 0x1p-10;
    default: return 0;
  }
}

struct Case {
  Shape shape;
  Dims axes;
};

const Case kCases[] = {
    {{}, {}},
    {{1}, {0}},
    {{7}, {0}},
    {{16}, {0}},
    {{1000}, {0}},
    {{5000}, {0}},
    {{3, 10}, {1}},
    {{9, 17}, {1}},
    {{5, 2100}, {1}},
    {{33, 10}, {0}},
    {{100, 37}, {0}},
    {{130, 300}, {0}},
    {{2050, 5}, {0}},
    {{4, 5, 6}, {1}},
    {{4, 5, 6}, {0, 2}},
    {{4, 5, 6}, {0, 1}},
    {{4, 5, 6}, {1, 2}},
    {{2, 3, 4, 5, 6}, {0, 2, 4}},
    {{3, 1, 4}, {1}},
    {{0, 3}, {1}},
};

TEST(Reduce, EveryDtypeAgreesWithDoublePrecision) {
  for (const OpDef* op : {&kReduceSum, &kReduceMax, &kReduceMin, &kReduceProd})
    for (const DType dtype : kNumbers)
      for (const auto& [shape, axes] : kCases) {
        const bool product = op == &kReduceProd;
        Tensor x = random_tensor(dtype, shape);
        if (product) {  // factors near 1, so that nothing overflows
          std::vector<double> factors = values(x);
          for (double& f : factors) f = is_floating(dtype) ? 1 + 0.01 * f : 1;
          x = tensor_of(dtype, shape, factors);
        }
        const Tensor result = run_kernel(*op, {x}, ReduceAttrs{axes, false}, 1).front();
        const std::vector<double> expected = reference(*op, x, axes);
        const std::vector<double> got = values(result);
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
          double wanted = expected[i];
          if (!is_floating(dtype)) {
            ASSERT_EQ(static_cast<int64_t>(got[i]), dtype == DType::uint8 ? static_cast<int64_t>(wanted) % 256
                                                                          : static_cast<int64_t>(wanted))
                << op->name << " " << x.spec() << axes;
            continue;
          }
          // Sums cancel: their error is that of the partial sums, which grow like the root of the count.
          const double slack =
              4 * epsilon(dtype) * (std::abs(wanted) + std::sqrt(static_cast<double>(x.size())));
          ASSERT_NEAR(got[i], wanted, slack) << op->name << " " << x.spec() << axes << " at " << i;
        }
      }
}

TEST(Reduce, SumsOfFloatsAreFarBetterThanOneAfterTheOther) {
  const int64_t n = 1 << 20;
  const Tensor x = tensor_of(DType::float32, {n}, std::vector<double>(static_cast<size_t>(n), 0.1));
  const double exact = static_cast<double>(0.1f) * static_cast<double>(n);
  EXPECT_NEAR(reduce_sum(x).item<float>(), exact, 2e-6 * exact);
  float naive = 0;
  for (int64_t i = 0; i < n; ++i) naive += 0.1f;
  EXPECT_GT(std::abs(naive - exact), 1e-3 * exact);
}

TEST(Reduce, BitsDoNotDependOnThreadsLayoutOrOtherDimensions) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Tensor x = random_tensor(dtype, {3, 3000, 40});
    for (const Dims& axes : {Dims{1}, Dims{0, 1, 2}, Dims{0, 2}, Dims{2}, Dims{0, 1}}) {
      const Tensor one = run_kernel(kReduceSum, {x}, ReduceAttrs{axes, true}, 1).front();
      const Tensor two = run_kernel(kReduceSum, {x}, ReduceAttrs{axes, true}, 2).front();
      const Tensor three = run_kernel(kReduceSum, {x}, ReduceAttrs{axes, true}, 3).front();
      EXPECT_TRUE(same_bits(one, two)) << axes;
      EXPECT_TRUE(same_bits(one, three)) << axes;
    }
    // One column out of forty, and the same numbers as rows.
    const Tensor whole = reduce_sum(x, {.axis = {1}});
    const Tensor column = slice(x, {0, 0, 7}, {3, 3000, 1});
    EXPECT_TRUE(same_bits(reduce_sum(column, {.axis = {1}}), slice(whole, {0, 7}, {3, 1})));
    const Tensor turned = transpose(x, {0, 2, 1});
    EXPECT_TRUE(same_bits(reduce_sum(turned, {.axis = {2}}), whole));
  }
}

TEST(Reduce, EveryInstructionSetGivesTheSameBits) {
  const Tensor x = random_tensor(DType::float32, {50, 130});
  const auto run = [&](const cpu::ReduceTable& table, int kind, bool rows) {
    Tensor out = Tensor::empty(DType::float32, {rows ? 50 : 130});
    const auto& f = table.reduce[kind][0];
    if (rows)
      f.rows(x.impl()->data(), out.impl()->data(), 130, 0, 50);
    else
      f.columns(x.impl()->data(), out.impl()->data(), 50, 130, 0, 1);
    return out;
  };
  for (int kind = 0; kind < 4; ++kind)
    for (const bool rows : {true, false}) {
      const Tensor v2 = run(simd_v2::kReduceTable, kind, rows);
      if (cpu::simd_level() >= cpu::SimdLevel::v3) {
        EXPECT_TRUE(same_bits(v2, run(simd_v3::kReduceTable, kind, rows)));
      }
      if (cpu::simd_level() >= cpu::SimdLevel::v4) {
        EXPECT_TRUE(same_bits(v2, run(simd_v4::kReduceTable, kind, rows)));
      }
    }
}

TEST(Reduce, ExtremaCarryNaN) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16})
    for (const size_t position : {0u, 5u, 17u, 39u}) {
      std::vector<double> numbers(40, 1.0);
      numbers[position] = NAN;
      const Tensor x = tensor_of(dtype, {40}, numbers);
      EXPECT_TRUE(std::isnan(values(reduce_max(x)).front())) << dtype << position;
      EXPECT_TRUE(std::isnan(values(reduce_min(x)).front())) << dtype << position;
      EXPECT_TRUE(std::isnan(values(reduce_max(reshape(x, {40, 1}), {.axis = {0}})).front()));
    }
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(values(reduce_max(tensor_of(DType::float32, {2}, {-infinity, -infinity}))).front(), -infinity);
}

TEST(Reduce, NothingSumsToZeroAndMultipliesToOne) {
  for (const DType dtype : kNumbers) {
    const Tensor x = Tensor::empty(dtype, {2, 0, 3});
    EXPECT_EQ(values(reduce_sum(x, {.axis = {1}})), std::vector<double>(6, 0));
    EXPECT_EQ(values(reduce_prod(x, {.axis = {1}})), std::vector<double>(6, 1));
    EXPECT_EQ(values(reduce_sum(x)), std::vector<double>{0});
    EXPECT_EQ(reduce_sum(x, {.axis = {0}}).shape(), (Shape{0, 3}));
    EXPECT_THROW(reduce_max(x), Error);
  }
}

TEST(Reduce, IntegersWrapAround) {
  EXPECT_EQ(reduce_sum(Tensor::from<int32_t>({INT32_MAX, 1}, {2})).item<int32_t>(), INT32_MIN);
  EXPECT_EQ(reduce_prod(Tensor::from<int64_t>({INT64_MAX, 2}, {2})).item<int64_t>(), -2);
  EXPECT_EQ(reduce_sum(Tensor::from<uint8_t>({200, 100}, {2})).item<uint8_t>(), 44);
  EXPECT_EQ(reduce_max(Tensor::from<int32_t>({-5, -7}, {2})).item<int32_t>(), -5);
}

TEST(Reduce, StridedInputsAndKeptDimensions) {
  const Tensor x = random_tensor(DType::float32, {6, 8});
  const Tensor every_second = strided_slice(x, {0, 0}, {6, 8}, {2, 3});
  const std::vector<double> expected = reference(kReduceSum, every_second, {1});
  const Tensor sum = reduce_sum(every_second, {.axis = {-1}, .keepdims = true});
  EXPECT_EQ(sum.shape(), (Shape{3, 1}));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values(sum)[i], expected[i], 1e-6);
}

TEST(Argmax, FirstOfEqualsInEveryDtype) {
  for (const DType dtype : kNumbers)
    for (const Shape& shape :
         {Shape{10}, Shape{40}, Shape{4, 10}, Shape{3, 100, 5}, Shape{70, 33}, Shape{2, 3, 4}})
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const Tensor x = random_tensor(dtype, shape, 3);
        const Tensor result = argmax(x, axis);
        const std::vector<double> in = values(x);
        int64_t outer = 1, inner = 1;
        for (int i = 0; i < axis; ++i) outer *= shape[i];
        for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
        const std::vector<int64_t> got = result.to_vector<int64_t>();
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t k = 0; k < inner; ++k) {
            int64_t best = 0;
            for (int64_t i = 1; i < shape[axis]; ++i)
              if (in[static_cast<size_t>((o * shape[axis] + i) * inner + k)] >
                  in[static_cast<size_t>((o * shape[axis] + best) * inner + k)])
                best = i;
            ASSERT_EQ(got[static_cast<size_t>(o * inner + k)], best) << x.spec() << " axis " << axis;
          }
      }
}

TEST(Argmax, TheFirstNaNIsTheLargest) {
  std::vector<double> numbers(40, 1.0);
  numbers[21] = numbers[37] = NAN;
  EXPECT_EQ(argmax(tensor_of(DType::float32, {40}, numbers)).item<int64_t>(), 21);
  EXPECT_EQ(argmax(tensor_of(DType::float32, {40, 1}, numbers), 0).to_vector<int64_t>().front(), 21);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(argmax(tensor_of(DType::float32, {3}, {-infinity, -infinity, -infinity})).item<int64_t>(), 0);
}

}  // namespace
}  // namespace lockstep
