#include "keras/fields.h"
#include "keras/operations.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/image.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"

namespace lockstep::keras {
namespace {

// --- operations that take more than a line -----------------------------------------------------------------

Tensor normalized(const Operands& o) {
  const double order = o.number("order", 2), epsilon = o.number("epsilon", 1e-7);
  const Tensor x = floating(o.tensor(0));
  Dims axis = {-1};
  if (o.has("axis")) from_json(o.setting("axis", Json()), axis);
  if (order == 2)
    return x * rsqrt(maximum(reduce_sum(square(x), {.axis = {axis.begin(), axis.end()}, .keepdims = true}),
                             epsilon * epsilon));
  return x / maximum(norm(x, {.ord = order, .axis = {axis.begin(), axis.end()}, .keepdims = true}), epsilon);
}

Tensor layer_norm_of(const Operands& o) {
  const Tensor x = o.tensor(0);
  Dims axis = {-1};
  from_json(o.setting("axis", Json(-1)), axis);
  Shape sizes;
  for (const int64_t a : axis) sizes.push_back(x.shape()[static_cast<int>(a)]);
  const Tensor gamma = o.given(1, "gamma") ? o.tensor(1, "gamma") : ones(sizes, x.dtype());
  const Tensor beta = o.given(2, "beta") ? o.tensor(2, "beta") : zeros(sizes, x.dtype());
  return layer_norm(x, gamma, beta, {.axis = axis, .epsilon = o.number("epsilon", 1e-7)});
}

Tensor rms_norm_of(const Operands& o) {
  const Tensor x = o.tensor(0);
  Dims axis = {-1};
  from_json(o.setting("axis", Json(-1)), axis);
  Shape sizes;
  for (const int64_t a : axis) sizes.push_back(x.shape()[static_cast<int>(a)]);
  const Tensor scale = o.given(1, "scale") ? o.tensor(1, "scale") : ones(sizes, x.dtype());
  return rms_norm(x, scale, {.axis = axis, .epsilon = o.number("epsilon", 1e-7)});
}

Tensor attention(const Operands& o) {
  require(!o.has("attn_logits_soft_cap"), ErrorCode::unsupported, std::source_location::current(),
          "DotProductAttention: attn_logits_soft_cap is not known");
  AttentionOptions options{.is_causal = o.setting("is_causal", false)};
  if (o.given(3, "bias")) options.bias = o.tensor(3, "bias");
  if (o.given(4, "mask")) options.mask = truth(o.tensor(4, "mask"));
  if (o.given(5, "scale")) options.scale = o.argument(5, "scale").as_double();
  return scaled_dot_product_attention(o.tensor(0, "query"), o.tensor(1, "key"), o.tensor(2, "value"),
                                      options);
}

template <bool Max>
Tensor pool(const Operands& o) {
  const Tensor x = o.tensor(0, "inputs");
  const PoolOptions options{.pool_size = list_setting(o, "pool_size", {2}),
                            .strides = list_setting(o, "strides", {}),
                            .padding = Padding(o.setting("padding", std::string("valid"))),
                            .data_format = o.setting("data_format", DataFormat(DataFormat::channels_last))};
  constexpr decltype(&max_pool1d) kPools[] = {Max ? max_pool1d : avg_pool1d, Max ? max_pool2d : avg_pool2d,
                                              Max ? max_pool3d : avg_pool3d};
  require(x.rank() >= 3 && x.rank() <= 5, ErrorCode::shape_mismatch, std::source_location::current(),
          "pooling takes inputs of rank 3 to 5, received shape ", x.shape());
  return kPools[x.rank() - 3](x, options);
}

Tensor convolution(const Operands& o) {
  const Tensor x = o.tensor(0, "inputs"), kernel = o.tensor(1, "kernel");
  require(x.rank() >= 3 && x.rank() <= 5 && kernel.rank() == x.rank(), ErrorCode::shape_mismatch,
          std::source_location::current(),
          "Conv takes inputs of rank 3 to 5 and a kernel of that rank, received ", x.shape(), " and ",
          kernel.shape());
  const DataFormat format = o.setting("data_format", DataFormat(DataFormat::channels_last));
  const int64_t channels = x.shape()[format.kind() == DataFormat::channels_first ? 1 : -1];
  const ConvOptions options{.strides = list_setting(o, "strides", {1}),
                            .padding = Padding(o.setting("padding", std::string("valid"))),
                            .dilations = list_setting(o, "dilation_rate", {1}),
                            .groups = kernel.shape()[-2] > 0 ? channels / kernel.shape()[-2] : 1,
                            .data_format = format};
  constexpr decltype(&conv1d) kConvolutions[] = {conv1d, conv2d, conv3d};
  return kConvolutions[x.rank() - 3](x, kernel, options);
}

TensorList moments_of(const Operands& o) {
  std::vector<int64_t> axes;
  from_json(o.setting("axes", Json()), axes);
  const Moments found =
      moments(floating(o.tensor(0)), {.axis = axes, .keepdims = o.setting("keepdims", false)});
  return {found.mean, found.variance};
}

Tensor one_hot_of(const Operands& o) {
  const Tensor x = o.tensor(0);
  require(!o.setting("sparse", false), ErrorCode::unsupported, std::source_location::current(),
          "OneHot: sparse tensors are not known");
  const Tensor last = one_hot(is_floating(x.dtype()) ? cast(x, DType::int32) : x,
                              o.setting("num_classes", int64_t{0}), o.setting("dtype", DType::float32));
  const int axis = normalize_axis(o.axis(), last.rank(), "OneHot");
  return axis == last.rank() - 1 ? last : moveaxis(last, {-1}, {axis});
}

Tensor norm_of(const Operands& o) {
  const Json order = o.setting("ord", Json(2));
  require(order.is_number() || order == Json("euclidean"), ErrorCode::unsupported,
          std::source_location::current(), "Norm: ord must be a number, received ", order);
  std::vector<int64_t> axis = o.setting("axis", std::vector<int64_t>());
  require(axis.size() < 2 || !order.is_number() || !o.has("ord"), ErrorCode::unsupported,
          std::source_location::current(), "Norm: norms of matrices are not known, received axis ",
          o.setting("axis", Json()), " and ord ", order);
  return norm(floating(o.tensor(0)), {.ord = order.is_number() ? order.as_double() : 2,
                                      .axis = axis,
                                      .keepdims = o.setting("keepdims", false)});
}

Tensor resized(const Operands& o) {
  require(!o.setting("crop_to_aspect_ratio", false) && !o.setting("pad_to_aspect_ratio", false),
          ErrorCode::unsupported, std::source_location::current(),
          "Resize: crop_to_aspect_ratio and pad_to_aspect_ratio are not known");
  return image::resize(o.tensor(0), list_setting(o, "size", {}),
                       {.interpolation = Interpolation(o.setting("interpolation", std::string("bilinear"))),
                        .antialias = o.setting("antialias", false),
                        .data_format = o.setting("data_format", DataFormat(DataFormat::channels_last))});
}

// --- the table ---------------------------------------------------------------------------------------------

constexpr Operation kOtherOperations[] = {
    {"Relu", "nn", [](const Operands& o) { return relu(o.tensor(0)); }},
    {"Relu6", "nn", unary<relu6>},
    {"Sigmoid", "nn", float_unary<sigmoid>},
    {"SparseSigmoid", "nn", unary<sparse_sigmoid>},
    {"Softplus", "nn", float_unary<softplus>},
    {"Softsign", "nn", unary<softsign>},
    {"SoftShrink", "nn",
     [](const Operands& o) { return soft_shrink(o.tensor(0), o.number("threshold", 0.5)); }},
    {"HardShrink", "nn",
     [](const Operands& o) { return hard_shrink(o.tensor(0), o.number("threshold", 0.5)); }},
    {"SparsePlus", "nn", unary<sparse_plus>},
    {"Silu", "nn", float_unary<silu>},
    {"Squareplus", "nn", [](const Operands& o) { return squareplus(o.tensor(0), o.number("b", 4)); }},
    {"LogSigmoid", "nn", float_unary<log_sigmoid>},
    {"LeakyRelu", "nn",
     [](const Operands& o) { return leaky_relu(o.tensor(0), o.number("negative_slope", 0.2)); }},
    {"HardSigmoid", "nn", unary<hard_sigmoid>},
    {"HardSilu", "nn", unary<hard_silu>},
    {"HardTanh", "nn", unary<hard_tanh>},
    {"TanhShrink", "nn", unary<tanh_shrink>},
    {"Elu", "nn", [](const Operands& o) { return elu(o.tensor(0), o.number("alpha", 1)); }},
    {"Selu", "nn", unary<selu>},
    {"Celu", "nn", [](const Operands& o) { return celu(o.tensor(0), o.number("alpha", 1)); }},
    {"Gelu", "nn",
     [](const Operands& o) { return gelu(o.tensor(0), {.approximate = o.setting("approximate", true)}); }},
    {"Glu", "nn", [](const Operands& o) { return glu(o.tensor(0), o.axis()); }},
    {"Threshold", "nn",
     [](const Operands& o) {
       return threshold(o.tensor(0), o.number("threshold", 0), o.number("default_value", 0));
     }},
    {"Softmax", "nn", [](const Operands& o) { return softmax(o.tensor(0), o.axis()); }},
    {"LogSoftmax", "nn", [](const Operands& o) { return log_softmax(o.tensor(0), o.axis()); }},
    {"OneHot", "nn", one_hot_of},
    {"Moments", "nn", nullptr, moments_of},
    {"Normalize", "nn", normalized},
    {"LayerNorm", "nn", layer_norm_of},
    {"RMSNorm", "nn", rms_norm_of},
    {"DotProductAttention", "nn", attention},
    {"MaxPool", "nn", pool<true>},
    {"AveragePool", "nn", pool<false>},
    {"Conv", "nn", convolution},
    {"DepthToSpace", "nn",
     [](const Operands& o) { return depth_to_space(o.tensor(0), o.setting("block_size", int64_t{1})); }},
    {"SpaceToDepth", "nn",
     [](const Operands& o) { return space_to_depth(o.tensor(0), o.setting("block_size", int64_t{1})); }},
    {"Cast", "core", [](const Operands& o) { return cast(o.tensor(0), o.setting("dtype", DType::float32)); }},
    {"ConvertToTensor", "core",
     [](const Operands& o) { return cast(o.tensor(0), o.setting("dtype", o.tensor(0).dtype())); }},
    {"StopGradient", "core", unary<stop_gradient>},
    {"Unstack", "core", nullptr, [](const Operands& o) { return unstack(o.tensor(0), o.axis(0)); }},
    {"TopK", "math", nullptr,
     [](const Operands& o) {
       const TopK found = top_k(o.tensor(0), o.setting("k", int64_t{1}));
       return TensorList{found.values, found.indices};
     }},
    {"InTopK", "math",
     [](const Operands& o) {
       return in_top_k(o.tensor(0, "targets"), o.tensor(1, "predictions"), o.setting("k", int64_t{1}));
     }},
    {"Logsumexp", "math", float_reduction<reduce_logsumexp>},
    {"Rsqrt", "math", float_unary<rsqrt>},
    {"Erf", "math", float_unary<lockstep::erf>},
    {"Erfc", "math", float_unary<lockstep::erfc>},
    {"Norm", "linalg", norm_of},
    {"Resize", "image", resized},
};

}  // namespace

std::span<const Operation> other_operations() { return kOtherOperations; }

}  // namespace lockstep::keras
