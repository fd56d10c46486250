#include <algorithm>

#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

// What the networks differ in.
struct Architecture {
  const char* name;
  int64_t blocks[4];
  int64_t expansion;  // filters of a block's result, in multiples of its inner ones
  bool use_bias;
  double epsilon;
};
constexpr Architecture kResnet18{"resnet18", {2, 2, 2, 2}, 1, false, 1e-5};
constexpr Architecture kResnet50{"resnet50", {3, 4, 6, 3}, 4, true, 1.001e-5};
constexpr Architecture kResnet101{"resnet101", {3, 4, 23, 3}, 4, true, 1.001e-5};
constexpr Architecture kResnet152{"resnet152", {3, 8, 36, 3}, 4, true, 1.001e-5};

class Builder {
 public:
  Builder(const Architecture& architecture, const ResnetOptions& options)
      : architecture_(architecture), options_(options) {
    const std::source_location here = std::source_location::current();
    require(options.input_shape.rank() == 3, ErrorCode::invalid_argument, here, architecture.name,
            ": input_shape must be (height, width, channels), received ", options.input_shape);
    require(options.stem == "imagenet" || options.stem == "small" || options.stem == "auto",
            ErrorCode::invalid_argument, here, architecture.name,
            ": stem must be \"imagenet\", \"small\" or \"auto\", received \"", options.stem, "\"");
    require(options.width > 0, ErrorCode::invalid_argument, here, architecture.name,
            ": width must be positive, received ", options.width);
    require(options.version == "v1" || options.version == "v1.5", ErrorCode::invalid_argument, here,
            architecture.name, ": version must be \"v1\" or \"v1.5\", received \"", options.version, "\"");
    require_pooling(architecture.name, options.pooling);
  }

  Model build() const {
    if (options_.stem == "auto" && !small_stem())
      log(LogLevel::info, architecture_.name, ": images of ", options_.input_shape[0], " x ",
          options_.input_shape[1],
          " pixels get the stem \"imagenet\", which makes them four times smaller; stem = \"small\" keeps "
          "their size");
    const KerasTensor input = Input(options_.input_shape);
    KerasTensor x = stem(input);
    int64_t filters = options_.width;
    for (int stage = 0; stage < 4; ++stage, filters *= 2)
      for (int64_t i = 0; i < architecture_.blocks[stage]; ++i)
        x = block(x, filters, i == 0 && stage > 0 ? 2 : 1,
                  i == 0 && (stage > 0 || architecture_.expansion > 1),
                  "conv" + std::to_string(stage + 2) + "_block" + std::to_string(i + 1));
    x = ending(x, options_.include_top, options_.pooling, options_.classes, options_.classifier_activation);
    return {input, x, {.name = options_.name.empty() ? architecture_.name : options_.name}};
  }

 private:
  bool later() const { return options_.version == "v1.5"; }

  // Images of any size (-1) get the small stem, unless the options say otherwise.
  bool small_stem() const {
    // Pixels: with them all stages of "small" would take sixteen times as long.
    constexpr int64_t kLarge = 64;
    if (options_.stem != "auto") return options_.stem == "small";
    return std::min(options_.input_shape[0], options_.input_shape[1]) < kLarge;
  }

  KerasTensor stem(KerasTensor x) const {
    const bool small = small_stem();
    if (!small) x = layers::ZeroPadding2D(3, {.name = "conv1_pad"})(x);
    x = convolution(x, options_.width, small ? 3 : 7, small ? 1 : 2, small, "conv1");
    x = layers::Activation("relu", {.name = "conv1_relu"})(x);
    if (small) return x;
    x = layers::ZeroPadding2D(1, {.name = "pool1_pad"})(x);
    return layers::MaxPooling2D({.pool_size = 3, .strides = 2, .name = "pool1_pool"})(x);
  }

  // A convolution and its batch normalisation.
  KerasTensor convolution(const KerasTensor& x, int64_t filters, int64_t size, int64_t stride, bool same,
                          const std::string& name) const {
    const KerasTensor y = layers::Conv2D(filters, size,
                                         {.strides = stride,
                                          .padding = same ? "same" : "valid",
                                          .use_bias = architecture_.use_bias && !later(),
                                          .kernel_initializer = "he_normal",
                                          .name = name + "_conv"})(x);
    return layers::BatchNormalization(
        {.epsilon = later() ? 1e-5 : architecture_.epsilon, .name = name + "_bn"})(y);
  }
  // A 3 x 3 one. A strided one pads both sides alike, as the published networks do: "same" would pad the far
  // side only.
  KerasTensor spatial(KerasTensor x, int64_t filters, int64_t stride, const std::string& name) const {
    if (stride > 1) x = layers::ZeroPadding2D(1, {.name = name + "_pad"})(x);
    return convolution(x, filters, 3, stride, stride == 1, name);
  }

  KerasTensor block(const KerasTensor& input, int64_t filters, int64_t stride, bool projects,
                    const std::string& name) const {
    const int64_t results = filters * architecture_.expansion;
    const KerasTensor shortcut =
        projects ? convolution(input, results, 1, stride, false, name + "_0") : input;
    const auto relu = [&](const KerasTensor& y, const char* place) {
      return layers::Activation("relu", {.name = name + place})(y);
    };
    KerasTensor x;
    if (architecture_.expansion == 1) {
      x = relu(spatial(input, filters, stride, name + "_1"), "_1_relu");
      x = spatial(x, results, 1, name + "_2");
    } else {
      x = relu(convolution(input, filters, 1, later() ? 1 : stride, false, name + "_1"), "_1_relu");
      x = relu(spatial(x, filters, later() ? stride : 1, name + "_2"), "_2_relu");
      x = convolution(x, results, 1, 1, false, name + "_3");
    }
    return relu(layers::Add({.name = name + "_add"})(KerasTensorList{shortcut, x}), "_out");
  }

  const Architecture& architecture_;
  const ResnetOptions& options_;
};

}  // namespace

Model resnet18(const ResnetOptions& options, std::source_location where) {
  const CallSite site(where);
  return Builder(kResnet18, options).build();
}
Model resnet50(const ResnetOptions& options, std::source_location where) {
  const CallSite site(where);
  return Builder(kResnet50, options).build();
}
Model resnet101(const ResnetOptions& options, std::source_location where) {
  const CallSite site(where);
  return Builder(kResnet101, options).build();
}
Model resnet152(const ResnetOptions& options, std::source_location where) {
  const CallSite site(where);
  return Builder(kResnet152, options).build();
}

}  // namespace lockstep::keras::applications
