#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

// Five blocks of so many convolutions, each with a pooling behind it.
Model vgg(const char* network, const int64_t (&convolutions)[5], const ImageOptions& given) {
  const ImageOptions options = checked(network, given, 224, 32, true);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = input;
  for (int block = 0; block < 5; ++block) {
    const std::string name = "block" + std::to_string(block + 1);
    const int64_t filters = std::min<int64_t>(64 << block, 512);
    for (int64_t i = 1; i <= convolutions[block]; ++i)
      x = layers::Conv2D(
          filters, 3,
          {.padding = "same", .activation = "relu", .name = name + "_conv" + std::to_string(i)})(x);
    x = layers::MaxPooling2D({.strides = 2, .name = name + "_pool"})(x);
  }
  if (!options.include_top)
    return {input, pooled(x, options.pooling, {.average = "", .max = ""}), {.name = options.name}};
  x = layers::Flatten({.name = "flatten"})(x);
  for (const char* name : {"fc1", "fc2"}) x = layers::Dense(4096, {.activation = "relu", .name = name})(x);
  return {input, classified(x, options.classes, options.classifier_activation), {.name = options.name}};
}

}  // namespace

Model vgg16(const ImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return vgg("vgg16", {2, 2, 3, 3, 3}, options);
}
Model vgg19(const ImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return vgg("vgg19", {2, 2, 4, 4, 4}, options);
}

}  // namespace lockstep::keras::applications
