// Which rewrites a training step of each kind of network meets on a GPU. Nothing runs there: the graph is all
// that is looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/passes/passes.h"
#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/device/config.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/model.h"
#include "ops/nn/batch_norm.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/normalize.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;

// What the CUDA plugin's kernels say of 16-bit operands, where the plugin is not there to say it.
void stand_in(const OpDef& op, uint32_t narrow_inputs, uint32_t narrow_outputs) {
  if (!registered_kernel(DeviceKind::gpu, op))
    RegisterKernel(DeviceKind::gpu, op, {.narrow_inputs = narrow_inputs, .narrow_outputs = narrow_outputs});
}

class Rewrites : public ::testing::Test {
 protected:
  void SetUp() override {
    config::list_physical_devices();  // loads the plugin
    stand_in(kBatchMoments, 0b1, 0);
    stand_in(kBatchNormSums, 0b101, 0);
    stand_in(kLayerNorm, 0b1, 0b1);
    stand_in(kLayerNormGrad, 0b110001, 0b1);
    stand_in(kSparseCrossEntropyWithGrad, 0b1, 0b10);
  }
  void TearDown() override { keras::mixed_precision::set_global_policy("float32"); }

  // Of the gradients of a step with integer labels.
  static std::vector<std::string_view> applied_to(const keras::Model& model, const TensorSpec& x,
                                                  const TensorSpec& labels) {
    const Graph graph = traced({x, labels}, [&](const TensorList& p) {
      GradientTape tape;
      const Tensor logits = model(p[0], {.training = true});
      const Tensor loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})(p[1], logits);
      TensorList results = tape.gradient(loss, model.trainable_weights());
      results.push_back(loss);
      return results;
    });
    std::vector<std::string_view> applied;
    const Graph simple = compile::simplify(graph, false);
    compile::apply_rewrites(simple, DeviceKind::gpu, &applied);
    return applied;
  }
};

TEST_F(Rewrites, OfAPerceptron) {
  EXPECT_THAT(applied_to(keras::applications::mlp(), {DType::float32, {8, 784}}, {DType::int32, {8}}),
              ElementsAre("join_losses"));
}

TEST_F(Rewrites, OfLenet) {
  EXPECT_THAT(applied_to(keras::applications::lenet(), {DType::float32, {2, 28, 28, 1}}, {DType::int32, {2}}),
              ElementsAre("join_losses"));
}

TEST_F(Rewrites, OfAResnetIn16Bits) {
  keras::mixed_precision::set_global_policy("mixed_bfloat16");
  const keras::Model model =
      keras::applications::resnet50({.input_shape = {32, 32, 3}, .width = 8, .stem = "imagenet"});
  EXPECT_THAT(
      applied_to(model, {DType::float32, {2, 32, 32, 3}}, {DType::int32, {2}}),
      ElementsAre("join_losses", "pad_in_convolution", "pad_in_pooling", "absorb_casts", "fuse_relu_masks"));
}

TEST_F(Rewrites, OfAGptIn16Bits) {
  keras::mixed_precision::set_global_policy("mixed_bfloat16");
  const keras::Model model = keras::applications::gpt_tiny({.context = 8, .dim = 16});
  EXPECT_THAT(applied_to(model, {DType::int32, {2, 8}}, {DType::int32, {2, 8}}),
              ElementsAre("join_losses", "absorb_casts", "fuse_addends"));
}

}  // namespace
}  // namespace lockstep::testing
