// What kernels compute, for every opcode and dtype; kernel_test.cc is about how they go over arrays.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "backends/cpu/elementwise/kernel.h"
#include "backends/cpu/elementwise/kernel_testing.h"

namespace lockstep::cpu::testing {
namespace {

bool is_approximate(Opcode op, DType dtype) {
  return is_floating(dtype) && (op == Opcode::pow || (op >= Opcode::exp && op <= Opcode::cos));
}

// The true value, in double; only for floats.
double exact(Opcode op, double a, double b) {
  switch (op) {
    case Opcode::add: return a + b;
    case Opcode::sub: return a - b;
    case Opcode::mul: return a * b;
    case Opcode::div: return a / b;
    case Opcode::pow: return std::pow(a, b);
    case Opcode::neg: return -a;
    case Opcode::abs: return std::fabs(a);
    case Opcode::floor: return std::floor(a);
    case Opcode::ceil: return std::ceil(a);
    case Opcode::round: return std::nearbyint(a);
    case Opcode::sqrt: return std::sqrt(a);
    case Opcode::exp: return std::exp(a);
    case Opcode::log: return std::log(a);
    case Opcode::expm1: return std::expm1(a);
    case Opcode::log1p: return std::log1p(a);
    case Opcode::tanh: return std::tanh(a);
    case Opcode::erf: return std::erf(a);
    case Opcode::sin: return std::sin(a);
    case Opcode::cos: return std::cos(a);
    case Opcode::maximum: return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
    case Opcode::minimum: return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
    case Opcode::sign: return std::isnan(a) ? NAN : (a > 0) - (a < 0);
    default: return NAN;
  }
}

std::vector<Opcode> all_opcodes() {
  std::vector<Opcode> result;
  for (int i = 0; i < elementwise::kNumOpcodes; ++i) result.push_back(static_cast<Opcode>(i));
  return result;
}

TEST(ElementwiseValues, CompiledCodeAgreesWithTheInterpreterForEveryOpcodeAndDtype) {
  for (const Opcode op : all_opcodes()) {
    for (const DType dtype : all_dtypes()) {
      if (!accepts(op, dtype)) continue;
      const ScalarProgram program = one_op(op, dtype);
      for (const int64_t size : {int64_t{1}, int64_t{7}, int64_t{16}, int64_t{33}, int64_t{500}}) {
        const std::vector<Array> inputs = interesting_inputs(program, size, 1);
        const std::vector<Array> expected = run(program, inputs, size, Implementation::interpreter);
        for (const Implementation implementation : compiled()) {
          const std::vector<Array> got = run(program, inputs, size, implementation);
          for (int64_t i = 0; i < size; ++i) {
            if (dtype == DType::float32 && is_approximate(op, dtype)) {
              EXPECT_LE(ulps(static_cast<float>(got[0].get(i)), expected[0].get(i)), 4)
                  << name(op) << " of " << inputs[0].get(i) << " by " << name(implementation);
            } else if (dtype == DType::float64 && is_approximate(op, dtype)) {
              EXPECT_LE(ulps(got[0].get(i), expected[0].get(i)), 3)
                  << name(op) << " of " << inputs[0].get(i) << " by " << name(implementation);
            } else if (is_approximate(op, dtype)) {
              // Rounding to 16 bits hides most of the difference, but can turn it into one unit.
              const double unit = dtype == DType::bfloat16 ? 0x1p-7 : 0x1p-10;
              const double want = expected[0].get(i);
              EXPECT_TRUE(got[0].same(i, expected[0], i) ||
                          std::fabs(got[0].get(i) - want) <= unit * std::fabs(want) + 0x1p-24)
                  << name(op) << ' ' << dtype << ' ' << got[0].get(i) << " instead of " << want;
            } else {
              EXPECT_TRUE(got[0].same(i, expected[0], i))
                  << name(op) << ' ' << dtype << " by " << name(implementation) << " at " << i << " of "
                  << size << ": " << got[0].get(i) << " instead of " << expected[0].get(i) << " for "
                  << inputs[0].get(i) << ", " << inputs.back().get(i);
            }
          }
        }
      }
    }
  }
}

TEST(ElementwiseValues, FloatsAgreeWithDoublePrecision) {
  for (const Opcode op : all_opcodes()) {
    if (op < Opcode::add || op > Opcode::cos || op == Opcode::mod) continue;
    const ScalarProgram program = one_op(op, DType::float32);
    const int64_t size = 4000;
    const std::vector<Array> inputs = interesting_inputs(program, size, 3);
    for (const Implementation implementation : everything()) {
      const std::vector<Array> got = run(program, inputs, size, implementation);
      const double limit =
          is_approximate(op, DType::float32) ? (op <= Opcode::log && op >= Opcode::exp ? 2 : 4) : 0.5;
      for (int64_t i = 0; i < size; ++i) {
        const double a = inputs[0].get(i);
        const double b = inputs.back().get(i);
        ASSERT_LE(ulps(static_cast<float>(got[0].get(i)), exact(op, a, b)), limit)
            << name(op) << " of " << a << ", " << b << " by " << name(implementation) << ": " << got[0].get(i)
            << " instead of " << exact(op, a, b);
      }
    }
  }
}

TEST(ElementwiseValues, EveryCastAgreesWithTheInterpreter) {
  for (const DType from : all_dtypes()) {
    for (const DType to : all_dtypes()) {
      Writer w;
      w.output(w.cast(w.input(from), to));
      const std::vector<Array> inputs = interesting_inputs(w.program, 700, 5);
      const std::vector<Array> expected = run(w.program, inputs, 700, Implementation::interpreter);
      for (const Implementation implementation : compiled()) {
        const std::vector<Array> got = run(w.program, inputs, 700, implementation);
        for (int64_t i = 0; i < 700; ++i)
          ASSERT_TRUE(got[0].same(i, expected[0], i))
              << from << " to " << to << " by " << name(implementation) << ": " << inputs[0].get(i)
              << " became " << got[0].get(i) << " instead of " << expected[0].get(i);
      }
    }
  }
}

// One value through one op, by every implementation.
void expect_values(Opcode op, DType dtype, std::vector<double> a, std::vector<double> b,
                   std::vector<double> expected) {
  const ScalarProgram program = one_op(op, dtype);
  const auto size = static_cast<int64_t>(a.size());
  std::vector<Array> inputs;
  for (const std::vector<double>* values : {&a, &b}) {
    if (values->empty()) continue;
    inputs.emplace_back(dtype, size);
    for (int64_t i = 0; i < size; ++i) inputs.back().set(i, (*values)[static_cast<size_t>(i)]);
  }
  for (const Implementation implementation : everything()) {
    const std::vector<Array> got = run(program, inputs, size, implementation);
    Array want(got[0].dtype(), size);
    for (int64_t i = 0; i < size; ++i) want.set(i, expected[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < size; ++i)
      EXPECT_TRUE(got[0].same(i, want, i))
          << name(op) << ' ' << dtype << " of " << a[static_cast<size_t>(i)] << " by " << name(implementation)
          << " is " << got[0].get(i) << ", not " << want.get(i);
  }
}

TEST(ElementwiseValues, MaximumAndMinimumCarryNaNAndReturnTheSecondOfTwoZeros) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    expect_values(Opcode::maximum, dtype, {1, NAN, 1, 0.0, -0.0, -INFINITY}, {2, 1, NAN, -0.0, 0.0, 3},
                  {2, NAN, NAN, -0.0, 0.0, 3});
    expect_values(Opcode::minimum, dtype, {1, NAN, 1, 0.0, -0.0, INFINITY}, {2, 1, NAN, -0.0, 0.0, 3},
                  {1, NAN, NAN, -0.0, 0.0, 3});
  }
}

TEST(ElementwiseValues, ExtremaWithAConstantAreThoseWithATensor) {
  for (const Opcode op : {Opcode::maximum, Opcode::minimum}) {
    for (const double constant : {0.0, -0.0, 1.5, static_cast<double>(NAN)}) {
      for (const bool constant_first : {false, true}) {
        Writer w;
        const int16_t x = w.input(DType::float32);
        const int16_t y = w.input(DType::float32);
        const int16_t c = w.constant(DType::float32, constant);
        w.output(constant_first ? w.op(op, {c, x}) : w.op(op, {x, c}));
        w.output(constant_first ? w.op(op, {y, x}) : w.op(op, {x, y}));
        std::vector<Array> inputs = interesting_inputs(w.program, 300, 9);
        for (int64_t i = 0; i < 300; ++i) inputs[1].set(i, constant);
        for (const Implementation implementation : everything()) {
          const std::vector<Array> got = run(w.program, inputs, 300, implementation);
          EXPECT_TRUE(got[0] == got[1]) << name(op) << " with " << constant << " by " << name(implementation);
        }
      }
    }
  }
}

TEST(ElementwiseValues, RoundingAndSigns) {
  expect_values(Opcode::round, DType::float32, {0.5, 1.5, 2.5, -0.5, -1.5, 1e20, NAN}, {},
                {0, 2, 2, -0.0, -2, 1e20, NAN});
  expect_values(Opcode::sign, DType::float32, {3, -2, 0.0, -0.0, NAN, INFINITY}, {}, {1, -1, 0, 0, NAN, 1});
  expect_values(Opcode::sign, DType::int32, {7, -7, 0, INT32_MIN}, {}, {1, -1, 0, -1});
  expect_values(Opcode::abs, DType::int32, {7, -7, INT32_MIN}, {}, {7, 7, INT32_MIN});
  expect_values(Opcode::floor, DType::int32, {7, -7}, {}, {7, -7});
}

TEST(ElementwiseValues, DivisionAndRemainderOfIntegers) {
  expect_values(Opcode::div, DType::int32, {7, -7, 7, -7, 5, INT32_MIN, INT32_MIN}, {2, 2, -2, -2, 0, -1, 1},
                {3, -3, -3, 3, 0, INT32_MIN, INT32_MIN});
  expect_values(Opcode::mod, DType::int32, {7, -7, 7, -7, 5, INT32_MIN, -6}, {3, 3, -3, -3, 0, -1, 3},
                {1, 2, -2, -1, 0, 0, 0});
  expect_values(Opcode::div, DType::int64, {7, -7, 5}, {2, 2, 0}, {3, -3, 0});
  expect_values(Opcode::mod, DType::uint8, {250, 3, 9}, {7, 0, 3}, {5, 0, 0});
  expect_values(Opcode::pow, DType::int32, {2, -3, 0, 2, -1, 1, 0, -1}, {10, 3, 0, -1, -3, -5, -2, -2},
                {1024, -27, 1, 0, -1, 1, 0, 1});
}

TEST(ElementwiseValues, QuotientsOfLargeIntegersAreExact) {
  // Around 2^53, where float64 ends, and random ones of all sizes.
  std::vector<int64_t> a = {INT64_MIN, INT64_MAX, INT64_MIN, INT64_MAX};
  std::vector<int64_t> b = {-1, -1, 1, INT64_MAX};
  std::mt19937_64 random(5);
  for (int i = 0; i < 100000; ++i) {
    const auto any = [&] { return static_cast<int64_t>(random()) >> (random() % 64); };
    b.push_back(any());
    if (i % 2) {
      a.push_back(any());
    } else {
      const int64_t near = (int64_t{1} << 53) - 3 + static_cast<int64_t>(random() % 7);
      a.push_back(i % 4 ? near : near / (b.back() | 1) * b.back() - 1 + static_cast<int64_t>(random() % 3));
    }
  }
  const auto size = static_cast<int64_t>(a.size());
  std::vector<Array> inputs = {Array(DType::int64, size), Array(DType::int64, size)};
  for (int64_t i = 0; i < size; ++i) {
    inputs[0].put(i, a[static_cast<size_t>(i)]);
    inputs[1].put(i, b[static_cast<size_t>(i)]);
  }
  for (const Opcode op : {Opcode::div, Opcode::mod}) {
    const ScalarProgram program = one_op(op, DType::int64);
    const Array expected = run(program, inputs, size, Implementation::interpreter)[0];
    for (const Implementation implementation : compiled()) {
      const Array got = run(program, inputs, size, implementation)[0];
      for (int64_t i = 0; i < size; ++i)
        ASSERT_TRUE(got.same(i, expected, i))
            << name(op) << " of " << a[static_cast<size_t>(i)] << ", " << b[static_cast<size_t>(i)] << " by "
            << name(implementation) << " is " << got.get_integer(i) << ", not " << expected.get_integer(i);
    }
  }
}

TEST(ElementwiseValues, RemainderOfFloatsIsFlooredAndExact) {
  expect_values(Opcode::mod, DType::float32, {5.5, -5.5, 5.5, -5.5, 6, -6, 1, -1, 1, NAN},
                {2, 2, -2, -2, 3, 3, INFINITY, INFINITY, 0, 1},
                {1.5, 0.5, -0.5, -1.5, 0, 0, 1, INFINITY, NAN, NAN});
  expect_values(Opcode::mod, DType::float32, {1e30, -1e30, 16777216, 0.0}, {3, 7, 0.1f, -2},
                {std::fmod(1e30f, 3.0f), std::fmod(-1e30f, 7.0f) + 7.0f, std::fmod(16777216.0f, 0.1f), -0.0});
}

TEST(ElementwiseValues, IntegersWrapAround) {
  expect_values(Opcode::add, DType::int32, {INT32_MAX, 1}, {1, 2}, {INT32_MIN, 3});
  expect_values(Opcode::mul, DType::int32, {65536, 3}, {65536, -4}, {0, -12});
  expect_values(Opcode::add, DType::uint8, {250, 1}, {10, 2}, {4, 3});
  expect_values(Opcode::sub, DType::uint8, {3, 9}, {5, 2}, {254, 7});
  expect_values(Opcode::mul, DType::uint8, {20, 16}, {20, 16}, {144, 0});
  expect_values(Opcode::neg, DType::uint8, {1, 0}, {}, {255, 0});
}

TEST(ElementwiseValues, CastsSaturateWrapAndRound) {
  const auto expect_cast = [](DType from, DType to, std::vector<double> in, std::vector<double> out) {
    Writer w;
    w.output(w.cast(w.input(from), to));
    const auto size = static_cast<int64_t>(in.size());
    std::vector<Array> inputs{Array(from, size)};
    for (int64_t i = 0; i < size; ++i) inputs[0].set(i, in[static_cast<size_t>(i)]);
    for (const Implementation implementation : everything()) {
      const std::vector<Array> got = run(w.program, inputs, size, implementation);
      for (int64_t i = 0; i < size; ++i)
        EXPECT_EQ(got[0].get(i), out[static_cast<size_t>(i)])
            << from << " to " << to << " of " << in[static_cast<size_t>(i)] << " by " << name(implementation);
    }
  };
  expect_cast(DType::float32, DType::int32, {1.9, -1.9, 3e9, -3e9, NAN, INFINITY, -INFINITY},
              {1, -1, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN});
  expect_cast(DType::float64, DType::int32, {1.9, -1.9, 3e9, -3e9, NAN, 2147483647.5, -2147483648.5},
              {1, -1, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN});
  expect_cast(DType::float32, DType::uint8, {-3, 254.9, 300, NAN, INFINITY}, {0, 254, 255, 0, 255});
  expect_cast(DType::float32, DType::int64, {1e10, -1e10, 1e30, -1e30, NAN},
              {1e10, -1e10, 0x1p63, -0x1p63, 0});
  expect_cast(DType::int32, DType::uint8, {256, 257, -1, 255}, {0, 1, 255, 255});
  expect_cast(DType::float32, DType::bfloat16, {1.00390625, 1.01171875, 3.4e38}, {1.0, 1.015625, INFINITY});
  expect_cast(DType::float32, DType::float16, {1.00048828125, 65519, 65520, 1e-8}, {1.0, 65504, INFINITY, 0});
  expect_cast(DType::float32, DType::boolean, {0.0, -0.0, 1e-40, NAN}, {0, 0, 1, 1});
  expect_cast(DType::boolean, DType::float32, {0, 1}, {0, 1});
  expect_cast(DType::boolean, DType::int64, {0, 1}, {0, 1});
}

TEST(ElementwiseValues, SixteenBitValuesKeepFloat32PrecisionUntilTheyAreCastOrStored) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    Writer w;
    const int16_t x = w.input(dtype);
    const int16_t tiny = w.constant(dtype, 0x1p-12);
    const int16_t sum = w.op(Opcode::add, {x, tiny});
    w.output(w.op(Opcode::sub, {sum, x}));                 // keeps the 2^-12
    w.output(w.op(Opcode::sub, {w.cast(sum, dtype), x}));  // 1 + 2^-12 rounds to 1
    std::vector<Array> inputs{Array(dtype, 5)};
    for (int64_t i = 0; i < 5; ++i) inputs[0].set(i, 1);
    for (const Implementation implementation : everything()) {
      const std::vector<Array> got = run(w.program, inputs, 5, implementation);
      EXPECT_EQ(got[0].get(4), 0x1p-12) << dtype << " by " << name(implementation);
      EXPECT_EQ(got[1].get(4), 0) << dtype << " by " << name(implementation);
    }
  }
}

TEST(ElementwiseValues, AnyByteThatIsNotZeroIsTrue) {
  Writer w;
  const int16_t x = w.input(DType::boolean);
  w.output(w.op(Opcode::logical_not, {w.op(Opcode::logical_not, {x})}));
  w.output(w.cast(x, DType::float32));
  std::vector<Array> inputs{Array(DType::boolean, 20)};
  for (int64_t i = 0; i < 20; ++i) inputs[0].put(i, static_cast<uint8_t>(i * 13));
  for (const Implementation implementation : everything()) {
    const std::vector<Array> got = run(w.program, inputs, 20, implementation);
    for (int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(got[0].get_integer(i), i == 0 ? 0 : 1) << name(implementation);
      EXPECT_EQ(got[1].get(i), i == 0 ? 0 : 1) << name(implementation);
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu::testing
