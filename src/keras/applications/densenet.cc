#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

constexpr int64_t kGrowth = 32;  // feature maps that each block adds

KerasTensor convolution(const KerasTensor& x, int64_t filters, int64_t size, int64_t stride,
                        const std::string& name) {
  return layers::Conv2D(
      filters, size,
      {.strides = stride, .padding = stride == 1 ? "same" : "valid", .use_bias = false, .name = name})(x);
}

KerasTensor stage(KerasTensor x, int64_t blocks, const std::string& name) {
  for (int64_t i = 1; i <= blocks; ++i) {
    const std::string block = name + "_block" + std::to_string(i);
    KerasTensor y = normalised_relu(x, block + "_0_bn", block + "_0_relu");
    y = convolution(y, 4 * kGrowth, 1, 1, block + "_1_conv");
    y = normalised_relu(y, block + "_1_bn", block + "_1_relu");
    y = convolution(y, kGrowth, 3, 1, block + "_2_conv");
    x = layers::Concatenate({.name = block + "_concat"})(KerasTensorList{x, y});
  }
  return x;
}

// Half as many feature maps, of half the size.
KerasTensor transition(KerasTensor x, const std::string& name) {
  const int64_t filters = x.shape()[3] / 2;
  x = normalised_relu(x, name + "_bn", name + "_relu");
  x = convolution(x, filters, 1, 1, name + "_conv");
  return layers::AveragePooling2D({.strides = 2, .name = name + "_pool"})(x);
}

}  // namespace

Model densenet121(const ImageOptions& given, std::source_location where) {
  const CallSite site(where);
  const ImageOptions options = checked("densenet121", given, 224, 32);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = layers::ZeroPadding2D(3)(input);
  x = convolution(x, 64, 7, 2, "conv1_conv");
  x = normalised_relu(x, "conv1_bn", "conv1_relu");
  x = layers::ZeroPadding2D(1)(x);
  x = layers::MaxPooling2D({.pool_size = 3, .strides = 2, .name = "pool1"})(x);
  x = transition(stage(x, 6, "conv2"), "pool2");
  x = transition(stage(x, 12, "conv3"), "pool3");
  x = transition(stage(x, 24, "conv4"), "pool4");
  x = normalised_relu(stage(x, 16, "conv5"), "bn", "relu");
  return {input, ending(x, options), {.name = options.name}};
}

}  // namespace lockstep::keras::applications
