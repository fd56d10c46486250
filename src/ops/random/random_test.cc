#include "ops/random/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/simd.h"
#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "ops/random/random_cpu_simd.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;
using testing::values;

Tensor draw(const OpDef& op, const RandomAttrs& attrs, int64_t state, int64_t example = 0, int threads = 1) {
  return run_kernel(op, {Tensor::scalar(state), Tensor::scalar(example)}, attrs, threads).front();
}

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};
const OpDef* const kNumbers[] = {&kRandomUniform, &kRandomNormal, &kRandomTruncatedNormal};

TEST(Random, UniformNumbersAreTheWordsOfTheirBlocks) {
  const int64_t state = 1234567, instance = 3, rows = 5, width = 11;
  const uint64_t key = random_key(state, instance);
  const auto got = values(
      draw(kRandomUniform, {.shape = {rows, width}, .instance = instance, .rows_per_example = 1}, state, 40));
  const auto half = values(
      draw(kRandomUniform,
           {.shape = {rows, width}, .dtype = DType::float16, .instance = instance, .rows_per_example = 1},
           state, 40));
  const auto wide = values(
      draw(kRandomUniform,
           {.shape = {rows, width}, .dtype = DType::float64, .instance = instance, .rows_per_example = 1},
           state, 40));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < width; ++j) {
      const auto at = static_cast<size_t>(r * width + j);
      const auto block = Philox::block(key, static_cast<uint64_t>(40 + r), static_cast<uint64_t>(j / 4));
      EXPECT_EQ(got[at], (block[static_cast<size_t>(j % 4)] >> 8) * 0x1p-24);
      EXPECT_EQ(half[at], (block[static_cast<size_t>(j % 4)] >> 21) * 0x1p-11);
      const auto pair = Philox::block(key, static_cast<uint64_t>(40 + r), static_cast<uint64_t>(j / 2));
      const auto low = static_cast<size_t>(2 * (j % 2));
      EXPECT_EQ(
          wide[at],
          static_cast<double>((static_cast<uint64_t>(pair[low + 1]) << 32 | pair[low]) >> 11) * 0x1p-53);
    }
}

TEST(Random, ASliceOfABatchDrawsItsOwnNumbers) {
  for (const OpDef* op : {&kRandomUniform, &kRandomNormal, &kRandomTruncatedNormal, &kRandomThreshold})
    for (const DType dtype : kFloats)
      for (const int64_t width : {1, 3, 8, 37, 100}) {
        const DType type = op == &kRandomThreshold ? DType::boolean : dtype;
        const RandomAttrs whole{
            .shape = {24, width}, .dtype = type, .instance = 2, .rows_per_example = 2, .threshold = 0.3};
        const Tensor all = draw(*op, whole, 99);
        RandomAttrs part = whole;
        part.shape = {10, width};
        EXPECT_TRUE(same_bits(draw(*op, part, 99, 3), slice(all, {6, 0}, {10, width})))
            << op->name << dtype << width;
      }
}

TEST(Random, BitsDoNotDependOnThreadsOrInstructionSets) {
  for (const OpDef* op : kNumbers)
    for (const DType dtype : kFloats) {
      const RandomAttrs attrs{.shape = {70001}, .dtype = dtype};
      const Tensor one = draw(*op, attrs, 5, 0, 1);
      EXPECT_TRUE(same_bits(one, draw(*op, attrs, 5, 0, 2))) << op->name << dtype;
    }
  const auto run = [](const cpu::RandomTable& table, bool normal) {
    Tensor out = Tensor::empty(DType::float32, {7, 45});
    (normal ? table.normal32 : table.uniform32)({.key = 77, .first_row = 3, .width = 45, .threshold = 0},
                                                out.impl()->data(), 0, 7 * 12);
    return out;
  };
  if (cpu::simd_level() < cpu::SimdLevel::v3) return;
  EXPECT_TRUE(same_bits(run(simd_v2::kRandomTable, false), run(simd_v3::kRandomTable, false)));
  // Logarithms are fused at v3 and v4.
  const auto a = values(run(simd_v2::kRandomTable, true)), b = values(run(simd_v3::kRandomTable, true));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6);
  if (cpu::simd_level() < cpu::SimdLevel::v4) return;
  for (const bool normal : {false, true})
    EXPECT_TRUE(same_bits(run(simd_v3::kRandomTable, normal), run(simd_v4::kRandomTable, normal)));
}

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};

