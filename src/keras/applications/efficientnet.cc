#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

constexpr double kDropped = 0.2;  // of the classifier's inputs, and of the last block's results

Initializer convolutions_begin() {
  return initializers::VarianceScaling({.scale = 2, .mode = "fan_out", .distribution = "truncated_normal"});
}

KerasTensor pointwise(const KerasTensor& x, int64_t filters, const std::string& name,
                      const Activation& activation = {}, bool use_bias = false) {
  return layers::Conv2D(filters, 1,
                        {.padding = "same",
                         .activation = activation,
                         .use_bias = use_bias,
                         .kernel_initializer = convolutions_begin(),
                         .name = name})(x);
}

KerasTensor normalised(const KerasTensor& x, const std::string& name) {
  return layers::BatchNormalization({.name = name})(x);
}
KerasTensor activated(const KerasTensor& x, const std::string& normalisation, const std::string& name) {
  return layers::Activation("swish", {.name = name})(normalised(x, normalisation));
}

// Feature maps weighed by what two small layers make of their means.
KerasTensor excited(const KerasTensor& x, int64_t squeezed, const std::string& name) {
  const int64_t filters = x.shape()[3];
  KerasTensor weights = layers::GlobalAveragePooling2D({.name = name + "se_squeeze"})(x);
  weights = layers::Reshape({1, 1, filters}, {.name = name + "se_reshape"})(weights);
  weights = pointwise(weights, squeezed, name + "se_reduce", "swish", true);
  weights = pointwise(weights, filters, name + "se_expand", "sigmoid", true);
  return layers::Multiply({.name = name + "se_excite"})(KerasTensorList{x, weights});
}

struct Stage {
  int64_t kernel_size, blocks, filters, expansion, stride;
};
constexpr Stage kStages[] = {{3, 1, 16, 1, 1},  {3, 2, 24, 6, 2},  {5, 2, 40, 6, 2}, {3, 3, 80, 6, 2},
                             {5, 3, 112, 6, 1}, {5, 4, 192, 6, 2}, {3, 1, 320, 6, 1}};

KerasTensor block(const KerasTensor& input, const Stage& stage, int64_t stride, double dropped,
                  const std::string& name) {
  const int64_t incoming = input.shape()[3];
  KerasTensor x = input;
  if (stage.expansion != 1) {
    x = pointwise(x, incoming * stage.expansion, name + "expand_conv");
    x = activated(x, name + "expand_bn", name + "expand_activation");
  }
  if (stride == 2) x = padded_for_stride(x, stage.kernel_size, name + "dwconv_pad");
  x = layers::DepthwiseConv2D(stage.kernel_size, {.strides = stride,
                                                  .padding = stride == 2 ? "valid" : "same",
                                                  .use_bias = false,
                                                  .depthwise_initializer = convolutions_begin(),
                                                  .name = name + "dwconv"})(x);
  x = activated(x, name + "bn", name + "activation");
  x = excited(x, std::max<int64_t>(1, incoming / 4), name);
  x = normalised(pointwise(x, stage.filters, name + "project_conv"), name + "project_bn");
  if (stride != 1 || incoming != stage.filters) return x;
  // Whole examples go without the block.
  if (dropped > 0)
    x = layers::Dropout(dropped, {.noise_shape = Shape{-1, 1, 1, 1}, .name = name + "drop"})(x);
  return layers::Add({.name = name + "add"})(KerasTensorList{x, input});
}

}  // namespace

Model efficientnet_b0(const ImageOptions& given, std::source_location where) {
  const CallSite site(where);
  const ImageOptions options = checked("efficientnet_b0", given, 224, 32);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = layers::Rescaling(1.0 / 255)(input);
  x = layers::Normalization()(x);
  x = padded_for_stride(x, 3, "stem_conv_pad");
  x = layers::Conv2D(
      32, 3,
      {.strides = 2, .use_bias = false, .kernel_initializer = convolutions_begin(), .name = "stem_conv"})(x);
  x = activated(x, "stem_bn", "stem_activation");
  int64_t blocks = 0, number = 0;
  for (const Stage& stage : kStages) blocks += stage.blocks;
  for (size_t s = 0; s < std::size(kStages); ++s) {
    for (int64_t i = 0; i < kStages[s].blocks; ++i, ++number)
      x = block(x, kStages[s], i == 0 ? kStages[s].stride : 1,
                kDropped * static_cast<double>(number) / static_cast<double>(blocks),
                "block" + std::to_string(s + 1) + static_cast<char>('a' + i) + "_");
  }
  x = activated(pointwise(x, 1280, "top_conv"), "top_bn", "top_activation");
  if (!options.include_top) return {input, pooled(x, options.pooling, {}), {.name = options.name}};
  x = layers::GlobalAveragePooling2D({.name = "avg_pool"})(x);
  x = layers::Dropout(kDropped, {.name = "top_dropout"})(x);
  x = layers::Dense(options.classes, {.activation = options.classifier_activation,
                                      .kernel_initializer = initializers::VarianceScaling(
                                          {.scale = 1.0 / 3, .mode = "fan_out", .distribution = "uniform"}),
                                      .name = "predictions"})(x);
  return {input, x, {.name = options.name}};
}

}  // namespace lockstep::keras::applications
