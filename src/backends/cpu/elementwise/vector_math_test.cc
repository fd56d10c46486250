#include "backends/cpu/elementwise/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/elementwise/kernel_testing.h"

namespace lockstep::cpu::testing {
namespace {

struct Function {
  Opcode op;
  double (*reference)(double);
  double limit;  // units in the last place
};

const Function kFunctions[] = {
    {Opcode::exp, [](double x) { return std::exp(x); }, 1.0},
    {Opcode::log, [](double x) { return std::log(x); }, 1.0},
    {Opcode::expm1, [](double x) { return std::expm1(x); }, 2.0},
    {Opcode::log1p, [](double x) { return std::log1p(x); }, 1.5},
    {Opcode::tanh, [](double x) { return std::tanh(x); }, 3.0},
    {Opcode::erf, [](double x) { return std::erf(x); }, 2.0},
    {Opcode::sin, [](double x) { return std::sin(x); }, 2.0},
    {Opcode::cos, [](double x) { return std::cos(x); }, 2.0},
};

Array floats(const std::vector<float>& values) {
  Array result(DType::float32, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) result.put(static_cast<int64_t>(i), values[i]);
  return result;
}

TEST(VectorMath, FunctionsAreAccurateOverAllFloats) {
  // Every 4801st float, negative ones, infinities and NaN included.
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4801)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  const Array x = floats(values);
  for (const Function& f : kFunctions) {
    for (const Implementation implementation : compiled()) {
      const Array got = run(one_op(f.op, DType::float32), {x}, x.size(), implementation)[0];
      double worst = 0;
      float where = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double error = float_ulps(static_cast<float>(got.get(static_cast<int64_t>(i))),
                                        f.reference(static_cast<double>(values[i])));
        if (error > worst) {
          worst = error;
          where = values[i];
        }
      }
      EXPECT_LE(worst, f.limit) << elementwise::name(f.op) << " by " << name(implementation) << " at "
                                << where;
    }
  }
}

TEST(VectorMath, FunctionsAreAccurateWhereTheyChangeMethod) {
  // Neighbourhoods of the borders and poles, float by float.
  for (const float centre : {0.9f,     -0.9f,   3.94f,       10.0f,       0.0f,     1.0f,     -1.0f,
                             0.75f,    1.5f,    88.72f,      -87.33f,     -103.97f, 0.34657f, -0.34657f,
                             0x1p-25f, 0x1p30f, 3.14159265f, 1.57079633f, 355.0f,   0x1p-126f}) {
    std::vector<float> values;
    float up = centre;
    float down = centre;
    for (int i = 0; i < 2000; ++i) {
      values.push_back(up);
      values.push_back(down);
      up = std::nextafter(up, INFINITY);
      down = std::nextafter(down, -INFINITY);
    }
    const Array x = floats(values);
    for (const Function& f : kFunctions) {
      for (const Implementation implementation : compiled()) {
        const Array got = run(one_op(f.op, DType::float32), {x}, x.size(), implementation)[0];
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_LE(float_ulps(static_cast<float>(got.get(static_cast<int64_t>(i))),
                               f.reference(static_cast<double>(values[i]))),
                    f.limit)
              << elementwise::name(f.op) << " of " << values[i] << " by " << name(implementation);
      }
    }
  }
}

TEST(VectorMath, LimitsAndSignsOfZeroAreThoseOfTheCLibrary) {
  const float subnormal = std::numeric_limits<float>::denorm_min();
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> values = {0.0f,    -0.0f,    subnormal, -subnormal, INFINITY, -INFINITY, NAN,
                                     largest, -largest, 1.0f,      -1.0f,      -2.0f,    1e30f,     -1e30f};
  const Array x = floats(values);
  for (const Function& f : kFunctions) {
    for (const Implementation implementation : compiled()) {
      const Array got = run(one_op(f.op, DType::float32), {x}, x.size(), implementation)[0];
      for (size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<float>(got.get(static_cast<int64_t>(i)));
        const double want = f.reference(static_cast<double>(values[i]));
        EXPECT_LE(float_ulps(value, want), f.limit) << elementwise::name(f.op) << " of " << values[i]
                                                    << " by " << name(implementation) << " is " << value;
        if (!std::isnan(want)) {
          EXPECT_EQ(std::signbit(value), std::signbit(want))
              << elementwise::name(f.op) << " of " << values[i];
        }
      }
    }
  }
}

