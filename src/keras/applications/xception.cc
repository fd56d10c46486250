#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

KerasTensor activated(const KerasTensor& x, const std::string& name) {
  return layers::Activation("relu", {.name = name + "_act"})(x);
}
KerasTensor convolution(const KerasTensor& x, int64_t filters, int64_t stride, const std::string& name) {
  const KerasTensor y = layers::Conv2D(filters, 3, {.strides = stride, .use_bias = false, .name = name})(x);
  return activated(layers::BatchNormalization({.name = name + "_bn"})(y), name);
}
KerasTensor separable(const KerasTensor& x, int64_t filters, const std::string& name) {
  const KerasTensor y =
      layers::SeparableConv2D(filters, 3, {.padding = "same", .use_bias = false, .name = name})(x);
  return layers::BatchNormalization({.name = name + "_bn"})(y);
}

std::string block(int number) { return "block" + std::to_string(number); }

// Half the size, beside a projection that is added. The first such block has no activation in front, as the
// network's stem ends in one.
KerasTensor halving(const KerasTensor& input, int64_t inner, int64_t filters, int number) {
  const std::string name = block(number);
  const KerasTensor projected = layers::BatchNormalization()(
      layers::Conv2D(filters, 1, {.strides = 2, .padding = "same", .use_bias = false})(input));
  KerasTensor x = number == 2 ? input : activated(input, name + "_sepconv1");
  x = separable(x, inner, name + "_sepconv1");
  x = separable(activated(x, name + "_sepconv2"), filters, name + "_sepconv2");
  x = layers::MaxPooling2D({.pool_size = 3, .strides = 2, .padding = "same", .name = name + "_pool"})(x);
  return layers::Add()(KerasTensorList{x, projected});
}

}  // namespace

Model xception(const ImageOptions& given, std::source_location where) {
  const CallSite site(where);
  const ImageOptions options = checked("xception", given, 299, 71);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = convolution(input, 32, 2, "block1_conv1");
  x = convolution(x, 64, 1, "block1_conv2");
  x = halving(x, 128, 128, 2);
  x = halving(x, 256, 256, 3);
  x = halving(x, 728, 728, 4);
  for (int number = 5; number <= 12; ++number) {
    KerasTensor y = x;
    for (const char* part : {"_sepconv1", "_sepconv2", "_sepconv3"})
      y = separable(activated(y, block(number) + part), 728, block(number) + part);
    x = layers::Add()(KerasTensorList{y, x});
  }
  x = halving(x, 728, 1024, 13);
  for (const auto& [name, filters] :
       {std::pair("block14_sepconv1", 1536), std::pair("block14_sepconv2", 2048)})
    x = activated(separable(x, filters, name), name);
  return {input, ending(x, options, {.average = "", .max = ""}), {.name = options.name}};
}

}  // namespace lockstep::keras::applications
