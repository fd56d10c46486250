#include "backends/cpu/elementwise/vector_math.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cpu/elementwise/kernel_testing.h"

namespace lockstep::cpu::testing {
namespace {

struct Function {
  Opcode op;
  double limit;       // units in the last place of float32
  double wide_limit;  // of float64
};

const Function kFunctions[] = {
    {Opcode::exp, 1.0, 1.0},  {Opcode::log, 1.0, 1.2}, {Opcode::expm1, 2.0, 1.6}, {Opcode::log1p, 1.5, 1.6},
    {Opcode::tanh, 3.0, 2.0}, {Opcode::erf, 2.0, 2.0}, {Opcode::sin, 2.0, 1.6},   {Opcode::cos, 2.0, 1.6},
};

template <class T>
double limit(const Function& f) {
  return std::is_same_v<T, double> ? f.wide_limit : f.limit;
}

// Computed in a type that is wider than what is tested.
template <class T>
T reference(Opcode op, T x) {
  switch (op) {
    case Opcode::exp: return std::exp(x);
    case Opcode::log: return std::log(x);
    case Opcode::expm1: return std::expm1(x);
    case Opcode::log1p: return std::log1p(x);
    case Opcode::tanh: return std::tanh(x);
    case Opcode::erf: return std::erf(x);
    case Opcode::sin: return std::sin(x);
    default: return std::cos(x);
  }
}
double exact(Opcode op, float x) { return reference(op, static_cast<double>(x)); }
long double exact(Opcode op, double x) { return reference(op, static_cast<long double>(x)); }

template <class T>
Array array_of(const std::vector<T>& values) {
  Array result(std::is_same_v<T, double> ? DType::float64 : DType::float32,
               static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) result.put(static_cast<int64_t>(i), values[i]);
  return result;
}

// Numbers of all magnitudes, negative ones, infinities and NaN included.
std::vector<float> every(uint32_t step, float) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return values;
}
std::vector<double> every(uint32_t step, double) {
  std::vector<double> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step)
    values.push_back(std::bit_cast<double>((bits << 32) + bits * 0x9e3779b9u));
  // Most of those are far from where anything happens.
  std::mt19937_64 random(17);
  for (const double range : {0.5, 1.5, 6.0, 25.0, 750.0, 1e6})
    for (uint64_t i = 0; i < (uint64_t{1} << 31) / step; ++i)
      values.push_back(std::uniform_real_distribution<double>(-range, range)(random));
  return values;
}

template <class T>
class VectorMath : public ::testing::Test {};
struct Names {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, double> ? "float64" : "float32";
  }
};
TYPED_TEST_SUITE(VectorMath, decltype(::testing::Types<float, double>()), Names);

TYPED_TEST(VectorMath, FunctionsAreAccurateOverAllFloats) {
  using T = TypeParam;
  const std::vector<T> values = every(std::is_same_v<T, double> ? 24001 : 4801, T{});
  const Array x = array_of(values);
  for (const Function& f : kFunctions) {
    std::vector<decltype(exact(f.op, T{}))> want;
    for (const T value : values) want.push_back(exact(f.op, value));
    for (const Implementation implementation : compiled()) {
      const Array got = run(one_op(f.op, x.dtype()), {x}, x.size(), implementation)[0];
      double worst = 0;
      T where = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double error = ulps(static_cast<T>(got.get(static_cast<int64_t>(i))), want[i]);
        if (error > worst) {
          worst = error;
          where = values[i];
        }
      }
      EXPECT_LE(worst, limit<T>(f)) << elementwise::name(f.op) << " by " << name(implementation) << " at "
                                    << where;
    }
  }
}

