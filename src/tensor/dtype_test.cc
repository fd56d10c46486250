#include "lockstep/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace lockstep {
namespace {

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(name(DType::float32), "float32");
  EXPECT_EQ(name(DType::boolean), "bool");
  EXPECT_EQ(size_of(DType::float64), 8u);
  EXPECT_EQ(size_of(DType::bfloat16), 2u);
  EXPECT_EQ(size_of(DType::uint8), 1u);
  EXPECT_EQ(size_of(DType::boolean), 1u);
  std::ostringstream out;
  out << DType::int64;
  EXPECT_EQ(out.str(), "int64");
}

TEST(DType, Kinds) {
  int floating = 0, integer = 0;
  for (int i = 0; i < kNumDTypes; ++i) {
    floating += is_floating(static_cast<DType>(i));
    integer += is_integer(static_cast<DType>(i));
  }
  EXPECT_EQ(floating, 4);
  EXPECT_EQ(integer, 3);
  EXPECT_FALSE(is_floating(DType::boolean) || is_integer(DType::boolean));
}

TEST(DType, DispatchCallsWithTheElementType) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dispatch(dtype, []<class T>() { return dtype_of<T>; }), dtype);
  }
}

// A 16-bit value is its own nearest one.
template <class T>
void expect_round_trip() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    T x;
    x.bits = static_cast<uint16_t>(bits);
    const auto value = static_cast<float>(x);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(T(value))));
    } else {
      ASSERT_EQ(T(value).bits, x.bits);
    }
  }
}

TEST(HalfPrecision, EveryValueSurvivesTheTripThroughFloat) {
  expect_round_trip<BFloat16>();
  expect_round_trip<Float16>();
}

TEST(HalfPrecision, RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(BFloat16(1 + 0x1p-8f)), 1);                // halfway: to even
  EXPECT_EQ(static_cast<float>(BFloat16(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);  // halfway: to even, upwards
  EXPECT_EQ(static_cast<float>(BFloat16(1 + 0x1.01p-8f)), 1 + 0x1p-7f);
  EXPECT_EQ(static_cast<float>(Float16(1 + 0x1p-11f)), 1);
  EXPECT_EQ(static_cast<float>(Float16(1 + 3 * 0x1p-11f)), 1 + 0x1p-9f);
  EXPECT_EQ(static_cast<float>(Float16(0x1p-25f)), 0);  // halfway to the smallest subnormal
  EXPECT_EQ(static_cast<float>(Float16(0x1.8p-25f)), 0x1p-24f);
  EXPECT_EQ(static_cast<float>(Float16(-0x1.8p-24f)), -0x1p-23f);
}

TEST(HalfPrecision, OverflowInfinityAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(Float16(65504)), 65504);
  EXPECT_EQ(static_cast<float>(Float16(65519)), 65504);
  EXPECT_EQ(static_cast<float>(Float16(65520)), infinity);
  EXPECT_EQ(static_cast<float>(Float16(-1e10f)), -infinity);
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::max())), infinity);
  for (const float x : {infinity, -infinity}) {
    EXPECT_EQ(static_cast<float>(Float16(x)), x);
    EXPECT_EQ(static_cast<float>(BFloat16(x)), x);
  }
  // A NaN whose payload lies in the lower half only.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(nan))));
}

}  // namespace
}  // namespace lockstep
