#include "lockstep/keras/initializers.h"

#include <algorithm>
#include <cmath>

#include "keras/rule_test.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers
using ::testing::Each;
using ::testing::HasSubstr;

struct Moments {
  double mean = 0, stddev = 0, least = 0, most = 0;
};

Moments moments(const Tensor& x) {
  const std::vector<double> values = doubles(x);
  Moments m;
  for (const double v : values) m.mean += v / static_cast<double>(values.size());
  for (const double v : values) m.stddev += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  m.stddev = std::sqrt(m.stddev);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  m.least = *least;
  m.most = *most;
  return m;
}

TEST(Initializers, OfConstants) {
  EXPECT_THAT(doubles(Initializer("zeros")({2, 3})), Each(0));
  EXPECT_THAT(doubles(Initializer("ones")({2}, DType::float64)), Each(1));
  EXPECT_THAT(doubles(initializers::Constant(2.5)({2, 2})), Each(2.5));
  EXPECT_TRUE(near(initializers::Identity({.gain = 3})({2, 3}), {3, 0, 0, 0, 3, 0}));
  EXPECT_THROW(initializers::Identity()({2}), Error);
}

struct Case {
  const char* name;
  double stddev;
  double limit;  // no value is beyond; 0: none
};

// A kernel of 3 x 3 x 20 x 30: fan in 180, fan out 270.
TEST(Initializers, HaveKerasSpreads) {
  random::set_seed(5);
  const double in = 180, out = 270;
  const auto uniform = [](double variance) { return std::sqrt(3 * variance); };
  const auto truncated = [](double variance) { return 2 * std::sqrt(variance) / 0.87962566103423978; };
  const Case cases[] = {
      {"glorot_uniform", std::sqrt(2 / (in + out)), uniform(2 / (in + out))},
      {"glorot_normal", std::sqrt(2 / (in + out)), truncated(2 / (in + out))},
      {"he_uniform", std::sqrt(2 / in), uniform(2 / in)},
      {"he_normal", std::sqrt(2 / in), truncated(2 / in)},
      {"lecun_uniform", std::sqrt(1 / in), uniform(1 / in)},
      {"lecun_normal", std::sqrt(1 / in), truncated(1 / in)},
      {"variance_scaling", std::sqrt(1 / in), truncated(1 / in)},
      {"random_normal", 0.05, 0},
      {"truncated_normal", 0.05 * 0.87962566103423978, 0.1},
      {"random_uniform", 0.05 / std::sqrt(3.0), 0.05},
  };
  for (const Case& c : cases) {
    const Moments m = moments(Initializer(c.name)({3, 3, 20, 30}));
    EXPECT_NEAR(m.stddev, c.stddev, 0.04 * c.stddev) << c.name;
    EXPECT_NEAR(m.mean, 0, 0.06 * c.stddev) << c.name;
    if (c.limit > 0) {
      EXPECT_LE(std::max(-m.least, m.most), c.limit * 1.0001) << c.name;
      EXPECT_GE(std::min(-m.least, m.most), c.limit * 0.95) << c.name;
    }
  }
  const auto stddev = [](const Initializer& i, const Shape& shape) { return moments(i(shape)).stddev; };
  const Initializer by_out =
      initializers::VarianceScaling({.scale = 2, .mode = "fan_out", .distribution = "untruncated_normal"});
  EXPECT_NEAR(stddev(by_out, {100, 50}), 0.2, 0.01);
  EXPECT_NEAR(stddev("lecun_normal", {400}), 0.05, 0.006);
}

TEST(Initializers, RepeatTheNumbersOfASeed) {
  const Initializer seeded = initializers::HeNormal({.seed = 3});
  const Tensor first = seeded({4, 5});
  EXPECT_EQ(doubles(seeded({4, 5})), doubles(first));
  EXPECT_NE(doubles(initializers::HeNormal({.seed = 4})({4, 5})), doubles(first));
  const Initializer free = "he_normal";
  EXPECT_NE(doubles(free({4, 5})), doubles(free({4, 5})));
  random::set_seed(1);
  const Tensor a = free({3});
  random::set_seed(1);
  EXPECT_EQ(doubles(free({3})), doubles(a));
}

TEST(Initializers, OrthogonalMatricesAre) {
  for (const Shape& shape : {Shape{40, 40}, Shape{64, 16}, Shape{16, 64}, Shape{3, 3, 4, 50}}) {
    const Tensor w = initializers::Orthogonal({.gain = 2, .seed = 1})(shape, DType::float64);
    EXPECT_EQ(w.shape(), shape);
    const Tensor flat = reshape(w, {-1, shape[-1]});
    const bool tall = flat.shape()[0] >= flat.shape()[1];
    const Tensor products = matmul(flat, flat, {.transpose_a = tall, .transpose_b = !tall});
    const int64_t size = products.shape()[0];
    const std::vector<double> values = doubles(products);
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < size; ++j)
        EXPECT_NEAR(values[static_cast<size_t>(i * size + j)], i == j ? 4 : 0, 1e-12) << shape;
  }
  EXPECT_THROW(initializers::Orthogonal()({4}), Error);
}

