#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

KerasTensor batch_normalised(const KerasTensor& x, const std::string& name) {
  return layers::BatchNormalization({.momentum = 0.999, .name = name})(x);
}
KerasTensor limited(const KerasTensor& x, const std::string& name) {
  return layers::ReLU({.max_value = 6, .name = name})(x);
}
KerasTensor channels_mixed(const KerasTensor& x, int64_t filters, const std::string& name) {
  return layers::Conv2D(filters, 1, {.padding = "same", .use_bias = false, .name = name})(x);
}

KerasTensor block(const KerasTensor& input, int64_t filters, int64_t stride, int number) {
  const std::string prefix = number == 0 ? "expanded_conv_" : "block_" + std::to_string(number) + "_";
  KerasTensor x = input;
  if (number > 0) {
    x = channels_mixed(x, 6 * input.shape()[3], prefix + "expand");
    x = limited(batch_normalised(x, prefix + "expand_BN"), prefix + "expand_relu");
  }
  if (stride == 2) x = padded_for_stride(x, 3, prefix + "pad");
  x = layers::DepthwiseConv2D(3, {.strides = stride,
                                  .padding = stride == 1 ? "same" : "valid",
                                  .use_bias = false,
                                  .name = prefix + "depthwise"})(x);
  x = limited(batch_normalised(x, prefix + "depthwise_BN"), prefix + "depthwise_relu");
  x = batch_normalised(channels_mixed(x, filters, prefix + "project"), prefix + "project_BN");
  if (stride == 2 || input.shape()[3] != filters) return x;
  return layers::Add({.name = prefix + "add"})(KerasTensorList{input, x});
}

}  // namespace

Model mobilenet_v2(const ImageOptions& given, std::source_location where) {
  const CallSite site(where);
  const ImageOptions options = checked("mobilenet_v2", given, 224, 32);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x =
      layers::Conv2D(32, 3, {.strides = 2, .padding = "same", .use_bias = false, .name = "Conv1"})(input);
  x = limited(batch_normalised(x, "bn_Conv1"), "Conv1_relu");
  struct Stage {
    int64_t filters, stride, blocks;
  };
  int number = 0;
  for (const Stage stage :
       {Stage{16, 1, 1}, {24, 2, 2}, {32, 2, 3}, {64, 2, 4}, {96, 1, 3}, {160, 2, 3}, {320, 1, 1}})
    for (int64_t i = 0; i < stage.blocks; ++i)
      x = block(x, stage.filters, i == 0 ? stage.stride : 1, number++);
  x = layers::Conv2D(1280, 1, {.use_bias = false, .name = "Conv_1"})(x);
  x = limited(batch_normalised(x, "Conv_1_bn"), "out_relu");
  return {input, ending(x, options, {.top = "", .average = "", .max = ""}), {.name = options.name}};
}

}  // namespace lockstep::keras::applications