TYPED_TEST(VectorMath, FunctionsAreAccurateWhereTheyChangeMethod) {
  using T = TypeParam;
  // Neighbourhoods of the borders and poles, number by number.
  for (const double centre : {0.9,
                              -0.9,
                              0.55,
                              -0.55,
                              3.94,
                              10.0,
                              0.0,
                              1.0,
                              -1.0,
                              0.75,
                              1.5,
                              88.72,
                              -87.33,
                              -103.97,
                              0.34657,
                              -0.34657,
                              0x1p-25,
                              0x1p30,
                              3.14159265358979324,
                              1.57079632679489662,
                              355.0,
                              0x1p-126,
                              5.95,
                              20.0,
                              709.782712893384,
                              -708.396418532264,
                              -745.13321910194111,
                              0x1p-54,
                              0x1p-1022,
                              0x1.8p127,
                              0x1.8p1023,
                              1.75,
                              0.5,
                              0x1p53}) {
    std::vector<T> values;
    auto up = static_cast<T>(centre);
    auto down = static_cast<T>(centre);
    for (int i = 0; i < 2000; ++i) {
      values.push_back(up);
      values.push_back(down);
      up = std::nextafter(up, std::numeric_limits<T>::infinity());
      down = std::nextafter(down, -std::numeric_limits<T>::infinity());
    }
    const Array x = array_of(values);
    for (const Function& f : kFunctions) {
      for (const Implementation implementation : compiled()) {
        const Array got = run(one_op(f.op, x.dtype()), {x}, x.size(), implementation)[0];
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_LE(ulps(static_cast<T>(got.get(static_cast<int64_t>(i))), exact(f.op, values[i])),
                    limit<T>(f))
              << elementwise::name(f.op) << " of " << values[i] << " by " << name(implementation);
      }
    }
  }
}

TYPED_TEST(VectorMath, LimitsAndSignsOfZeroAreThoseOfTheCLibrary) {
  using T = TypeParam;
  const T subnormal = std::numeric_limits<T>::denorm_min();
  const T largest = std::numeric_limits<T>::max();
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> values = {T(0.0),  T(-0.0),  subnormal, -subnormal, infinity, -infinity, T(NAN),
                                 largest, -largest, 1,         -1,         -2,       T(1e30),   T(-1e30)};
  const Array x = array_of(values);
  for (const Function& f : kFunctions) {
    for (const Implementation implementation : compiled()) {
      const Array got = run(one_op(f.op, x.dtype()), {x}, x.size(), implementation)[0];
      for (size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<T>(got.get(static_cast<int64_t>(i)));
        const auto want = exact(f.op, values[i]);
        EXPECT_LE(ulps(value, want), limit<T>(f)) << elementwise::name(f.op) << " of " << values[i] << " by "
                                                  << name(implementation) << " is " << value;
        if (!std::isnan(want)) {
          EXPECT_EQ(std::signbit(value), std::signbit(want))
              << elementwise::name(f.op) << " of " << values[i];
        }
      }
    }
  }
}

// While Lockstep computes, what is subnormal becomes 0: no result may hang on a step that is.
TYPED_TEST(VectorMath, FunctionsAreAccurateWhereSubnormalNumbersAreFlushed) {
  using T = TypeParam;
  const std::vector<T> values = every(30011, T{});
  const Array x = array_of(values);
  for (const Function& f : kFunctions) {
    for (const Implementation implementation : compiled()) {
      const Array expected = run(one_op(f.op, x.dtype()), {x}, x.size(), implementation)[0];
      const unsigned before = _mm_getcsr();
      _mm_setcsr(before | _MM_FLUSH_ZERO_ON);
      const Array got = run(one_op(f.op, x.dtype()), {x}, x.size(), implementation)[0];
      _mm_setcsr(before);
      for (int64_t i = 0; i < x.size(); ++i) {
        if (std::fabs(expected.get(i)) < static_cast<double>(std::numeric_limits<T>::min())) continue;
        ASSERT_TRUE(got.same(i, expected, i)) << elementwise::name(f.op) << " of " << x.get(i) << " by "
                                              << name(implementation) << " is " << got.get(i);
      }
    }
  }
}