Moments moments(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (const double v : x) m.mean += v / n;
  for (const double v : x) m.variance += (v - m.mean) * (v - m.mean) / n;
  for (const double v : x) {
    const double z = (v - m.mean) / std::sqrt(m.variance);
    m.skewness += z * z * z / n;
    m.kurtosis += z * z * z * z / n;
  }
  return m;
}

// 200,000 numbers: the bounds are more than five standard errors wide.
TEST(Random, Distributions) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const RandomAttrs attrs{.shape = {200000}, .dtype = dtype};
    const auto uniform = values(draw(kRandomUniform, attrs, 1));
    EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), 0);
    EXPECT_LT(*std::max_element(uniform.begin(), uniform.end()), 1);
    const Moments u = moments(uniform);
    EXPECT_NEAR(u.mean, 0.5, 4e-3);
    EXPECT_NEAR(u.variance, 1.0 / 12, 1e-3);
    EXPECT_NEAR(u.kurtosis, 1.8, 1e-2);

    const Moments z = moments(values(draw(kRandomNormal, attrs, 2)));
    EXPECT_NEAR(z.mean, 0, 0.012);
    EXPECT_NEAR(z.variance, 1, 0.017);
    EXPECT_NEAR(z.skewness, 0, 0.03);
    EXPECT_NEAR(z.kurtosis, 3, 0.06);

    const auto truncated = values(draw(kRandomTruncatedNormal, attrs, 3));
    EXPECT_GE(*std::min_element(truncated.begin(), truncated.end()), -2);
    EXPECT_LE(*std::max_element(truncated.begin(), truncated.end()), 2);
    const Moments t = moments(truncated);
    EXPECT_NEAR(t.mean, 0, 0.01);
    EXPECT_NEAR(t.variance, 0.774, 0.01);  // 1 - 4 phi(2) / (2 Phi(2) - 1)
  }
}

TEST(Random, NormalNumbersAreBoxMullersOfTheirWords) {
  const uint64_t key = random_key(8, 0);
  const auto got = values(draw(kRandomNormal, {.shape = {64}}, 8));
  for (size_t j = 0; j < 64; j += 2) {
    const auto block = Philox::block(key, 0, j / 4);
    const double u = ((block[j % 4] >> 8) + 1) * 0x1p-24, t = (block[j % 4 + 1] >> 8) * 0x1p-24;
    const double radius = std::sqrt(-2 * std::log(u));
    EXPECT_NEAR(got[j], radius * std::cos(2 * M_PI * t), 2e-6);
    EXPECT_NEAR(got[j + 1], radius * std::sin(2 * M_PI * t), 2e-6);
  }
}

TEST(Generator, SeedsAndSteps) {
  const random::Generator a(42), b(42), c(43);
  const auto next = [](const random::Generator& g) { return random::uniform({8}, {.generator = &g}); };
  const Tensor first = next(a), second = next(a);
  EXPECT_FALSE(same_bits(first, second));
  EXPECT_TRUE(same_bits(first, next(b)));
  EXPECT_FALSE(same_bits(first, next(c)));
  a.reset(42);
  EXPECT_TRUE(same_bits(first, next(a)));
  // The state is all there is to a generator.
  const Tensor saved = a.state().value();
  const Tensor third = next(a);
  a.state().assign(saved);
  EXPECT_TRUE(same_bits(third, next(a)));

  set_random_seed(7);
  const Tensor x = random::normal({5});
  random::set_seed(7);
  EXPECT_TRUE(same_bits(x, random::normal({5})));
}

TEST(Generator, KnowsItsPositionWhoeverMovesIt) {
  const random::Generator generator(4);
  const auto stored = [&] { return generator.state().value().item<int64_t>(); };
  EXPECT_EQ(generator.position(), stored());
  const int64_t first = generator.advance();
  EXPECT_EQ(stored(), first + 1);
  EXPECT_EQ(generator.position(), stored());
  generator.state().assign(Tensor::scalar(int64_t{41}));
  EXPECT_EQ(generator.position(), 41);
  // As a compiled function moves it.
  *static_cast<int64_t*>(generator.state().impl()->mutable_data(true)) = 99;
  ++generator.state().impl()->version;
  EXPECT_EQ(generator.advance(), 99);
  EXPECT_EQ(generator.position(), 100);
  EXPECT_EQ(stored(), 100);
  generator.reset(4);
  EXPECT_EQ(generator.position(), random::Generator(4).position());
}

