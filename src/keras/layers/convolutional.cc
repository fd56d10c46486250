#include "lockstep/keras/layers/convolutional.h"

#include "keras/layers/registry.h"
#include "keras/layers/spatial.h"
#include "lockstep/base/call_site.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

// The bias of each channel, wherever the channels stand.
Tensor add_bias(const Tensor& y, const Variable& bias, DataFormat format, int rank) {
  if (!bias.defined()) return y;
  if (format.kind() == DataFormat::channels_last) return y + bias;
  Shape shape = Dims::filled(rank + 2, 1);
  shape[1] = bias.shape()[0];
  return y + reshape(bias, shape);
}

template <class Options>
void visit_window(auto& v, Options& o) {
  v("strides", o.strides, kPositive);
  v("padding", o.padding);
  v("data_format", o.data_format);
  v("dilation_rate", o.dilation_rate, kPositive);
}
template <class Options>
void visit_kernel(auto& v, Options& o) {
  v("activation", o.activation);
  v("use_bias", o.use_bias);
  v("kernel_initializer", o.kernel_initializer);
  v("bias_initializer", o.bias_initializer);
  v("kernel_regularizer", o.kernel_regularizer);
  v("bias_regularizer", o.bias_regularizer);
  v("kernel_constraint", o.kernel_constraint);
  v("bias_constraint", o.bias_constraint);
}

// Sizes in full, as they are written to files.
template <class Settings>
Settings completed(Settings settings, int rank, const char* layer) {
  auto& o = settings.options;
  settings.kernel_size = positive(settings.kernel_size, rank, layer, "kernel_size");
  o.strides = positive(o.strides, rank, layer, "strides");
  o.dilation_rate = positive(o.dilation_rate, rank, layer, "dilation_rate");
  return settings;
}

Shape kernel_shape(const Sizes& window, int64_t second_last, int64_t last) {
  Shape shape = static_cast<const Dims&>(window);
  shape.push_back(second_last);
  shape.push_back(last);
  return shape;
}

// --- plain -------------------------------------------------------------------------------------------------

struct ConvSettings {
  int64_t filters = 0;
  Sizes kernel_size = 1;
  ConvOptions options;

  void visit(auto& v) {
    v("filters", filters, kPositive);
    v("kernel_size", kernel_size, kPositive);
    visit_window(v, options);
    v("groups", options.groups, kPositive);
    visit_kernel(v, options);
  }
};

template <int Rank>
class ConvLayer final : public ConfiguredLayer<ConvSettings> {
 public:
  static constexpr const char* kClassName = Rank == 1 ? "Conv1D" : Rank == 2 ? "Conv2D" : "Conv3D";

  ConvLayer(const char* class_name, ConvSettings settings)
      : ConfiguredLayer(class_name, completed(std::move(settings), Rank, class_name)) {
    const ConvOptions& o = settings_.options;
    require(settings_.filters % o.groups == 0, ErrorCode::invalid_argument, std::source_location::current(),
            class_name, ": filters (", settings_.filters, ") must be a multiple of groups (", o.groups, ")");
  }

  void build(const Shape& input) override {
    const ConvOptions& o = settings_.options;
    const int64_t channels = channels_of(input, o.data_format, Rank, kClassName);
    require(channels % o.groups == 0, ErrorCode::shape_mismatch, std::source_location::current(), kClassName,
            ": the input's ", channels, " channels must be a multiple of groups (", o.groups, ")");
    kernel_ =
        add_weight("kernel", kernel_shape(settings_.kernel_size, channels / o.groups, settings_.filters),
                   {.initializer = o.kernel_initializer,
                    .regularizer = o.kernel_regularizer,
                    .constraint = o.kernel_constraint});
    if (o.use_bias)
      bias_ = add_weight("bias", {settings_.filters},
                         {.initializer = o.bias_initializer,
                          .regularizer = o.bias_regularizer,
                          .constraint = o.bias_constraint});
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const ConvOptions& o = settings_.options;
    const lockstep::ConvOptions options{.strides = o.strides,
                                        .padding = o.padding,
                                        .dilations = o.dilation_rate,
                                        .groups = o.groups,
                                        .data_format = o.data_format};
    constexpr auto convolve = Rank == 1 ? conv1d : Rank == 2 ? conv2d : conv3d;
    return o.activation(add_bias(convolve(x, kernel_, options), bias_, o.data_format, Rank));
  }

 private:
  Variable kernel_;
  Variable bias_;
};

// --- transposed --------------------------------------------------------------------------------------------

struct ConvTransposeSettings {
  int64_t filters = 0;
  Sizes kernel_size = 1;
  ConvTransposeOptions options;

  void visit(auto& v) {
    v("filters", filters, kPositive);
    v("kernel_size", kernel_size, kPositive);
    visit_window(v, options);
    visit_kernel(v, options);
    // null: by the rule of the padding.
    std::optional<Dims> given;
    if (!options.output_padding.empty()) given = options.output_padding;
    v("output_padding", given, kNotNegative);
    options.output_padding = given ? Sizes(*given) : Sizes();
  }
};

