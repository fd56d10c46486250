#include "lockstep/keras/layers/normalization.h"

#include <algorithm>
#include <set>

#include "keras/layers/registry.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

// Statistics of 16-bit floats are made in float32.
Tensor widened(const Tensor& x) { return x.dtype() == DType::float64 ? x : cast(x, DType::float32); }

// The axes as positions, ascending, each once.
std::vector<int64_t> positions(const LayerBase& layer, const Axes& axes, int rank) {
  std::set<int64_t> found;
  for (const int64_t axis : axes.values())
    found.insert(normalize_axis(axis, rank, layer.class_name().c_str(), layer.where()));
  require(!found.empty() && found.size() == axes.values().size(), ErrorCode::invalid_argument, layer.where(),
          layer.class_name(), ": axis names one dimension or more, each once, received ",
          Dims(axes.values()));
  return {found.begin(), found.end()};
}

Shape sizes_at(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape sizes;
  for (const int64_t axis : axes) sizes.push_back(shape[static_cast<int>(axis)]);
  return sizes;
}

// A weight over `axes`, so that it broadcasts against x.
Tensor along(const Tensor& weight, const Tensor& x, const std::vector<int64_t>& axes) {
  Shape shape = Dims::filled(x.rank(), 1);
  for (const int64_t axis : axes) shape[static_cast<int>(axis)] = x.shape()[static_cast<int>(axis)];
  return reshape(weight, shape);
}

// gamma and beta, as three layers have them.
template <class Options>
WeightOptions gamma_options(const Options& o) {
  return {.initializer = o.gamma_initializer,
          .regularizer = o.gamma_regularizer,
          .constraint = o.gamma_constraint,
          .autocast = false};
}
template <class Options>
WeightOptions beta_options(const Options& o) {
  return {.initializer = o.beta_initializer,
          .regularizer = o.beta_regularizer,
          .constraint = o.beta_constraint,
          .autocast = false};
}
void visit_affine(auto& v, auto& o) {
  v("beta_initializer", o.beta_initializer);
  v("gamma_initializer", o.gamma_initializer);
  v("beta_regularizer", o.beta_regularizer);
  v("gamma_regularizer", o.gamma_regularizer);
  v("beta_constraint", o.beta_constraint);
  v("gamma_constraint", o.gamma_constraint);
}

