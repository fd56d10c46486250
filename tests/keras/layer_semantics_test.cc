// What single layers promise beyond the harness: masks, statistics over replicas, what is learned from data,
// errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error_of_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/device/device.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::vector<float> floats(const Tensor& tensor) { return tensor.to_vector<float>(); }

Tensor vector(std::vector<float> values) {
  const auto size = static_cast<int64_t>(values.size());
  return Tensor::from(values, {size});
}

void expect_floats(const Tensor& got, const std::vector<float>& want, float tolerance = 1e-5f) {
  EXPECT_THAT(floats(got), Pointwise(FloatNear(tolerance), want));
}

// layer_cases() has set them up.
std::vector<Device*> two_devices() {
  const auto all = logical_devices();
  return {all.begin(), all.begin() + 2};
}

// --- batch normalisation -----------------------------------------------------------------------------------

TEST(BatchNormalization, TakesTheBatchInTrainingAndTheMovingStatisticsOtherwise) {
  const Layer layer = layers::BatchNormalization({.momentum = 0.5, .epsilon = 0});
  const Tensor x = Tensor::from({1.f, 10.f, 3.f, 30.f}, {2, 2});
  expect_floats(layer(x, {.training = true}), {-1, -1, 1, 1});
  const TensorList weights = layer.get_weights();
  expect_floats(weights[2], {1, 10});     // halfway from 0 to the means 2 and 20
  expect_floats(weights[3], {1, 50.5f});  // halfway from 1 to the variances 1 and 100
  expect_floats(layer(x), {0, 0, 2, 20 / std::sqrt(50.5f)});
}

TEST(BatchNormalization, IsStillWhereItIsNotTrainable) {
  const Layer layer = layers::BatchNormalization({.epsilon = 0, .trainable = false});
  const Tensor x = Tensor::from({1.f, 2.f, 3.f, 4.f}, {2, 2});
  expect_floats(layer(x, {.training = true}), {1, 2, 3, 4});
  expect_floats(layer.get_weights()[2], {0, 0});
}

TEST(BatchNormalization, CountsWhatTheMaskLetsThrough) {
  const Layer layer = layers::BatchNormalization({.momentum = 0, .epsilon = 0});
  const Tensor x = Tensor::from({1.f, 3.f, 100.f}, {1, 3, 1});
  const Tensor mask = Tensor::from(std::vector<bool>{true, true, false}, {1, 3});
  expect_floats(layer(x, {.training = true, .mask = mask}), {-1, 1, 98}, 1e-4f);
  expect_floats(layer.get_weights()[2], {2});
  expect_floats(layer.get_weights()[3], {1});
}

// One training call over replicas of `examples` numbers.
struct Replicated {
  std::vector<float> result;
  float mean;
  float variance;
};
Replicated train_on_two_devices(const std::vector<float>& examples, bool synchronized) {
  const Layer layer = layers::BatchNormalization(
      {.momentum = 0, .epsilon = 0, .center = false, .scale = false, .synchronized = synchronized});
  layer.build({-1, 1});
  auto step = function([&](const Tensor& x) { return layer(x, {.training = true}); },
                       {.replicas = {.devices = two_devices()}});
  const Tensor x = Tensor::from(examples, {static_cast<int64_t>(examples.size()), 1});
  const std::vector<float> result = floats(step(x));
  const TensorList weights = layer.get_weights();
  return {result, weights[0].item<float>(), weights[1].item<float>()};
}

TEST(BatchNormalization, SynchronizedReplicasNormaliseTheWholeBatch) {
  const Replicated got = train_on_two_devices({1, 2, 6}, true);
  EXPECT_FLOAT_EQ(got.mean, 3);
  EXPECT_NEAR(got.variance, 14 / 3.0, 1e-5);
  const float stddev = std::sqrt(14 / 3.0f);
  EXPECT_THAT(got.result, Pointwise(FloatNear(1e-5f), {-2 / stddev, -1 / stddev, 3 / stddev}));
}