// The signs are those of a QR decomposition with a positive diagonal: columns keep the side of what was
// drawn.
TEST(Initializers, OrthogonalMatricesAreNotBiased) {
  int positive = 0;
  for (int seed = 0; seed < 200; ++seed)
    positive += initializers::Orthogonal({.seed = seed})({2, 2}).to_vector<float>()[0] > 0;
  EXPECT_GT(positive, 70);
  EXPECT_LT(positive, 130);
}

TEST(Initializers, MakeConcreteTensorsInsideTraces) {
  Tensor made;
  auto f = function([&](const Tensor& x) {
    made = Initializer("glorot_uniform")({2, 2});
    return x + 1.0;
  });
  f(Tensor::scalar(1.0f));
  EXPECT_FALSE(made.symbolic());
  EXPECT_EQ(made.to_vector<float>().size(), 4u);
}

TEST(Initializers, ConstantsMayBeArrays) {
  const Json list = Json::parse(R"({"class_name": "Constant", "config": {"value": [[1, 2.5], [3, 4]]}})");
  const Initializer matrix = Initializer::deserialize(list);
  EXPECT_TRUE(near(matrix({2, 2}), {1, 2.5, 3, 4}));
  EXPECT_TRUE(near(matrix({2, 2, 2}), {1, 2.5, 3, 4, 1, 2.5, 3, 4}));
  EXPECT_EQ(matrix({2, 2}, DType::float64).dtype(), DType::float64);
  expect_written(matrix.serialize(), list);
  const Json array = Json::parse(
      R"({"class_name": "Constant", "config": {"value": {"class_name": "__numpy__", "config": {"value": [5, 6], "dtype": "float64"}}}})");
  EXPECT_TRUE(near(Initializer::deserialize(array)({2}), {5, 6}));
  EXPECT_THROW(matrix({3, 2}), Error);
  for (const char* wrong : {R"([[1], [2, 3]])", R"([1, [2]])", R"("five")", R"({"a": 1})"})
    EXPECT_THROW(
        Initializer::deserialize(Json::object(
            {{"class_name", "Constant"}, {"config", Json::object({{"value", Json::parse(wrong)}})}})),
        Error)
        << wrong;
}

TEST(Initializers, AreWrittenAsKerasWritesThem) {
  const char* texts[] = {
      R"({"class_name": "Zeros", "config": {}})",
      R"({"class_name": "Constant", "config": {"value": 2.0}})",
      R"({"class_name": "RandomNormal", "config": {"seed": null, "mean": 0.0, "stddev": 0.05}})",
      R"({"class_name": "TruncatedNormal", "config": {"seed": 3, "mean": 0.5, "stddev": 0.05}})",
      R"({"class_name": "RandomUniform", "config": {"seed": null, "minval": -0.05, "maxval": 0.05}})",
      R"({"class_name": "VarianceScaling", "config": {"seed": null, "scale": 1.0, "mode": "fan_in",
          "distribution": "truncated_normal", "input_axes": null, "output_axes": null}})",
      R"({"class_name": "GlorotUniform", "config": {"seed": null, "input_axes": null, "output_axes": null}})",
      R"({"class_name": "HeNormal", "config": {"seed": 7}})",
      R"({"class_name": "Orthogonal", "config": {"seed": null, "gain": 1.0}})",
  };
  for (const char* text : texts) {
    SCOPED_TRACE(text);
    const Json written = Initializer::deserialize(Json::parse(text)).serialize();
    EXPECT_EQ(written.at("module"), Json("keras.initializers"));
    expect_written(written, Json::parse(text));
  }
  EXPECT_TRUE(initializers::HeNormal().serialize().at("config").at("seed").is_null());
  EXPECT_EQ(Initializer::deserialize(Json("he_normal")).serialize(), initializers::HeNormal().serialize());
}

TEST(Initializers, RefuseWhatMakesNoSense) {
  EXPECT_THROW(initializers::VarianceScaling({.scale = 0}), Error);
  EXPECT_THROW(initializers::VarianceScaling({.mode = "fan"}), Error);
  EXPECT_THROW(initializers::VarianceScaling({.distribution = "normal"}), Error);
  EXPECT_THROW(Initializer("zeros")({-1, 2}), Error);
  EXPECT_THROW(Initializer()({2}), Error);
  EXPECT_THAT(error_of([] { Initializer("glorot_unifrom"); }).message(), HasSubstr("glorot_uniform"));
  EXPECT_THAT(error_of([] {
                Initializer::deserialize(Json::parse(R"({"class_name": "HeNormal", "config": {"sed": 1}})"));
              }).what(),
              HasSubstr("did you mean \"seed\"?"));
}

}  // namespace
}  // namespace lockstep::keras
