// Layers that give back what they get, or what a function makes of it: Identity, ActivityRegularization,
// Masking, Lambda; and the inputs of models, which files list among the layers.
#include "keras/functional_graph.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

struct IdentitySettings {
  LayerOptions options;
  void visit(auto&) {}
};

class IdentityLayer final : public ConfiguredLayer<IdentitySettings> {
 public:
  static constexpr const char* kClassName = "Identity";
  using ConfiguredLayer::ConfiguredLayer;
  Tensor call(const Tensor& x, const CallContext&) override { return x; }
  bool supports_masking() const override { return true; }
};
const RegisterLayer<IdentityLayer> registered_identity;

// The penalty is that of any layer's activity.
struct RegularizedOptions : ActivityRegularizationOptions {
  Regularizer activity_regularizer = {};
};
struct ActivityRegularizationSettings {
  RegularizedOptions options;
  void visit(auto& v) {
    v("l1", options.l1, kNotNegative);
    v("l2", options.l2, kNotNegative);
  }
};

class ActivityRegularizationLayer final : public ConfiguredLayer<ActivityRegularizationSettings> {
 public:
  static constexpr const char* kClassName = "ActivityRegularization";
  ActivityRegularizationLayer(const char* class_name, ActivityRegularizationSettings settings)
      : ConfiguredLayer(class_name, regularized(std::move(settings))) {}
  Tensor call(const Tensor& x, const CallContext&) override { return x; }
  bool supports_masking() const override { return true; }
  Json get_config() const override {
    Json config = ConfiguredLayer::get_config();
    config.erase("activity_regularizer");
    return config;
  }

 private:
  static ActivityRegularizationSettings regularized(ActivityRegularizationSettings settings) {
    RegularizedOptions& o = settings.options;
    o.activity_regularizer = regularizers::L1L2({.l1 = o.l1, .l2 = o.l2});
    return settings;
  }
};
const RegisterLayer<ActivityRegularizationLayer> activity_regularization;

struct MaskingSettings {
  MaskingOptions options;
  void visit(auto& v) { v("mask_value", options.mask_value, kAnything); }
};

class MaskingLayer final : public ConfiguredLayer<MaskingSettings> {
 public:
  static constexpr const char* kClassName = "Masking";
  using ConfiguredLayer::ConfiguredLayer;
  Tensor call(const Tensor& x, const CallContext&) override {
    return lockstep::where(expand_dims(seen(x), -1), x, 0.0);
  }
  TensorList compute_mask(const TensorList& inputs, const TensorList&, size_t) override {
    return {seen(inputs[0])};
  }
  bool supports_masking() const override { return true; }

 private:
  Tensor seen(const Tensor& x) const {
    return reduce_any(not_equal(x, settings_.options.mask_value), {.axis = {-1}});
  }
};
const RegisterLayer<MaskingLayer> masking;

struct LambdaSettings {
  LambdaOptions options;
  void visit(auto&) {}
};

class LambdaLayer final : public ConfiguredLayer<LambdaSettings> {
 public:
  static constexpr const char* kClassName = "Lambda";
  using Function = std::function<TensorList(const TensorList&, const CallContext&)>;

  LambdaLayer(LambdaSettings settings, Function function)
      : ConfiguredLayer(kClassName, std::move(settings)), function_(std::move(function)) {}
  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    return function_(inputs, context);
  }
  TensorList compute_mask(const TensorList& inputs, const TensorList& masks, size_t results) override {
    if (!settings_.options.mask) return LayerBase::compute_mask(inputs, masks, results);
    return TensorList(results, settings_.options.mask(inputs, masks));
  }
  Json get_config() const override {
    fail(
        ErrorCode::unsupported, where(), "layer \"", name(),
        "\" is a Lambda: its function cannot be written to a file; derive a class from LayerBase and make it "
        "known by register_layer()");
  }

 private:
  Function function_;
};

const bool lambda_is_refused = [] {
  layer_registry().add(LambdaLayer::kClassName, [](const Json&) -> Layer {
    fail(ErrorCode::unsupported, std::source_location::current(),
         "a Lambda layer holds code of the program that wrote the file and cannot be read; make a layer of "
         "your own known by register_layer() and write the model with that");
  });
  return true;
}();

const bool inputs_are_known = [] {
  layer_registry().add("InputLayer", [](const Json& config) {
    Shape shape;
    DType dtype = DType::float32;
    std::string name;
    FieldReader reader(config);
    reader("batch_shape", shape);
    reader("dtype", dtype);
    reader("name", name);
    reader.ignore("trainable");
    reader.finish();
    const Layer layer = make_layer<keras::InputLayer>(shape, dtype, name);
    layer.build(shape);
    return layer;
  });
  return true;
}();

}  // namespace

Layer InputLayer(const InputLayerOptions& options, std::source_location where) {
  return {Input(options.input_shape,
                {.batch_size = options.batch_size, .dtype = options.dtype, .name = options.name}, where),
          where};
}
Layer Identity(const LayerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<IdentityLayer>({options});
}
Layer ActivityRegularization(const ActivityRegularizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<ActivityRegularizationLayer>({{options, {}}});
}
Layer Masking(const MaskingOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<MaskingLayer>({options});
}
Layer Lambda(std::function<Tensor(const Tensor&)> function, const LambdaOptions& options,
             std::source_location where) {
  const CallSite site(where);
  return Lambda(
      [function = std::move(function)](const TensorList& inputs, const CallContext&) -> TensorList {
        require(inputs.size() == 1, ErrorCode::invalid_argument, std::source_location::current(),
                "a Lambda of one tensor was given ", inputs.size(), " inputs");
        return {function(inputs[0])};
      },
      options);
}
Layer Lambda(std::function<TensorList(const TensorList&, const CallContext&)> function,
             const LambdaOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_layer<LambdaLayer>(LambdaSettings{options}, std::move(function));
}

}  // namespace lockstep::keras::layers