TEST(BatchNormalization, MovingStatisticsWeighReplicasByTheirExamples) {
  // Slices {1, 3} with mean 2 and variance 1, and {8} with mean 8 and variance 0.
  const Replicated got = train_on_two_devices({1, 3, 8}, false);
  EXPECT_FLOAT_EQ(got.mean, 4);
  EXPECT_NEAR(got.variance, 2 / 3.0, 1e-6);
}

TEST(BatchNormalization, AnEmptyReplicaCountsForNothing) {
  for (const bool synchronized : {false, true}) {
    const Replicated got = train_on_two_devices({5}, synchronized);
    EXPECT_FLOAT_EQ(got.mean, 5);
    EXPECT_FLOAT_EQ(got.variance, 0);
  }
}

// Normalisations that are differentiated as a whole have second derivatives all the same: those of finite
// differences of the first.
TEST(Normalization, HasSecondDerivatives) {
  for (const Layer& layer : {layers::BatchNormalization({.dtype = "float64"}),
                             layers::GroupNormalization({.groups = 2, .dtype = "float64"})}) {
    const random::Generator generator(5);
    const auto draw = [&] {
      return random::normal({3, 2, 4}, {.dtype = DType::float64, .generator = &generator});
    };
    const Tensor x = draw(), weights = draw(), direction = draw();
    // The derivative of sum(weights * y^2) along a direction, and its gradient.
    const auto slope = [&](const Tensor& at) {
      GradientTape tape;
      tape.watch(at);
      const Tensor loss = reduce_sum(weights * square(layer(at, {.training = true})));
      return reduce_sum(tape.gradient(loss, at) * direction);
    };
    Tensor found;
    {
      GradientTape outer;
      outer.watch(x);
      const Tensor value = slope(x);
      found = outer.gradient(value, x);
    }
    std::vector<double> moved = x.to_vector<double>();
    const std::vector<double> got = found.to_vector<double>();
    for (size_t i = 0; i < moved.size(); ++i) {
      const double here = moved[i];
      const auto at = [&](double value) {
        moved[i] = value;
        return slope(Tensor::from(moved, x.shape())).item<double>();
      };
      const double want = (at(here + 1e-5) - at(here - 1e-5)) / 2e-5;
      moved[i] = here;
      ASSERT_NEAR(got[i], want, 1e-6 * std::max(1.0, std::abs(want)))
          << layer.class_name() << ", element " << i;
    }
  }
}

// --- noise -------------------------------------------------------------------------------------------------

TEST(Noise, DoesNotDependOnTheNumberOfReplicas) {
  const auto drawn = [&](bool replicated) {
    const Layer layer = layers::Dropout(0.5, {.seed = 7});
    const ReplicaOptions replicas{.devices = replicated ? two_devices() : std::vector<Device*>{}};
    auto step =
        function([&](const Tensor& x) { return layer(x, {.training = true}); }, {.replicas = replicas});
    return floats(step(ones({5, 8})));
  };
  EXPECT_EQ(drawn(true), drawn(false));
}

TEST(Noise, IsTheSameForTheSameSeedAndNewInEveryCall) {
  const Tensor x = ones({4, 8});
  const auto first = [&](const Layer& layer) { return floats(layer(x, {.training = true})); };
  for (const auto& make :
       std::vector<std::function<Layer()>>{[] { return layers::Dropout(0.5, {.seed = 7}); },
                                           [] { return layers::AlphaDropout(0.5, {.seed = 7}); },
                                           [] { return layers::GaussianNoise(0.5, {.seed = 7}); },
                                           [] { return layers::GaussianDropout(0.5, {.seed = 7}); }}) {
    const Layer layer = make();
    const std::vector<float> drawn = first(layer);
    EXPECT_EQ(first(make()), drawn);
    EXPECT_NE(first(layer), drawn);
  }
}

TEST(Noise, SpatialDropoutDropsWholeChannels) {
  const Layer layer = layers::SpatialDropout1D(0.5, {.seed = 1});
  const std::vector<float> y = floats(layer(ones({8, 3, 4}), {.training = true}));
  for (size_t example = 0; example < 8; ++example)
    for (size_t channel = 0; channel < 4; ++channel)
      for (size_t step = 1; step < 3; ++step)
        EXPECT_EQ(y[(example * 3 + step) * 4 + channel], y[example * 12 + channel]);
}