template <int Rank>
class ConvTransposeLayer final : public ConfiguredLayer<ConvTransposeSettings> {
 public:
  static constexpr const char* kClassName = Rank == 1   ? "Conv1DTranspose"
                                            : Rank == 2 ? "Conv2DTranspose"
                                                        : "Conv3DTranspose";

  ConvTransposeLayer(const char* class_name, ConvTransposeSettings settings)
      : ConfiguredLayer(class_name, completed(std::move(settings), Rank, class_name)) {
    Sizes& padding = settings_.options.output_padding;
    if (!padding.empty()) padding = per_dimension(padding, Rank, class_name, "output_padding");
  }

  void build(const Shape& input) override {
    const ConvTransposeOptions& o = settings_.options;
    const int64_t channels = channels_of(input, o.data_format, Rank, kClassName);
    kernel_ = add_weight("kernel", kernel_shape(settings_.kernel_size, settings_.filters, channels),
                         {.initializer = o.kernel_initializer,
                          .regularizer = o.kernel_regularizer,
                          .constraint = o.kernel_constraint});
    if (o.use_bias)
      bias_ = add_weight("bias", {settings_.filters},
                         {.initializer = o.bias_initializer,
                          .regularizer = o.bias_regularizer,
                          .constraint = o.bias_constraint});
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const ConvTransposeOptions& o = settings_.options;
    const lockstep::ConvTransposeOptions options{.strides = o.strides,
                                                 .padding = o.padding,
                                                 .output_padding = o.output_padding,
                                                 .dilations = o.dilation_rate,
                                                 .data_format = o.data_format};
    constexpr auto convolve = Rank == 1 ? conv1d_transpose : Rank == 2 ? conv2d_transpose : conv3d_transpose;
    return o.activation(add_bias(convolve(x, kernel_, options), bias_, o.data_format, Rank));
  }

 private:
  Variable kernel_;
  Variable bias_;
};

// --- depthwise and separable -------------------------------------------------------------------------------

lockstep::DepthwiseConvOptions depthwise_options(const auto& o) {
  return {
      .strides = o.strides, .padding = o.padding, .dilations = o.dilation_rate, .data_format = o.data_format};
}

struct DepthwiseSettings {
  Sizes kernel_size = 1;
  DepthwiseConvOptions options;

  void visit(auto& v) {
    v("kernel_size", kernel_size, kPositive);
    visit_window(v, options);
    v("depth_multiplier", options.depth_multiplier, kPositive);
    v("activation", options.activation);
    v("use_bias", options.use_bias);
    v("depthwise_initializer", options.depthwise_initializer);
    v("bias_initializer", options.bias_initializer);
    v("depthwise_regularizer", options.depthwise_regularizer);
    v("bias_regularizer", options.bias_regularizer);
    v("depthwise_constraint", options.depthwise_constraint);
    v("bias_constraint", options.bias_constraint);
  }
};

template <int Rank>
class DepthwiseLayer final : public ConfiguredLayer<DepthwiseSettings> {
 public:
  static constexpr const char* kClassName = Rank == 1 ? "DepthwiseConv1D" : "DepthwiseConv2D";

  DepthwiseLayer(const char* class_name, DepthwiseSettings settings)
      : ConfiguredLayer(class_name, completed(std::move(settings), Rank, class_name)) {}

  void build(const Shape& input) override {
    const DepthwiseConvOptions& o = settings_.options;
    const int64_t channels = channels_of(input, o.data_format, Rank, kClassName);
    kernel_ = add_weight("kernel", kernel_shape(settings_.kernel_size, channels, o.depth_multiplier),
                         {.initializer = o.depthwise_initializer,
                          .regularizer = o.depthwise_regularizer,
                          .constraint = o.depthwise_constraint});
    if (o.use_bias)
      bias_ = add_weight("bias", {channels * o.depth_multiplier},
                         {.initializer = o.bias_initializer,
                          .regularizer = o.bias_regularizer,
                          .constraint = o.bias_constraint});
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const DepthwiseConvOptions& o = settings_.options;
    constexpr auto convolve = Rank == 1 ? depthwise_conv1d : depthwise_conv2d;
    return o.activation(add_bias(convolve(x, kernel_, depthwise_options(o)), bias_, o.data_format, Rank));
  }

 private:
  Variable kernel_;
  Variable bias_;
};

struct SeparableSettings {
  int64_t filters = 0;
  Sizes kernel_size = 1;
  SeparableConvOptions options;

