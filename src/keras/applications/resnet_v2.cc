#include <array>

#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

using Blocks = std::array<int64_t, 4>;

KerasTensor convolution(const KerasTensor& x, int64_t filters, int64_t size, int64_t stride, bool use_bias,
                        const std::string& name) {
  return layers::Conv2D(filters, size, {.strides = stride, .use_bias = use_bias, .name = name})(x);
}

// Normalised before its convolutions, so that what goes past them is never changed.
KerasTensor block(const KerasTensor& x, int64_t filters, int64_t stride, bool projects,
                  const std::string& name) {
  KerasTensor y = normalised_relu(x, name + "_preact_bn", name + "_preact_relu");
  KerasTensor shortcut = x;
  if (projects)
    shortcut = convolution(y, 4 * filters, 1, stride, true, name + "_0_conv");
  else if (stride > 1)
    shortcut = layers::MaxPooling2D({.pool_size = 1, .strides = stride})(x);
  y = normalised_relu(convolution(y, filters, 1, 1, false, name + "_1_conv"), name + "_1_bn",
                      name + "_1_relu");
  y = layers::ZeroPadding2D(1, {.name = name + "_2_pad"})(y);
  y = normalised_relu(convolution(y, filters, 3, stride, false, name + "_2_conv"), name + "_2_bn",
                      name + "_2_relu");
  y = convolution(y, 4 * filters, 1, 1, true, name + "_3_conv");
  return layers::Add({.name = name + "_out"})(KerasTensorList{shortcut, y});
}

Model network(const char* name, const Blocks& blocks, const ImageOptions& given) {
  const ImageOptions options = checked(name, given, 224, 32);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = layers::ZeroPadding2D(3, {.name = "conv1_pad"})(input);
  x = convolution(x, 64, 7, 2, true, "conv1_conv");
  x = layers::ZeroPadding2D(1, {.name = "pool1_pad"})(x);
  x = layers::MaxPooling2D({.pool_size = 3, .strides = 2, .name = "pool1_pool"})(x);
  int64_t filters = 64;
  for (size_t stage = 0; stage < blocks.size(); ++stage, filters *= 2)
    for (int64_t i = 1; i <= blocks[stage]; ++i) {
      // Images become smaller at the end of a stage, but for the last.
      const bool shrinks = i == blocks[stage] && stage + 1 < blocks.size();
      x = block(x, filters, shrinks ? 2 : 1, i == 1,
                "conv" + std::to_string(stage + 2) + "_block" + std::to_string(i));
    }
  x = normalised_relu(x, "post_bn", "post_relu");
  return {input, ending(x, options), {.name = options.name}};
}

}  // namespace

Model resnet50_v2(const ImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return network("resnet50_v2", {3, 4, 6, 3}, options);
}
Model resnet101_v2(const ImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return network("resnet101_v2", {3, 4, 23, 3}, options);
}
Model resnet152_v2(const ImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return network("resnet152_v2", {3, 8, 36, 3}, options);
}

}  // namespace lockstep::keras::applications