TEST(Noise, RateOneDropsEverything) {
  EXPECT_THAT(floats(layers::Dropout(1)(ones({3}), {.training = true})), ElementsAre(0, 0, 0));
}

// --- masks -------------------------------------------------------------------------------------------------

std::vector<bool> mask_values(const Tensor& tensor) {
  const Tensor mask = mask_of(tensor);
  return mask.defined() ? mask.to_vector<bool>() : std::vector<bool>{};
}

// (2, 3, 2) with steps 2 of the first and 1 and 2 of the second example masked.
Tensor masked_steps(uint64_t seed = 1) {
  const random::Generator generator(seed);
  const Tensor keep =
      cast(Tensor::from(std::vector<bool>{true, true, false, true, false, false}, {2, 3, 1}), DType::float32);
  return layers::Masking()(random::normal({2, 3, 2}, {.generator = &generator}) * keep);
}

TEST(Masks, MaskingAndEmbeddingMakeThem) {
  EXPECT_THAT(mask_values(masked_steps()), ElementsAre(true, true, false, true, false, false));
  const Layer embedding = layers::Embedding(4, 2, {.mask_zero = true});
  EXPECT_THAT(mask_values(embedding(Tensor::from({0, 3, 1}, {1, 3}))), ElementsAre(false, true, true));
  EXPECT_FALSE(mask_of(layers::Embedding(4, 2)(Tensor::from({0, 3}, {1, 2}))).defined());
}

TEST(Masks, GoThroughLayersThatKnowThemAndEndInOthers) {
  const Tensor x = masked_steps();
  for (const Layer& layer : {layers::Dropout(0.5), layers::Activation("relu"), layers::BatchNormalization(),
                             layers::LayerNormalization(), layers::Dense(3), layers::Identity()})
    EXPECT_EQ(mask_values(layer(x)), mask_values(x)) << layer.class_name();
  for (const Layer& layer : {layers::Flatten(), layers::Permute({2, 1}), layers::Reshape({6})})
    EXPECT_FALSE(mask_of(layer(x)).defined()) << layer.class_name();
}

TEST(Masks, OfMergedInputsAreJoined) {
  const Tensor x = masked_steps(), plain = ones({2, 3, 2});
  EXPECT_EQ(mask_values(layers::Add()({x, x})), mask_values(x));
  EXPECT_FALSE(mask_of(layers::Add()({x, plain})).defined());
  EXPECT_THAT(mask_values(layers::Concatenate({.axis = 1})({x, plain})),
              ElementsAre(true, true, false, true, true, true, true, false, false, true, true, true));
  EXPECT_THAT(mask_values(layers::Concatenate()({x, plain})),
              ElementsAre(true, true, true, true, true, true));
}

TEST(Masks, MultiplyTakesMaskedFactorsAsOne) {
  const Tensor mask = Tensor::from(std::vector<bool>{true, false}, {1, 2});
  const Layer masks = layers::Lambda([](const Tensor& x) { return identity(x); },
                                     {.mask = [&](const TensorList&, const TensorList&) { return mask; }});
  const Tensor x = Tensor::from({2.f, 3.f}, {1, 2, 1}), y = Tensor::from({5.f, 7.f}, {1, 2, 1});
  expect_floats(layers::Multiply()({masks(x), y}), {10, 7});
  expect_floats(layers::Multiply()({masks(x), masks(y)}), {10, 0});
  expect_floats(layers::Maximum()({masks(y), x}), {5, 3});
}

TEST(Masks, SoftmaxLeavesOutWhatIsMasked) {
  const Tensor mask = Tensor::from(std::vector<bool>{true, true, false}, {1, 3});
  expect_floats(layers::Softmax()(Tensor::from({1.f, 1.f, 9.f}, {1, 3}), {.mask = mask}), {0.5f, 0.5f, 0});
}