TEST(Generator, RangesAndErrors) {
  set_random_seed(1);
  for (const double v : values(random::uniform({1000}, {.minval = -2, .maxval = 3})))
    EXPECT_TRUE(v >= -2 && v < 3);
  EXPECT_NEAR(moments(values(random::normal({50000}, {.mean = 4, .stddev = 0.5}))).mean, 4, 0.02);
  for (const double v : values(random::truncated_normal({1000}, {.mean = 1, .stddev = 2})))
    EXPECT_TRUE(v >= -3 && v <= 5);
  double hits = 0;
  for (const double v : values(random::bernoulli({50000}, 0.25))) hits += v;
  EXPECT_NEAR(hits / 50000, 0.25, 0.012);
  for (const double v : values(random::bernoulli({1000}, 1))) EXPECT_EQ(v, 1);
  for (const double v : values(random::bernoulli({1000}, 0))) EXPECT_EQ(v, 0);
  EXPECT_EQ(random::uniform({}).shape(), Shape{});
  EXPECT_EQ(random::uniform({0, 3}).shape(), (Shape{0, 3}));
  EXPECT_THROW(random::uniform({2}, {.minval = 1, .maxval = 0}), Error);
  EXPECT_THROW(random::uniform({2}, {.dtype = DType::uint8}), Error);
  EXPECT_THROW(random::uniform({-2}), Error);
  EXPECT_THROW(random::bernoulli({2}, 1.5), Error);
}

TEST(Generator, InATraceEveryUseIsAnInstanceAndTheStateMovesOnOnce) {
  const random::Generator generator(3);
  Trace trace({.global_batch = 12, .local_batch = 4});
  const Tensor x = trace.parameter(0, {DType::float32, {4, 6}}, std::source_location::current());
  dropout(x, 0.5, {.generator = &generator});
  dropout(reshape(x, {8, 3}), 0.5, {.generator = &generator});
  random::uniform({4, 6}, {.generator = &generator});
  trace.finish();
  std::vector<RandomAttrs> found;
  std::vector<const OpDef*> examples;
  for (const Node& node : trace.graph().nodes)
    if (node.op == &kRandomThreshold || node.op == &kRandomUniform) {
      found.push_back(node.attrs.as<RandomAttrs>());
      EXPECT_EQ(trace.graph().node(node.inputs[0]).op, &kVariable);
      examples.push_back(trace.graph().node(node.inputs[1]).op);
    }
  ASSERT_EQ(found.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(found[static_cast<size_t>(i)].instance, i);
  EXPECT_EQ(found[0].rows_per_example, 1);
  EXPECT_EQ(found[1].rows_per_example, 2);
  EXPECT_EQ(found[2].rows_per_example, 0);
  EXPECT_EQ(examples, (std::vector<const OpDef*>{&kExampleOffset, &kExampleOffset, &kConstant}));
  ASSERT_EQ(trace.graph().updates.size(), 1u);
  EXPECT_EQ(trace.graph().updates[0].variable.id(), generator.state().id());
}

TEST(RandomIntegers, FillTheirRangeEvenly) {
  const random::Generator generator(3);
  for (const DType dtype : {DType::int32, DType::int64}) {
    std::vector<int> count(10);
    for (const double x : values(random::uniform(
             {100, 100}, {.minval = -4, .maxval = 6, .dtype = dtype, .generator = &generator}))) {
      ASSERT_GE(x, -4);
      ASSERT_LT(x, 6);
      ++count[static_cast<size_t>(x + 4)];
    }
    for (const int times : count) EXPECT_NEAR(times, 1000, 150);
  }
  const auto all =
      values(random::uniform({1000}, {.minval = -0x1p31, .maxval = 0x1p31, .dtype = DType::int32}));
  EXPECT_LT(*std::ranges::min_element(all), -0x1p30);
  EXPECT_GT(*std::ranges::max_element(all), 0x1p30);
}

TEST(Permutation, EveryNumberOnceInAnOrderThatTheSeedFixes) {
  const random::Generator generator(11);
  const Tensor first = random::permutation(1000, {.generator = &generator});
  const Tensor second = random::permutation(1000, {.generator = &generator});
  EXPECT_FALSE(same_bits(first, second));
  auto numbers = values(first);
  EXPECT_FALSE(std::ranges::is_sorted(numbers));
  std::ranges::sort(numbers);
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], static_cast<double>(i));
  generator.reset(11);
  EXPECT_TRUE(same_bits(random::permutation(1000, {.generator = &generator}), first));
  EXPECT_EQ(random::permutation(0).shape(), Shape({0}));
}

