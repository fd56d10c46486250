// How the layers of this room are made, named in files and read back.
//
//   struct DenseSettings {
//     int64_t units = 0;
//     DenseOptions options;
//     void visit(auto& v) { v("units", units, kPositive); v("activation", options.activation); ... }
//   };
//   class DenseLayer final : public ConfiguredLayer<DenseSettings> {
//    public:
//     static constexpr const char* kClassName = "Dense";
//     using ConfiguredLayer::ConfiguredLayer;
//     void build(const Shape& input) override { ... settings_.units ... }
//   };
//   const RegisterLayer<DenseLayer> registered;
//   Layer Dense(int64_t units, const DenseOptions& options) {
//     return make_configured<DenseLayer>({units, options});
//   }
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "keras/fields.h"
#include "keras/registry.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras {

Registry<Layer>& layer_registry();

// What every options struct of a layer has: name, trainable, dtype; some have activity_regularizer and
// input_shape.
template <class Options>
LayerBaseOptions common_options(const Options& options) {
  LayerBaseOptions base;
  base.name = options.name;
  base.trainable = options.trainable;
  base.dtype = options.dtype;
  if constexpr (requires { options.activity_regularizer; })
    base.activity_regularizer = options.activity_regularizer;
  if constexpr (requires { options.input_shape; }) base.input_shape = options.input_shape;
  return base;
}

template <class Settings_>
class ConfiguredLayer : public LayerBase {
 public:
  using Settings = Settings_;

  ConfiguredLayer(const char* class_name, Settings settings)
      : LayerBase(class_name, common_options(settings.options)), settings_(std::move(settings)) {
    check_fields(settings_, class_name);
  }

  Json get_config() const override {
    Json config = LayerBase::get_config();
    const Json own = write_fields(settings_);
    for (const auto& [name, value] : own.members()) config.set(name, value);
    return config;
  }

 protected:
  Settings settings_;
};

template <class L>
Layer make_configured(typename L::Settings settings) {
  return make_layer<L>(L::kClassName, std::move(settings));
}

template <class Settings>
Settings read_layer_settings(const Json& config) {
  Settings settings;
  FieldReader reader(config);
  reader("name", settings.options.name);
  reader("trainable", settings.options.trainable);
  reader("dtype", settings.options.dtype);
  if constexpr (requires { settings.options.activity_regularizer; })
    reader("activity_regularizer", settings.options.activity_regularizer);
  // Keras' older names for the shape of the first layer's input.
  for (const char* other : {"batch_shape", "batch_input_shape", "input_shape", "autocast"})
    reader.ignore(other);
  settings.visit(reader);
  reader.finish();
  return settings;
}

// What Keras' constructor takes, in its order: a layer's own settings, then those of all layers.
template <class Settings>
Json layer_parameters() {
  const Settings settings{};
  Json parameters = write_fields(settings);
  if constexpr (requires { settings.options.activity_regularizer; })
    parameters.set("activity_regularizer", nullptr);
  parameters.set("name", nullptr);
  parameters.set("trainable", true);
  parameters.set("dtype", nullptr);
  return parameters;
}

template <class L>
class RegisterLayer {
 public:
  explicit RegisterLayer(const std::vector<std::string>& aliases = {}) {
    layer_registry().add(
        L::kClassName,
        [](const Json& config) {
          return make_configured<L>(read_layer_settings<typename L::Settings>(config));
        },
        aliases, layer_parameters<typename L::Settings>);
  }
};

}  // namespace lockstep::keras