// Keys that are masked might as well not be there.
TEST(Masks, AttentionDoesNotSeeMaskedKeys) {
  const random::Generator generator(3);
  const Tensor query = random::normal({1, 2, 4}, {.generator = &generator});
  const Tensor value = random::normal({1, 3, 4}, {.generator = &generator});
  const Tensor shorter = slice(value, {0, 0, 0}, {1, 2, 4});
  const Layer masks = layers::Lambda([](const Tensor& x) { return identity(x); },
                                     {.mask = [](const TensorList&, const TensorList&) {
                                       return Tensor::from(std::vector<bool>{true, true, false}, {1, 3});
                                     }});
  for (const Layer& layer : {layers::MultiHeadAttention(2, 3), layers::GroupQueryAttention(2, 4, 2),
                             layers::Attention(), layers::AdditiveAttention()})
    expect_floats(layer({query, masks(value)}), floats(layer({query, shorter})));
}

TEST(Masks, AttentionMasksAndCausalityAgree) {
  const random::Generator generator(3);
  const Tensor x = random::normal({2, 3, 4}, {.generator = &generator});
  const Tensor lower =
      Tensor::from(std::vector<bool>{true, false, false, true, true, false, true, true, true}, {1, 3, 3});
  for (const Layer& layer : {layers::MultiHeadAttention(2, 3), layers::GroupQueryAttention(2, 4, 2)})
    expect_floats(layer({x, x}, {.use_causal_mask = true}), floats(layer({x, x}, {.attention_mask = lower})));
}

TEST(Masks, TheResultOfAttentionCarriesTheQuerys) {
  const Tensor x = masked_steps(), plain = ones({2, 3, 2});
  for (const Layer& layer : {layers::MultiHeadAttention(2, 3), layers::Attention()}) {
    EXPECT_EQ(mask_values(layer({x, plain})), mask_values(x)) << layer.class_name();
    EXPECT_FALSE(mask_of(layer({plain, x})).defined()) << layer.class_name();
  }
}

// --- values ------------------------------------------------------------------------------------------------

TEST(Values, EmbeddingCastsFloatsToIndicesAndTakesGivenWeights) {
  const Layer layer = layers::Embedding(3, 1, {.weights = Tensor::from({10.f, 11.f, 12.f}, {3, 1})});
  expect_floats(layer(vector({2, 0, 1.9f})), {12, 10, 11});
  EXPECT_THAT(error_of([&] {
                layer(vector({2, NAN}));
              }).what(),
              ::testing::HasSubstr("the index at position (1,) is no whole number, but there are 3 rows"));
}