TEST(Permutation, ShuffleMovesWholeRowsAndTheirGradients) {
  const random::Generator generator(5);
  const Tensor x = reshape(range(40, DType::float32), {20, 2});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = random::shuffle(x, {.generator = &generator});
  const auto v = values(y);
  for (size_t row = 0; row < 20; ++row) EXPECT_EQ(v[2 * row + 1], v[2 * row] + 1);
  EXPECT_NE(v, values(x));
  // The weight of a row's place in y is the gradient of the row that went there.
  const auto weights = values(tape.gradient(y * reshape(range(20, DType::float32), {20, 1}), x));
  for (size_t row = 0; row < 20; ++row)
    EXPECT_EQ(weights[static_cast<size_t>(v[2 * row])], static_cast<double>(row));
}

TEST(Categorical, DrawsClassesByTheirProbability) {
  const random::Generator generator(7);
  const float inf = std::numeric_limits<float>::infinity();
  // Probabilities 0.25, 0, 0.75 and 0, 0, 1; a shift changes nothing.
  const Tensor logits = Tensor::from({1000.0f, -inf, 1000.0f + std::log(3.0f), -inf, -inf, 2.0f}, {2, 3});
  const Tensor drawn = random::categorical(logits, 4000, {.generator = &generator});
  ASSERT_EQ(drawn.spec(), (TensorSpec{DType::int64, {2, 4000}}));
  const auto classes = values(drawn);
  EXPECT_EQ(std::ranges::count(classes, 1.0), 0);
  EXPECT_NEAR(std::count(classes.begin(), classes.begin() + 4000, 0.0), 1000, 120);
  EXPECT_EQ(std::count(classes.begin() + 4000, classes.end(), 2.0), 4000);
}

TEST(Dropout, DropsScalesAndDifferentiates) {
  set_random_seed(5);
  const Tensor x = Tensor::full(DType::float32, {100, 50}, 3);
  GradientTape tape;
  tape.watch(x);
  const Tensor y = dropout(x, 0.25);
  const auto v = values(y), d = values(tape.gradient(y, x));
  double kept = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    EXPECT_TRUE(v[i] == 0 || v[i] == 4);
    EXPECT_FLOAT_EQ(static_cast<float>(d[i]), static_cast<float>(v[i] / 3));
    kept += v[i] != 0;
  }
  EXPECT_NEAR(kept / 5000, 0.75, 0.035);
  EXPECT_TRUE(same_bits(dropout(x, 0), x));
  EXPECT_THROW(dropout(x, 1), Error);
  EXPECT_THROW(dropout(x, -0.1), Error);
  EXPECT_THROW(dropout(random_tensor(DType::int32, {3}), 0.5), Error);
}

TEST(Dropout, NoiseShapeSharesTheFate) {
  set_random_seed(5);
  const Tensor x = Tensor::full(DType::float32, {20, 6, 3}, 1);
  const auto v = values(dropout(x, 0.5, {.noise_shape = {20, 1, 3}}));
  for (size_t i = 0; i < 20; ++i)
    for (size_t k = 0; k < 3; ++k)
      for (size_t j = 1; j < 6; ++j) EXPECT_EQ(v[i * 18 + j * 3 + k], v[i * 18 + k]);
  EXPECT_THROW(dropout(x, 0.5, {.noise_shape = {20, 2, 3}}), Error);
}

}  // namespace
}  // namespace lockstep