TEST(VectorMath, PowerIsAccurateAndKnowsItsSpecialCases) {
  std::vector<float> special = {
      0.0f,       -0.0f,       1.0f,         -1.0f, 0.5f,   -0.5f,         2.0f,      -2.0f,  3.0f,
      -3.0f,      1e-40f,      -1e-40f,      1e30f, -1e30f, INFINITY,      -INFINITY, NAN,    0.99999994f,
      1.0000001f, 16777216.0f, -16777215.0f, 2.5f,  -2.5f,  3.4028235e38f, 1e9f,      127.0f, -149.0f};
  std::vector<float> a;
  std::vector<float> b;
  for (const float x : special)
    for (const float y : special) {
      a.push_back(x);
      b.push_back(y);
    }
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    a.push_back(std::exp(std::uniform_real_distribution<float>(-80, 80)(random)));
    b.push_back(std::uniform_real_distribution<float>(-1, 1)(random) * (i % 2 ? 100.0f : 1.2f));
  }
  const std::vector<Array> inputs = {floats(a), floats(b)};
  for (const Implementation implementation : compiled()) {
    const Array got = run(one_op(Opcode::pow, DType::float32), inputs, inputs[0].size(), implementation)[0];
    for (size_t i = 0; i < a.size(); ++i) {
      const double want = std::pow(static_cast<double>(a[i]), static_cast<double>(b[i]));
      const auto value = static_cast<float>(got.get(static_cast<int64_t>(i)));
      ASSERT_LE(float_ulps(value, want), 1) << a[i] << " to the " << b[i] << " by " << name(implementation);
      if (want == 0) {
        ASSERT_EQ(std::signbit(value), std::signbit(want)) << a[i] << " to the " << b[i];
      }
    }
  }
}

TEST(VectorMath, RemainderIsThatOfTheCLibraryToTheLastBit) {
  std::mt19937 random(11);
  std::vector<float> a;
  std::vector<float> b;
  for (int i = 0; i < 300000; ++i) {
    const auto any = [&] { return std::bit_cast<float>(static_cast<uint32_t>(random())); };
    const auto small = [&] { return static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 8; };
    a.push_back(i % 3 ? small() : any());
    b.push_back(i % 2 ? small() : any());
    if (i % 7 == 0) a.back() = b.back() * static_cast<float>(random() % 1000);  // close to whole quotients
  }
  const std::vector<Array> inputs = {floats(a), floats(b)};
  const ScalarProgram program = one_op(Opcode::mod, DType::float32);
  const Array expected = run(program, inputs, inputs[0].size(), Implementation::interpreter)[0];
  for (const Implementation implementation : compiled()) {
    const Array got = run(program, inputs, inputs[0].size(), implementation)[0];
    for (int64_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(got.same(i, expected, i))
          << a[static_cast<size_t>(i)] << " mod " << b[static_cast<size_t>(i)] << ": " << got.get(i)
          << " instead of " << expected.get(i);
  }
}

TEST(VectorMath, BothInstructionSetsComputeTheSameBits) {
  if (compiled().size() < 2) GTEST_SKIP() << "this processor runs one instruction set";
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 30011)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  const Array x = floats(values);
  std::vector<float> reversed(values.rbegin(), values.rend());
  const Array y = floats(reversed);
  for (const Opcode op : {Opcode::exp, Opcode::log, Opcode::expm1, Opcode::log1p, Opcode::tanh, Opcode::erf,
                          Opcode::sin, Opcode::cos, Opcode::pow}) {
    std::vector<Array> inputs = {x};
    if (arity(op) == 2) inputs.push_back(y);
    const ScalarProgram program = one_op(op, DType::float32);
    EXPECT_TRUE(run(program, inputs, x.size(), Implementation::avx2)[0] ==
                run(program, inputs, x.size(), Implementation::avx512)[0])
        << elementwise::name(op);
  }
}

}  // namespace
}  // namespace lockstep::cpu::testing