  void visit(auto& v) {
    v("filters", filters, kPositive);
    v("kernel_size", kernel_size, kPositive);
    visit_window(v, options);
    v("depth_multiplier", options.depth_multiplier, kPositive);
    v("activation", options.activation);
    v("use_bias", options.use_bias);
    v("depthwise_initializer", options.depthwise_initializer);
    v("pointwise_initializer", options.pointwise_initializer);
    v("bias_initializer", options.bias_initializer);
    v("depthwise_regularizer", options.depthwise_regularizer);
    v("pointwise_regularizer", options.pointwise_regularizer);
    v("bias_regularizer", options.bias_regularizer);
    v("depthwise_constraint", options.depthwise_constraint);
    v("pointwise_constraint", options.pointwise_constraint);
    v("bias_constraint", options.bias_constraint);
  }
};

template <int Rank>
class SeparableLayer final : public ConfiguredLayer<SeparableSettings> {
 public:
  static constexpr const char* kClassName = Rank == 1 ? "SeparableConv1D" : "SeparableConv2D";

  SeparableLayer(const char* class_name, SeparableSettings settings)
      : ConfiguredLayer(class_name, completed(std::move(settings), Rank, class_name)) {}

  void build(const Shape& input) override {
    const SeparableConvOptions& o = settings_.options;
    const int64_t channels = channels_of(input, o.data_format, Rank, kClassName);
    depthwise_ =
        add_weight("depthwise_kernel", kernel_shape(settings_.kernel_size, channels, o.depth_multiplier),
                   {.initializer = o.depthwise_initializer,
                    .regularizer = o.depthwise_regularizer,
                    .constraint = o.depthwise_constraint});
    pointwise_ =
        add_weight("pointwise_kernel",
                   kernel_shape(Dims::filled(Rank, 1), channels * o.depth_multiplier, settings_.filters),
                   {.initializer = o.pointwise_initializer,
                    .regularizer = o.pointwise_regularizer,
                    .constraint = o.pointwise_constraint});
    if (o.use_bias)
      bias_ = add_weight("bias", {settings_.filters},
                         {.initializer = o.bias_initializer,
                          .regularizer = o.bias_regularizer,
                          .constraint = o.bias_constraint});
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const SeparableConvOptions& o = settings_.options;
    constexpr auto convolve = Rank == 1 ? separable_conv1d : separable_conv2d;
    return o.activation(
        add_bias(convolve(x, depthwise_, pointwise_, depthwise_options(o)), bias_, o.data_format, Rank));
  }

 private:
  Variable depthwise_;
  Variable pointwise_;
  Variable bias_;
};

const RegisterLayer<ConvLayer<1>> conv1d_registered({"Convolution1D"});
const RegisterLayer<ConvLayer<2>> conv2d_registered({"Convolution2D"});
const RegisterLayer<ConvLayer<3>> conv3d_registered({"Convolution3D"});
const RegisterLayer<ConvTransposeLayer<1>> transpose1d_registered({"Convolution1DTranspose"});
const RegisterLayer<ConvTransposeLayer<2>> transpose2d_registered({"Convolution2DTranspose"});
const RegisterLayer<ConvTransposeLayer<3>> transpose3d_registered({"Convolution3DTranspose"});
const RegisterLayer<DepthwiseLayer<1>> depthwise1d_registered;
const RegisterLayer<DepthwiseLayer<2>> depthwise2d_registered;
const RegisterLayer<SeparableLayer<1>> separable1d_registered({"SeparableConvolution1D"});
const RegisterLayer<SeparableLayer<2>> separable2d_registered({"SeparableConvolution2D"});

}  // namespace

Layer Conv1D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options,
             std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvLayer<1>>({filters, kernel_size, options});
}
Layer Conv2D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options,
             std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvLayer<2>>({filters, kernel_size, options});
}
Layer Conv3D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options,
             std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvLayer<3>>({filters, kernel_size, options});
}
Layer Conv1DTranspose(int64_t filters, const Sizes& kernel_size, const ConvTransposeOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvTransposeLayer<1>>({filters, kernel_size, options});
}
Layer Conv2DTranspose(int64_t filters, const Sizes& kernel_size, const ConvTransposeOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvTransposeLayer<2>>({filters, kernel_size, options});
}
Layer Conv3DTranspose(int64_t filters, const Sizes& kernel_size, const ConvTransposeOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<ConvTransposeLayer<3>>({filters, kernel_size, options});
}
Layer DepthwiseConv1D(const Sizes& kernel_size, const DepthwiseConvOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<DepthwiseLayer<1>>({kernel_size, options});
}
Layer DepthwiseConv2D(const Sizes& kernel_size, const DepthwiseConvOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<DepthwiseLayer<2>>({kernel_size, options});
}
Layer SeparableConv1D(int64_t filters, const Sizes& kernel_size, const SeparableConvOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<SeparableLayer<1>>({filters, kernel_size, options});
}
Layer SeparableConv2D(int64_t filters, const Sizes& kernel_size, const SeparableConvOptions& options,
                      std::source_location where) {
  const CallSite site(where);
  return make_configured<SeparableLayer<2>>({filters, kernel_size, options});
}

}  // namespace lockstep::keras::layers