TYPED_TEST(VectorMath, PowerIsAccurateAndKnowsItsSpecialCases) {
  using T = TypeParam;
  using Exact = decltype(exact(Opcode::exp, T{}));
  constexpr bool kWide = std::is_same_v<T, double>;
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> special = {T(0.0),
                                  T(-0.0),
                                  1,
                                  -1,
                                  T(0.5),
                                  T(-0.5),
                                  2,
                                  -2,
                                  3,
                                  -3,
                                  T(1e-40),
                                  T(-1e-40),
                                  T(1e30),
                                  T(-1e30),
                                  infinity,
                                  -infinity,
                                  T(NAN),
                                  T(0.99999994),
                                  T(1.0000001),
                                  16777216,
                                  -16777215,
                                  T(2.5),
                                  T(-2.5),
                                  T(3.4028235e38),
                                  T(1e9),
                                  127,
                                  -149,
                                  std::nextafter(T(1), T(0)),
                                  std::nextafter(T(1), T(2)),
                                  std::numeric_limits<T>::denorm_min(),
                                  std::numeric_limits<T>::max(),
                                  T(1) / std::numeric_limits<T>::epsilon() - 1,
                                  T(-1023),
                                  T(1023.5)};
  std::vector<T> a;
  std::vector<T> b;
  for (const T x : special)
    for (const T y : special) {
      a.push_back(x);
      b.push_back(y);
    }
  std::mt19937 random(3);
  const auto between = [&](double low, double high) {
    return static_cast<T>(std::uniform_real_distribution<double>(low, high)(random));
  };
  for (int i = 0; i < 200000; ++i) {
    a.push_back(std::exp(between(-1, 1) * (kWide ? 700 : 80)));
    b.push_back(between(-1, 1) * (i % 2 ? 100 : T(1.2)));
    // All sizes of results, by bases near 1 and large exponents.
    a.push_back(between(0.5, 2));
    b.push_back(between(-1, 1) * (kWide ? 700 : 80) / std::log(a.back()));
  }
  const std::vector<Array> inputs = {array_of(a), array_of(b)};
  for (const Implementation implementation : compiled()) {
    const Array got =
        run(one_op(Opcode::pow, inputs[0].dtype()), inputs, inputs[0].size(), implementation)[0];
    for (size_t i = 0; i < a.size(); ++i) {
      const Exact want = std::pow(static_cast<Exact>(a[i]), static_cast<Exact>(b[i]));
      const auto value = static_cast<T>(got.get(static_cast<int64_t>(i)));
      ASSERT_LE(ulps(value, want), kWide ? 1.2 : 1.0)
          << a[i] << " to the " << b[i] << " by " << name(implementation);
      if (want == 0) {
        ASSERT_EQ(std::signbit(value), std::signbit(want)) << a[i] << " to the " << b[i];
      }
    }
  }
}

TYPED_TEST(VectorMath, RemainderIsThatOfTheCLibraryToTheLastBit) {
  using T = TypeParam;
  using Bits = std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t>;
  std::mt19937_64 random(11);
  std::vector<T> a;
  std::vector<T> b;
  for (int i = 0; i < 300000; ++i) {
    const auto any = [&] { return std::bit_cast<T>(static_cast<Bits>(random())); };
    const auto small = [&] { return static_cast<T>(static_cast<int>(random() % 4001) - 2000) / 8; };
    a.push_back(i % 3 ? small() : any());
    b.push_back(i % 2 ? small() : any());
    if (i % 7 == 0) a.back() = b.back() * static_cast<T>(random() % 1000);  // close to whole quotients
  }
  const std::vector<Array> inputs = {array_of(a), array_of(b)};
  const ScalarProgram program = one_op(Opcode::mod, inputs[0].dtype());
  const Array expected = run(program, inputs, inputs[0].size(), Implementation::interpreter)[0];
  for (const Implementation implementation : compiled()) {
    const Array got = run(program, inputs, inputs[0].size(), implementation)[0];
    for (int64_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(got.same(i, expected, i))
          << a[static_cast<size_t>(i)] << " mod " << b[static_cast<size_t>(i)] << ": " << got.get(i)
          << " instead of " << expected.get(i);
  }
}

TYPED_TEST(VectorMath, BothInstructionSetsComputeTheSameBits) {
  using T = TypeParam;
  if (compiled().size() < 2) GTEST_SKIP() << "this processor runs one instruction set";
  const std::vector<T> values = every(30011, T{});
  const Array x = array_of(values);
  const Array y = array_of(std::vector<T>(values.rbegin(), values.rend()));
  for (const Opcode op : {Opcode::exp, Opcode::log, Opcode::expm1, Opcode::log1p, Opcode::tanh, Opcode::erf,
                          Opcode::sin, Opcode::cos, Opcode::pow}) {
    std::vector<Array> inputs = {x};
    if (arity(op) == 2) inputs.push_back(y);
    const ScalarProgram program = one_op(op, x.dtype());
    EXPECT_TRUE(run(program, inputs, x.size(), Implementation::avx2)[0] ==
                run(program, inputs, x.size(), Implementation::avx512)[0])
        << elementwise::name(op);
  }
}

}  // namespace
}  // namespace lockstep::cpu::testing
