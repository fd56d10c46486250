#include "lockstep/keras/layers/activation.h"

#include <algorithm>

#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/activations.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

template <class Settings>
class ElementwiseLayer : public ConfiguredLayer<Settings> {
 public:
  using ConfiguredLayer<Settings>::ConfiguredLayer;
  bool supports_masking() const override { return true; }
};

struct ActivationSettings {
  keras::Activation activation;
  LayerOptions options;
  void visit(auto& v) { v("activation", activation); }
};

class ActivationLayer final : public ElementwiseLayer<ActivationSettings> {
 public:
  static constexpr const char* kClassName = "Activation";
  using ElementwiseLayer::ElementwiseLayer;
  Tensor call(const Tensor& x, const CallContext&) override { return settings_.activation(x); }
};
const RegisterLayer<ActivationLayer> activation;

struct ReLUSettings {
  ReLUOptions options;
  void visit(auto& v) {
    v("max_value", options.max_value, kNotNegative);
    v("negative_slope", options.negative_slope, kNotNegative);
    v("threshold", options.threshold, kNotNegative);
  }
};

class ReLULayer final : public ElementwiseLayer<ReLUSettings> {
 public:
  static constexpr const char* kClassName = "ReLU";
  using ElementwiseLayer::ElementwiseLayer;
  Tensor call(const Tensor& x, const CallContext&) override {
    const ReLUOptions& o = settings_.options;
    return relu(x, {.negative_slope = o.negative_slope,
                    .max_value = o.max_value.value_or(-1),
                    .threshold = o.threshold});
  }
};
const RegisterLayer<ReLULayer> registered_relu;

struct LeakyReLUSettings {
  LeakyReLUOptions options;
  void visit(auto& v) { v("negative_slope", options.negative_slope, kNotNegative); }
};

class LeakyReLULayer final : public ElementwiseLayer<LeakyReLUSettings> {
 public:
  static constexpr const char* kClassName = "LeakyReLU";
  using ElementwiseLayer::ElementwiseLayer;
  Tensor call(const Tensor& x, const CallContext&) override {
    return leaky_relu(x, settings_.options.negative_slope);
  }
};
const RegisterLayer<LeakyReLULayer> registered_leaky_relu;

struct ELUSettings {
  ELUOptions options;
  void visit(auto& v) { v("alpha", options.alpha, kFinite); }
};

class ELULayer final : public ElementwiseLayer<ELUSettings> {
 public:
  static constexpr const char* kClassName = "ELU";
  using ElementwiseLayer::ElementwiseLayer;
  Tensor call(const Tensor& x, const CallContext&) override { return elu(x, settings_.options.alpha); }
};
const RegisterLayer<ELULayer> registered_elu;

struct PReLUSettings {
  PReLUOptions options;
  void visit(auto& v) {
    v("alpha_initializer", options.alpha_initializer);
    v("alpha_regularizer", options.alpha_regularizer);
    v("alpha_constraint", options.alpha_constraint);
    v("shared_axes", options.shared_axes, kFinite);
  }
};

class PReLULayer final : public ElementwiseLayer<PReLUSettings> {
 public:
  static constexpr const char* kClassName = "PReLU";
  PReLULayer(const char* class_name, PReLUSettings settings)
      : ElementwiseLayer(class_name, std::move(settings)) {
    // Keras writes a list, whatever it was given.
    Axes& shared = settings_.options.shared_axes;
    if (shared.single()) shared = Axes(shared.values());
  }
  void build(const Shape& input) override {
    const PReLUOptions& o = settings_.options;
    Shape shape;
    for (int d = 1; d < input.rank(); ++d) shape.push_back(input[d]);
    for (const int64_t axis : o.shared_axes.values()) {
      require(axis >= 1 && axis < input.rank(), ErrorCode::invalid_argument, where(),
              "PReLU: shared_axes names dimensions behind the batch of ", input, ", received ", axis);
      shape[static_cast<int>(axis) - 1] = 1;
    }
    alpha_ = add_weight("alpha", shape,
                        {.initializer = o.alpha_initializer,
                         .regularizer = o.alpha_regularizer,
                         .constraint = o.alpha_constraint});
  }
  Tensor call(const Tensor& x, const CallContext&) override { return relu(x) - alpha_.value() * relu(-x); }

 private:
  Variable alpha_;
};
const RegisterLayer<PReLULayer> prelu;

struct SoftmaxSettings {
  SoftmaxOptions options;
  void visit(auto& v) { v("axis", options.axis, kFinite); }
};

class SoftmaxLayer final : public ElementwiseLayer<SoftmaxSettings> {
 public:
  static constexpr const char* kClassName = "Softmax";
  using ElementwiseLayer::ElementwiseLayer;
  Tensor call(const Tensor& x, const CallContext& context) override {
    Tensor mask = context.mask();
    if (!mask.defined()) return over_axes(x);
    require(mask.rank() <= x.rank() && broadcast(mask.shape(), x.shape(), "Softmax", where()) == x.shape(),
            ErrorCode::shape_mismatch, where(), "Softmax: the mask ", mask.shape(),
            " does not broadcast to the input ", x.shape());
    if (mask.dtype() != DType::boolean) mask = mask > 0.5;
    const double low = x.dtype() == DType::float16 ? -3e4 : -1e9;
    return lockstep::where(mask, over_axes(lockstep::where(mask, x, low)), 0.0);
  }

 private:
  Tensor over_axes(const Tensor& x) const {
    const std::vector<int64_t>& axes = settings_.options.axis.values();
    if (axes.size() == 1) return softmax(x, static_cast<int>(axes[0]));
    const ReduceOptions over{.axis = axes, .keepdims = true};
    const Tensor powers = exp(x - stop_gradient(reduce_max(x, over)));
    return powers / reduce_sum(powers, over);
  }
};
const RegisterLayer<SoftmaxLayer> registered_softmax;

}  // namespace

Layer Activation(const keras::Activation& activation, const LayerOptions& options,
                 std::source_location where) {
  const CallSite site(where);
  return make_configured<ActivationLayer>({activation, options});
}
Layer ReLU(const ReLUOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<ReLULayer>({options});
}
Layer LeakyReLU(const LeakyReLUOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<LeakyReLULayer>({options});
}
Layer PReLU(const PReLUOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<PReLULayer>({options});
}
Layer ELU(const ELUOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<ELULayer>({options});
}
Layer Softmax(const SoftmaxOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SoftmaxLayer>({options});
}

}  // namespace lockstep::keras::layers