TEST(Values, DotSumsOverOneAxisOfEach) {
  const Tensor x = Tensor::from({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {1, 3, 2});
  const Tensor y = Tensor::from({1.f, 0.f, 1.f, 0.f, 1.f, 0.f}, {1, 2, 3});
  expect_floats(layers::Dot({1, 2})({x, y}), {6, 3, 8, 4});
  expect_floats(layers::Dot(1)({Tensor::from({3.f, 4.f}, {1, 2}), Tensor::from({1.f, 2.f}, {1, 2})}), {11});
  expect_floats(layers::Dot(1, {.normalize = true})(
                    {Tensor::from({3.f, 4.f}, {1, 2}), Tensor::from({0.f, 2.f}, {1, 2})}),
                {0.8f});
}

// The kernel (4, 2, 3) takes 4 inputs to 6 outputs, whatever its rank.
TEST(Values, EinsumDenseTellsInitializersItsInputsAndOutputs) {
  const Layer layer = layers::EinsumDense("abc,cde->abde", {-1, 20, 30});
  layer.build({-1, 5, 40});
  const float limit = std::sqrt(6.0f / (40 + 600));
  float largest = 0;
  for (const float w : floats(layer.get_weights()[0])) largest = std::max(largest, std::abs(w));
  EXPECT_LT(largest, limit);
  EXPECT_GT(largest, 0.98f * limit);
}

TEST(Values, SpectralNormalizationBringsTheLargestSingularValueToOne) {
  const Layer inner = layers::Dense(2, {.use_bias = false});
  const Layer layer = layers::SpectralNormalization(inner, {.power_iterations = 50});
  layer.build({-1, 2});
  inner.set_weights({Tensor::from({3.f, 0.f, 0.f, 1.f}, {2, 2})});
  layer(ones({1, 2}));
  expect_floats(inner.get_weights()[0], {3, 0, 0, 1});
  layer(ones({1, 2}), {.training = true});
  expect_floats(inner.get_weights()[0], {1, 0, 0, 1 / 3.0f});
}

TEST(Values, NormalizationLearnsFromData) {
  const layers::AdaptableLayer layer = layers::Normalization();
  layer.adapt(Tensor::from({1.f, 10.f, 3.f, 30.f}, {2, 2}));
  expect_floats(layer(Tensor::from({2.f, 40.f}, {1, 2})), {0, 2});
  layer.adapt(Tensor::from({0.f, 0.f, 2.f, 2.f}, {2, 2}));
  expect_floats(layer(Tensor::from({2.f, 3.f}, {1, 2})), {1, 2});
  EXPECT_THROW(layer.adapt(ones({2, 3})), Error);
}

TEST(Values, WholeNumbersAreTakenBesideFloats) {
  const Tensor counts = Tensor::from<int64_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Layer dense = layers::Dense(1, {.kernel_initializer = "ones"});
  expect_floats(dense(counts), {6, 15});
  expect_floats(dense(cast(counts, DType::uint8)), {6, 15});
  const Layer einsum = Layer::deserialize(Json::parse(
      R"({"class_name": "EinsumDense", "config": {"equation": "ab,bc->ac", "output_shape": 1, "kernel_initializer": "ones"}})"));
  expect_floats(einsum(counts), {6, 15});
  const Tensor halves = Tensor::from({0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f}, {2, 3});
  expect_floats(layers::Multiply()(TensorList{counts, halves}), {0.5, 1, 1.5, 2, 2.5, 3});
  expect_floats(layers::Concatenate({.axis = 0})(TensorList{halves, counts}),
                {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(layers::Add()(TensorList{counts, counts}).dtype(), DType::int64);
  expect_floats(layers::GlobalAveragePooling1D()(reshape(counts, {2, 3, 1})), {2, 5});
}

TEST(Values, AxesFromTheEndAreTheLastOfInputsOfAnyRank) {
  const layers::AdaptableLayer layer = layers::Normalization();
  layer.adapt(Tensor::from({1.f, 10.f, 3.f, 30.f}, {2, 2}));
  const Tensor x = Tensor::from({2.f, 40.f, 3.f, 20.f}, {1, 1, 2, 2});
  expect_floats(layer(x), {0, 2, 1, 0});
  const Tensor images = Tensor::from({1.f, 10.f, 3.f, 30.f, 5.f, 50.f, 7.f, 70.f}, {2, 2, 2});
  layer.adapt(images);
  expect_floats(layer(Tensor::from({4.f, 40.f}, {1, 2})), {0, 0});
  const layers::AdaptableLayer built_for_images = layers::Normalization();
  built_for_images.build({-1, 2, 2});
  built_for_images.adapt(Tensor::from({1.f, 10.f, 3.f, 30.f}, {2, 2}));
  expect_floats(built_for_images(x), {0, 2, 1, 0});
  const layers::AdaptableLayer of_two_axes = layers::Normalization({.axis = {1, 2}});
  of_two_axes.build({-1, 2, 2});
  EXPECT_THAT(error_of([&] { of_two_axes.adapt(ones({4})); }).what(),
              ::testing::HasSubstr("built for inputs of rank 3"));
  for (const Layer& of_rank_3 : {layers::RMSNormalization(), layers::LayerNormalization()}) {
    of_rank_3.build({-1, 3, 2});
    const Layer of_rank_4 = Layer::deserialize(of_rank_3.serialize());
    expect_floats(of_rank_3(x), floats(of_rank_4(x)));
  }
}

TEST(Values, VocabulariesOfIntegersAreReplaced) {
  const Layer layer = layers::IntegerLookup({.vocabulary = {5, 6}});
  layers::set_vocabulary(layer, {-1, 7, 8});
  EXPECT_THAT(layers::get_vocabulary(layer), ElementsAre(-1, 7, 8));
  EXPECT_THAT(layer(Tensor::from<int64_t>({8, 5}, {2})).to_vector<int64_t>(), ElementsAre(2, 0));
  EXPECT_THROW(layers::set_vocabulary(layer, {7, 7}), Error);
  EXPECT_THROW(layers::set_vocabulary(layer, {}), Error);
  EXPECT_THROW(layers::set_vocabulary(layers::Dense(2), {7}), Error);
}

TEST(Values, TextsThatOthersHaveSplit) {
  layers::TextVectorization vectorize({.split = {}, .ngrams = {1, 2}});
  using Rows = std::vector<std::vector<std::string>>;
  vectorize.adapt(Rows{{"a b", "c"}, {"c"}});
  EXPECT_THAT(vectorize.get_vocabulary(), ElementsAre("", "[UNK]", "c", "a b c", "a b"));
  EXPECT_THAT(vectorize(Rows{{"a b", "c"}, {"x"}}).to_vector<int64_t>(), ElementsAre(4, 2, 3, 1, 0, 0));
}

TEST(Values, DiscretizationPutsBoundariesIntoTheBinAbove) {
  const Layer layer = layers::Discretization({.bin_boundaries = std::vector{0.0, 1.0}});
  EXPECT_THAT(layer(vector({-1, 0, 0.5f, 1, 7})).to_vector<int32_t>(), ElementsAre(0, 1, 1, 2, 2));
}

TEST(Values, ActivityPenaltiesAreMeansOverTheBatch) {
  const Layer layer = layers::ActivityRegularization({.l1 = 1, .l2 = 2});
  layer(Tensor::from({1.f, -2.f, 3.f, 0.f}, {2, 2}));
  EXPECT_FLOAT_EQ(layer.losses().at(0).item<float>(), (6 + 2 * 14) / 2.0f);
}

// Nested lists of numbers as a tensor.
void flatten(const Json& json, size_t depth, Dims& shape, std::vector<float>& values) {
  if (!json.is_list()) {
    values.push_back(static_cast<float>(json.as_double()));
    return;
  }
  if (static_cast<size_t>(shape.rank()) <= depth) shape.push_back(static_cast<int64_t>(json.items().size()));
  for (const Json& item : json.items()) flatten(item, depth + 1, shape, values);
}
Tensor tensor_of(const Json& json) {
  Dims shape;
  std::vector<float> values;
  flatten(json, 0, shape, values);
  return Tensor::from(values, shape);
}

TEST(Values, PreparationOfTablesAgreesWithKeras) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/preprocessing.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " has not been recorded";
  const Json file = Json::read_file(path);
  int compared = 0;
  for (const Json& row : file.at("tables").items()) {
    const std::string name = row.at("class_name").as_string();
    if (name != "CategoryEncoding" && name != "Discretization" && name != "Normalization") continue;
    SCOPED_TRACE(row.dump());
    const Json made = Json::object({{"class_name", name}, {"config", row.at("arguments")}});
    const layers::AdaptableLayer layer(Layer::deserialize(made).base());
    if (!row.at("adapt").is_null()) layer.adapt(tensor_of(row.at("adapt")));
    const Tensor y = layer(tensor_of(row.at("x")));
    const Tensor want = tensor_of(row.at("y"));
    EXPECT_EQ(y.shape(), want.shape());
    expect_floats(cast(y, DType::float32), floats(want));
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

// --- errors ------------------------------------------------------------------------------------------------

struct Refused {
  const char* says;
  std::function<void()> call;
};

TEST(Errors, NameTheLayerAndTheRule) {
  using namespace layers;  // NOLINT(google-build-using-namespace)
  const std::vector<Refused> table = {
      {"units must be positive", [] { Dense(0); }},
      {"rate must be from 0 to 1", [] { Dropout(1.5); }},
      {"noise_shape", [] { Dropout(0.5, {.noise_shape = Shape{0}}); }},
      {"stddev must be from 0 to 1", [] { GaussianNoise(-1); }},
      {"at most one -1",
       [] {
         Reshape({-1, -1});
       }},
      {"do not fit target_shape",
       [] {
         Reshape({4})(ones({2, 3}));
       }},
      {"do not fit target_shape",
       [] {
         Reshape({int64_t{1} << 40, int64_t{1} << 40})(ones({2, 3}));
       }},
      {"more bytes than can be counted",
       [] {
         Flatten()(Input({28, INT64_MAX}));
       }},
      {"counted from 1",
       [] {
         Permute({0, 1});
       }},
      {"takes inputs of rank 3",
       [] {
         Permute({2, 1})(ones({2, 3}));
       }},
      {"n must be positive", [] { RepeatVector(0); }},
      {"input_dim must be positive", [] { Embedding(0, 2); }},
      {"weights must be of shape",
       [] {
         Embedding(3, 2, {.weights = ones({2, 2})});
       }},
      {"must have the form", [] { EinsumDense("abc", {1}); }},
      {"is in neither the input nor the kernel",
       [] {
         EinsumDense("ab,bc->ad", {1})(ones({2, 3}));
       }},
      {"is 3 in the input",
       [] {
         EinsumDense("abc,cd->abd", {4, 5})(ones({2, 3, 4}));
       }},
      {"negative_slope must be at least 0", [] { LeakyReLU({.negative_slope = -1}); }},
      {"do not broadcast",
       [] {
         Add()({ones({2, 3}), ones({2, 4})});
       }},
      {"batches of 2 and of 3",
       [] {
         Add()({ones({2, 3}), ones({3, 3})});
       }},
      {"takes 2 inputs, received 3",
       [] {
         Subtract()({ones({2}), ones({2}), ones({2})});
       }},
      {"differ beside axis",
       [] {
         Concatenate({.axis = 1})({ones({2, 3, 4}), ones({2, 3, 5})});
       }},
      {"differ in size",
       [] {
         Dot(1)({ones({2, 3}), ones({2, 4})});
       }},
      {"is the batch",
       [] {
         Dot(0)({ones({2, 3}), ones({2, 3})});
       }},
      {"do not make 3 groups",
       [] {
         GroupNormalization({.groups = 3})(ones({2, 4}));
       }},
      {"one dimension less",
       [] {
         BatchNormalization()(ones({2, 3}), {.mask = ones({2, 3}, DType::boolean)});
       }},
      {"neither a kernel nor embeddings",
       [] {
         SpectralNormalization(Flatten())(ones({2, 3}));
       }},
      {"num_heads must be positive", [] { MultiHeadAttention(0, 3); }},
      {"takes {query, value}",
       [] {
         MultiHeadAttention(2, 3)(ones({2, 3, 4}));
       }},
      {"alike but for the last dimension",
       [] {
         MultiHeadAttention(2, 3)({ones({2, 3, 4}), ones({2, 3, 4}), ones({2, 4, 4})});
       }},
      {"multiple of num_key_value_heads", [] { GroupQueryAttention(2, 3, 2); }},
      {"score_mode must be dot or concat", [] { layers::Attention({.score_mode = "sum"}); }},
      {"both be given", [] { Normalization({.mean = 1}); }},
      {"num_tokens must be positive", [] { CategoryEncoding(0); }},
      {"not both", [] { Discretization({.bin_boundaries = std::vector{0.0}, .num_bins = 3}); }},
      {"call adapt() first", [] { Discretization({.num_bins = 3})(ones({2})); }},
      {"cannot be written", [] { Lambda([](const Tensor& x) { return x; }).serialize(); }},
      {"cannot be read",
       [] { Layer::deserialize(Json::parse(R"({"class_name": "Lambda", "config": {}})")); }},
  };
  for (const Refused& row : table) {
    try {
      row.call();
      ADD_FAILURE() << "nothing was refused: " << row.says;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(row.says));
    }
  }
}

}  // namespace
}  // namespace lockstep::keras
