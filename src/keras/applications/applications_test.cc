#include "lockstep/keras/applications.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/keras/clear_session.h"
#include "lockstep/keras/layers.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras::applications {
namespace {

int64_t trainable_params(const Model& model) {
  int64_t total = 0;
  for (const Variable& weight : model.trainable_weights()) total += weight.shape().size();
  return total;
}

// The same network can be written, read back, and has the same weights in the same order.
void expect_round_trip(const Model& model) {
  const Model copy = Model::from_json(model.to_json());
  EXPECT_EQ(copy.to_json(), model.to_json());
  const std::vector<Variable> weights = model.weights();
  const std::vector<Variable> copied = copy.weights();
  ASSERT_EQ(copied.size(), weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(copied[i].name(), weights[i].name());
    EXPECT_EQ(copied[i].shape(), weights[i].shape());
  }
}

// Steps on one batch lower its loss.
void expect_learns(const Model& model, const Tensor& x, const Tensor& y, int steps = 3) {
  model.compile({.optimizer = optimizers::Adam({.learning_rate = 1e-3}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const double before = *model.train_on_batch({{x}, {y}, {}}).find("loss");
  double after = before;
  for (int i = 0; i < steps; ++i) after = *model.train_on_batch({{x}, {y}, {}}).find("loss");
  EXPECT_LT(after, before);
}

Tensor images(const Shape& shape) { return random::uniform(shape); }
Tensor labels(int64_t count, int64_t classes) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(i % classes));
  return Tensor::from(values, {count});
}

class Applications : public ::testing::Test {
 protected:
  void SetUp() override { random::set_seed(7); }
};

TEST_F(Applications, Mlp) {
  const Model model = mlp();
  EXPECT_EQ(model.count_params(), 784 * 128 + 128 + 128 * 10 + 10);
  EXPECT_EQ(model(images({4, 784})).shape(), (Shape{4, 10}));
  expect_round_trip(model);
  expect_learns(model, images({8, 784}), labels(8, 10));
}

TEST_F(Applications, MlpFlattensImagesAndMayBeLinear) {
  EXPECT_EQ(mlp({.input_shape = {28, 28}})(images({2, 28, 28})).shape(), (Shape{2, 10}));
  EXPECT_EQ(mlp({.hidden = {}}).count_params(), 7850);
  EXPECT_EQ(mlp({.hidden = {300, 100}}).count_params(), 266610);
}

TEST_F(Applications, Lenet) {
  const Model model = lenet();
  EXPECT_EQ(model.count_params(), 61706);
  EXPECT_EQ(model(images({2, 28, 28, 1})).shape(), (Shape{2, 10}));
  expect_round_trip(model);
  expect_learns(model, images({8, 28, 28, 1}), labels(8, 10));
}

TEST_F(Applications, Resnet18HasThePublishedSize) {
  const Model model = resnet18({.input_shape = {64, 64, 3}, .classes = 1000, .stem = "imagenet"});
  EXPECT_EQ(trainable_params(model), 11689512);
  EXPECT_EQ(model.count_params(), 11689512 + 2 * 4800);  // and the moving statistics
  EXPECT_EQ(model.model_base().outputs()[0].shape(), (Shape{-1, 1000}));
}

TEST_F(Applications, Resnet18Narrow) {
  const Model model = resnet18({.input_shape = {16, 16, 3}, .width = 4});
  EXPECT_EQ(model(images({2, 16, 16, 3})).shape(), (Shape{2, 10}));
  expect_round_trip(model);
  expect_learns(model, images({8, 16, 16, 3}), labels(8, 10));
}

TEST_F(Applications, Resnet50HasKerasSizeAndNames) {
  const Model model = resnet50({.input_shape = {224, 224, 3}, .classes = 1000, .stem = "imagenet"});
  EXPECT_EQ(model.count_params(), 25636712);
  EXPECT_EQ(trainable_params(model), 25583592);
  for (const char* name :
       {"conv1_pad", "conv1_conv", "conv1_bn", "conv1_relu", "pool1_pad", "pool1_pool", "conv2_block1_0_conv",
        "conv2_block1_0_bn", "conv2_block1_1_conv", "conv2_block1_3_bn", "conv2_block1_add",
        "conv3_block4_out", "conv5_block3_2_relu", "avg_pool", "predictions"})
    EXPECT_EQ(model.get_layer(name).name(), name);
  // Keras' shapes where stages begin.
  EXPECT_EQ(model.model_base().outputs()[0].shape(), (Shape{-1, 1000}));
}

TEST_F(Applications, ResnetsChooseTheirStemByTheSizeOfTheImages) {
  const auto has_pooling = [](const Shape& image, const std::string& stem) {
    const Model model = resnet18({.input_shape = image, .width = 2, .stem = stem});
    return model.to_json().find("pool1_pool") != std::string::npos;
  };
  EXPECT_EQ(ResnetOptions().stem, "auto");
  EXPECT_TRUE(has_pooling({224, 224, 3}, "auto"));
  EXPECT_TRUE(has_pooling({64, 96, 3}, "auto"));
  EXPECT_FALSE(has_pooling({63, 224, 3}, "auto"));
  EXPECT_FALSE(has_pooling({32, 32, 3}, "auto"));
  EXPECT_FALSE(has_pooling({224, 224, 3}, "small")) << "whoever says so means it";
  EXPECT_TRUE(has_pooling({32, 32, 3}, "imagenet"));
}

TEST_F(Applications, Resnet50Narrow) {
  const Model model = resnet50({.input_shape = {16, 16, 3}, .classes = 5, .width = 2});
  EXPECT_EQ(model(images({2, 16, 16, 3})).shape(), (Shape{2, 5}));
  expect_round_trip(model);
  expect_learns(model, images({8, 16, 16, 3}), labels(8, 5));
}

TEST_F(Applications, NetworksOfImagesHaveKerasSizes) {
  EXPECT_EQ(vgg16({.include_top = false}).count_params(), 14714688);
  EXPECT_EQ(vgg19({.include_top = false}).count_params(), 20024384);
  EXPECT_EQ(resnet50_v2({.input_shape = {32, 32, 3}}).count_params(), 25613800);
  EXPECT_EQ(densenet121({.input_shape = {32, 32, 3}}).count_params(), 8062504);
  EXPECT_EQ(mobilenet_v2({.input_shape = {32, 32, 3}}).count_params(), 3538984);
  EXPECT_EQ(efficientnet_b0({.input_shape = {32, 32, 3}}).count_params(), 5330571);
  EXPECT_EQ(inception_v3({.input_shape = {75, 75, 3}}).count_params(), 23851784);
  EXPECT_EQ(xception({.input_shape = {71, 71, 3}}).count_params(), 22910480);
}

TEST_F(Applications, NetworksOfImagesEndAsTheyAreAskedTo) {
  const Tensor x = images({2, 32, 32, 3});
  const ImageOptions small{.input_shape = {32, 32, 3}, .classes = 7};
  EXPECT_EQ(mobilenet_v2(small)(x).shape(), (Shape{2, 7}));
  const Model vgg = vgg16(small);
  EXPECT_EQ(vgg(x).shape(), (Shape{2, 7}));
  EXPECT_EQ(vgg.get_layer("fc2").name(), "fc2");
  EXPECT_EQ(densenet121({.input_shape = {-1, -1, 3}, .include_top = false})(x).shape(),
            (Shape{2, 1, 1, 1024}));
  EXPECT_EQ(efficientnet_b0({.include_top = false, .pooling = "max"}).get_layer("max_pool").name(),
            "max_pool");
  EXPECT_EQ(
      resnet50({.input_shape = {32, 32, 3}, .width = 2, .include_top = false, .pooling = "avg"})(x).shape(),
      (Shape{2, 64}));
  EXPECT_EQ(mobilenet_v2({.input_shape = {32, -1, 3}, .include_top = false})(x).shape(),
            (Shape{2, 1, 1, 1280}));
  EXPECT_EQ(inception_v3().model_base().inputs()[0].shape(), (Shape{-1, 299, 299, 3})) << "the published one";
  expect_round_trip(mobilenet_v2(small));
  expect_learns(mobilenet_v2(small), x, labels(2, 7), 5);
}

TEST_F(Applications, NetworksOfImagesSayWhatTheyTake) {
  const auto message = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message([] {
              xception({.input_shape = {64, 80, 3}});
            }).find("at least 71 x 71 pixels"),
            std::string::npos);
  EXPECT_NE(message([] {
              vgg19({.input_shape = {-1, -1, 3}});
            }).find("images of one size"),
            std::string::npos);
  EXPECT_NE(message([] {
              mobilenet_v2({.input_shape = {32, 32}});
            }).find("(height, width, channels)"),
            std::string::npos);
  EXPECT_NE(message([] { densenet121({.pooling = "mean"}); }).find("\"avg\", \"max\" or empty"),
            std::string::npos);
  EXPECT_NE(message([] { resnet18({.pooling = "mean"}); }).find("\"avg\", \"max\" or empty"),
            std::string::npos);
}

TEST_F(Applications, NamesBeginAnewInAClearedSession) {
  const Layer named = layers::Dense(2);
  utils::clear_session();
  EXPECT_EQ(layers::Dense(2).name(), "dense");
  EXPECT_EQ(layers::Dense(2).name(), "dense_1");
  EXPECT_FALSE(named.name().empty());
}

TEST_F(Applications, VitTinyHasThePublishedSize) {
  // DeiT-Ti has 5,717,416 with a class token and its position; here the patches' mean takes its place.
  const Model model = vit_tiny({.input_shape = {224, 224, 3},
                                .classes = 1000,
                                .patch_size = 16,
                                .dim = 192,
                                .depth = 12,
                                .heads = 3,
                                .mlp_dim = 768});
  EXPECT_EQ(model.count_params(), 5717416 - 2 * 192);
}

TEST_F(Applications, VitTiny) {
  const Model model = vit_tiny();
  EXPECT_EQ(model(images({2, 28, 28, 1})).shape(), (Shape{2, 10}));
  expect_round_trip(model);
  expect_learns(model, images({8, 28, 28, 1}), labels(8, 10));
}

TEST_F(Applications, GptTiny) {
  const Model model = gpt_tiny();
  const int64_t attention = 4 * (64 * 64 + 64);
  const int64_t dense = 64 * 256 + 256 + 256 * 64 + 64;
  EXPECT_EQ(model.count_params(), 256 * 64 + 64 * 64 + 2 * (attention + dense + 4 * 64) + 2 * 64 + 64 * 256);
  const Tensor tokens = reshape(labels(2 * 32, 50), {2, 32});
  EXPECT_EQ(model(tokens).shape(), (Shape{2, 32, 256}));
  expect_round_trip(model);
  expect_learns(model, tokens, tokens);
}

TEST_F(Applications, Gpt2TiesItsLogitsToTheEmbedding) {
  const Model model = gpt2({.vocabulary = 50, .context = 32, .dim = 16, .depth = 1, .heads = 2});
  const int64_t attention = 4 * (16 * 16 + 16), dense = 16 * 64 + 64 + 64 * 16 + 16;
  EXPECT_EQ(model.count_params(), 50 * 16 + 32 * 16 + attention + dense + 4 * 16 + 2 * 16);
  const Tensor tokens = reshape(labels(2 * 32, 50), {2, 32});
  EXPECT_EQ(model(tokens).shape(), (Shape{2, 32, 50}));
  const Layer untied = layers::ReversibleEmbedding(5, 3, {.tie_weights = false});
  EXPECT_EQ(untied(images({2, 4, 3})).shape(), (Shape{2, 4, 5}));
  EXPECT_EQ(untied.weights().size(), 2u);
  expect_round_trip(model);
  expect_learns(model, tokens, tokens);
}

TEST_F(Applications, Resnet50OfLaterVersionsHasNoBiases) {
  const ResnetOptions small{.input_shape = {16, 16, 3}, .width = 4};
  ResnetOptions later = small;
  later.version = "v1.5";
  const Model first = resnet50(small), second = resnet50(later);
  int64_t biases = 0;
  for (const Variable& weight : first.weights())
    if (weight.name().ends_with("conv/bias")) biases += weight.shape().size();
  EXPECT_GT(biases, 0);
  EXPECT_EQ(second.count_params(), first.count_params() - biases);
  expect_round_trip(second);
  later.version = "v2";
  EXPECT_THROW(resnet50(later), Error);
}

TEST_F(Applications, GptTinySeesNoLaterToken) {
  const Model model = gpt_tiny({.vocabulary = 8, .context = 6, .dim = 8, .heads = 2});
  const Tensor a = model(Tensor::from<int32_t>({1, 2, 3, 4, 5, 6}, {1, 6}));
  const Tensor b = model(Tensor::from<int32_t>({1, 2, 3, 7, 0, 7}, {1, 6}));
  EXPECT_EQ(slice(a, {0, 0, 0}, {1, 3, 8}).to_vector<float>(),
            slice(b, {0, 0, 0}, {1, 3, 8}).to_vector<float>());
  EXPECT_NE(slice(a, {0, 3, 0}, {1, 3, 8}).to_vector<float>(),
            slice(b, {0, 3, 0}, {1, 3, 8}).to_vector<float>());
}

TEST_F(Applications, AreMadeByName) {
  for (const std::string& name : names()) {
    const Json options = default_options(name);
    EXPECT_TRUE(options.contains("name")) << name;
    if (name.starts_with("resnet") || name.starts_with("vgg") || name == "gpt2") continue;  // large
    EXPECT_EQ(make(name, options).count_params(), make(name).count_params()) << name;
  }
  EXPECT_EQ(make("mlp", Json::object({{"hidden", Json::List{300, 100}}})).count_params(), 266610);
}

TEST_F(Applications, MistakesAreNamed) {
  const auto message = [](const std::string& name, const Json& options) -> std::string {
    try {
      make(name, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message("lenett", Json::object()).find("did you mean \"lenet\"?"), std::string::npos);
  EXPECT_NE(message("mlp", Json::object({{"hiden", 3}})).find("did you mean \"hidden\"?"), std::string::npos);
  EXPECT_NE(
      message("resnet18", Json::object({{"stem", "large"}})).find("\"imagenet\", \"small\" or \"auto\""),
      std::string::npos);
  EXPECT_NE(message("vit_tiny", Json::object({{"patch_size", 5}})).find("multiples of patch_size 5"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::keras::applications