// Once built, Keras writes one axis as a list too.
Axes as_list(const Axes& axes) {
  std::vector<int64_t> sorted = axes.values();
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// --- layer normalisation -----------------------------------------------------------------------------------

struct LayerNormalizationSettings {
  LayerNormalizationOptions options;
  void visit(auto& v) {
    v("axis", options.axis, kFinite);
    v("epsilon", options.epsilon, kNotNegative);
    v("center", options.center);
    v("scale", options.scale);
    v("rms_scaling", options.rms_scaling);
    visit_affine(v, options);
  }
};

class LayerNormalizationLayer final : public ConfiguredLayer<LayerNormalizationSettings> {
 public:
  static constexpr const char* kClassName = "LayerNormalization";
  using ConfiguredLayer::ConfiguredLayer;

  void build(const Shape& input) override {
    const LayerNormalizationOptions& o = settings_.options;
    settings_.options.axis = as_list(o.axis);
    const Shape shape = sizes_at(input, axes(input.rank()));
    if (o.scale || o.rms_scaling) gamma_ = add_weight("gamma", shape, gamma_options(o));
    if (o.center && !o.rms_scaling) beta_ = add_weight("beta", shape, beta_options(o));
  }

  Tensor call(const Tensor& input, const CallContext&) override {
    const Tensor x = widened(input);
    return cast(settings_.options.rms_scaling ? scaled(x) : normalized(x), compute_dtype());
  }
  bool supports_masking() const override { return true; }
  bool autocast_inputs() const override { return false; }

 private:
  // The axes for an input of this rank: one that is counted from the end is another for every rank.
  std::vector<int64_t> axes(int rank) const { return positions(*this, settings_.options.axis, rank); }

  Tensor normalized(const Tensor& x) const {
    const std::vector<int64_t> over = axes(x.rank());
    const Shape shape = sizes_at(x.shape(), over);
    const auto weight = [&](const Variable& v, double otherwise) {
      return v.defined() ? cast(v, x.dtype()) : Tensor::full(x.dtype(), shape, otherwise);
    };
    return layer_norm(x, weight(gamma_, 1), weight(beta_, 0),
                      {.axis = Dims(over), .epsilon = settings_.options.epsilon});
  }
  Tensor scaled(const Tensor& x) const {
    const ReduceOptions over{.axis = axes(x.rank()), .keepdims = true};
    const Tensor variance = reduce_mean(square(x - reduce_mean(x, over)), over);
    return x * rsqrt(variance + settings_.options.epsilon) * along(cast(gamma_, x.dtype()), x, over.axis);
  }

  Variable gamma_, beta_;
};
const RegisterLayer<LayerNormalizationLayer> layer_normalization;

// h = (x - mean) / stddev, for means over any part of x that broadcast back, differentiated as a whole:
//   dx = (dh - mean(dh) - h mean(dh h)) / stddev
// The statistics are made again there, so that this can be differentiated in turn; a compiled step shares
// them.
template <class Mean>
Tensor standardized(const Tensor& x, double epsilon, Mean mean) {
  const auto function = [=](std::span<const Tensor> in) {
    const Tensor& x = in[0];
    const auto inverse_stddev = [=] { return rsqrt(mean(square(x - mean(x))) + epsilon); };
    const auto standard = [=] {
      const Tensor factor = inverse_stddev();
      return x * factor - mean(x) * factor;
    };
    const auto gradients = [=](std::span<const Tensor> arriving) -> TensorList {
      const Tensor &dh = arriving[0], h = standard();
      return {(dh - (mean(dh) + h * mean(dh * h))) * inverse_stddev()};
    };
    return CustomGradient{{standard()}, gradients, /*repeatable=*/true};
  };
  const Tensor inputs[] = {x};
  return custom_gradient(function, inputs)[0];
}

// --- group normalisation -----------------------------------------------------------------------------------

struct GroupNormalizationSettings {
  GroupNormalizationOptions options;
  void visit(auto& v) {
    v("groups", options.groups, at_least(-1));
    v("axis", options.axis, kFinite);
    v("epsilon", options.epsilon, kNotNegative);
    v("center", options.center);
    v("scale", options.scale);
    visit_affine(v, options);
  }
};

class GroupNormalizationLayer final : public ConfiguredLayer<GroupNormalizationSettings> {
 public:
  static constexpr const char* kClassName = "GroupNormalization";
  GroupNormalizationLayer(const char* class_name, GroupNormalizationSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    require(settings_.options.groups > 0 || settings_.options.groups == -1, ErrorCode::invalid_argument,
            std::source_location::current(),
            "GroupNormalization: groups must be positive, or -1 for one per channel, received ",
            settings_.options.groups);
  }

  void build(const Shape& input) override {
    GroupNormalizationOptions& o = settings_.options;
    axis_ = normalize_axis(o.axis, input.rank(), "GroupNormalization", where());
    const int64_t channels = input[axis_];
    require(channels > 0, ErrorCode::shape_mismatch, where(), "GroupNormalization: axis ", o.axis,
            " must have a known size, received shape ", input);
    if (o.groups == -1) o.groups = channels;
    require(channels % o.groups == 0, ErrorCode::shape_mismatch, where(), "GroupNormalization: ", channels,
            " channels do not make ", o.groups, " groups of one size");
    if (o.scale) gamma_ = add_weight("gamma", {channels}, gamma_options(o));
    if (o.center) beta_ = add_weight("beta", {channels}, beta_options(o));
  }

  Tensor call(const Tensor& input, const CallContext&) override {
    const GroupNormalizationOptions& o = settings_.options;
    // (batch, positions, channels), or the positions behind; all four where there are both.
    const Shape& shape = input.shape();
    int64_t before = 1, behind = 1;
    for (int d = 1; d < shape.rank(); ++d)
      if (d != axis_) (d < axis_ ? before : behind) *= shape[d];
    Shape flat{shape[0], shape[axis_]}, along{1, shape[axis_]};
    ReduceOptions positions;
    const auto insert = [&](int place, int64_t size) {
      if (size == 1) return;
      flat.insert(place, size);
      along.insert(place, 1);
      positions.axis.push_back(place);
    };
    insert(1, before);
    insert(flat.rank(), behind);
    const Tensor x = reshape(widened(input), flat);
    // Over the positions of each channel first: that sum runs along memory.
    const auto group_mean = [=, groups = o.groups](const Tensor& v) {
      Shape kept = along;
      kept[0] = v.shape()[0];
      const Shape grouped{kept[0], groups, along.size() / groups};
      const Tensor channels = reshape(positions.axis.empty() ? v : reduce_mean(v, positions), grouped);
      return reshape(broadcast_to(reduce_mean(channels, {.axis = {2}, .keepdims = true}), grouped), kept);
    };
    const auto weight = [&](const Variable& v) { return reshape(cast(v, x.dtype()), along); };
    Tensor y = standardized(x, o.epsilon, group_mean);
    if (gamma_.defined()) y = y * weight(gamma_);
    if (beta_.defined()) y = y + weight(beta_);
    return cast(reshape(y, input.shape()), compute_dtype());
  }
  bool supports_masking() const override { return true; }
  bool autocast_inputs() const override { return false; }

 private:
  int axis_ = -1;
  Variable gamma_, beta_;
};
const RegisterLayer<GroupNormalizationLayer> group_normalization;

// --- lengths -----------------------------------------------------------------------------------------------

struct RMSNormalizationSettings {
  RMSNormalizationOptions options;
  void visit(auto& v) {
    v("axis", options.axis, kFinite);
    v("epsilon", options.epsilon, kNotNegative);
  }
};

class RMSNormalizationLayer final : public ConfiguredLayer<RMSNormalizationSettings> {
 public:
  static constexpr const char* kClassName = "RMSNormalization";
  using ConfiguredLayer::ConfiguredLayer;
  void build(const Shape& input) override {
    settings_.options.axis = as_list(settings_.options.axis);
    scale_ = add_weight("scale", sizes_at(input, axes(input.rank())), {.initializer = "ones"});
  }
  Tensor call(const Tensor& input, const CallContext&) override {
    const Tensor x = widened(input);
    const Tensor y = rms_norm(x, cast(scale_, x.dtype()),
                              {.axis = Dims(axes(x.rank())), .epsilon = settings_.options.epsilon});
    return cast(y, input.dtype());
  }

 private:
  std::vector<int64_t> axes(int rank) const { return positions(*this, settings_.options.axis, rank); }

  Variable scale_;
};
const RegisterLayer<RMSNormalizationLayer> rms_normalization;

struct UnitNormalizationSettings {
  UnitNormalizationOptions options;
  void visit(auto& v) { v("axis", options.axis, kFinite); }
};

class UnitNormalizationLayer final : public ConfiguredLayer<UnitNormalizationSettings> {
 public:
  static constexpr const char* kClassName = "UnitNormalization";
  using ConfiguredLayer::ConfiguredLayer;
  Tensor call(const Tensor& x, const CallContext&) override {
    const std::vector<int64_t> axes = positions(*this, settings_.options.axis, x.rank());
    // No shorter than 1e-12, as in Keras; 16-bit floats know no such squares.
    const Tensor squares = reduce_sum(square(widened(x)), {.axis = axes, .keepdims = true});
    return x * cast(rsqrt(maximum(squares, 1e-24)), x.dtype());
  }
  bool supports_masking() const override { return true; }
};
const RegisterLayer<UnitNormalizationLayer> unit_normalization;

// --- spectral normalisation --------------------------------------------------------------------------------

struct SpectralNormalizationSettings {
  Layer layer;
  SpectralNormalizationOptions options;
  void visit(auto& v) {
    v("layer", layer);
    v("power_iterations", options.power_iterations, kPositive);
  }
};

class SpectralNormalizationLayer final : public ConfiguredLayer<SpectralNormalizationSettings> {
 public:
  static constexpr const char* kClassName = "SpectralNormalization";
  SpectralNormalizationLayer(const char* class_name, SpectralNormalizationSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    track(settings_.layer);
  }

  void build_all(const std::vector<Shape>& inputs) override {
    settings_.layer.build(inputs, where());
    for (const Variable& weight : settings_.layer.weights())
      for (const char* name : {"/kernel", "/embeddings"})
        if (!kernel_.defined() && weight.name().ends_with(name)) kernel_ = weight;
    require(kernel_.defined(), ErrorCode::invalid_argument, where(), "SpectralNormalization: layer \"",
            settings_.layer.name(), "\" (", settings_.layer.class_name(),
            ") has neither a kernel nor embeddings");
    track(kernel_);
    vector_u_ = add_weight("vector_u", {1, kernel_.shape()[-1]},
                           {.initializer = initializers::TruncatedNormal({.stddev = 0.02}),
                            .trainable = false,
                            .dtype = kernel_.dtype()});
  }

  std::vector<std::string> stored_names() const override { return {"layer"}; }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    if (context.training) normalize_kernel();
    return settings_.layer.apply(inputs, {.training = context.training});
  }

 private:
  // The power method on W^T W: u and v tend to the singular vectors of the largest singular value.
  void normalize_kernel() const {
    const VariableReadScope as_kept;
    const Tensor kernel = stop_gradient(kernel_.value());
    const Tensor weights = reshape(kernel, {-1, kernel.shape()[-1]});
    const auto unit = [](const Tensor& x) { return x * rsqrt(maximum(reduce_sum(square(x)), 1e-14)); };
    Tensor u = vector_u_.value(), v;
    for (int64_t i = 0; i < settings_.options.power_iterations; ++i) {
      v = unit(matmul(u, weights, {.transpose_b = true}));
      u = unit(matmul(v, weights));
    }
    const Tensor sigma = reshape(matmul(matmul(v, weights), u, {.transpose_b = true}), {});
    // A kernel of zeros has no direction; it stays, and so does u.
    const Tensor found = reduce_max(abs(kernel)) > 0.0;
    vector_u_.assign(lockstep::where(found, u, vector_u_.value()));
    kernel_.assign(lockstep::where(found, kernel / lockstep::where(found, sigma, 1.0), kernel));
  }

  Variable kernel_;
  Variable vector_u_;
};
const RegisterLayer<SpectralNormalizationLayer> spectral_normalization;

}  // namespace

Layer LayerNormalization(const LayerNormalizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<LayerNormalizationLayer>({options});
}
Layer GroupNormalization(const GroupNormalizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<GroupNormalizationLayer>({options});
}
Layer RMSNormalization(const RMSNormalizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RMSNormalizationLayer>({options});
}
Layer UnitNormalization(const UnitNormalizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<UnitNormalizationLayer>({options});
}
Layer SpectralNormalization(const Layer& layer, const SpectralNormalizationOptions& options,
                            std::source_location where) {
  const CallSite site(where);
  return make_configured<SpectralNormalizationLayer>({layer, options});
}

}  // namespace lockstep::keras::layers
