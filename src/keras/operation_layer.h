// Operations of keras.ops between the layers of a functional model: x + y, 2 * x, ops.mean(x, axis=1), ...
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// `arguments` are those of the call as Keras writes them, with {"input": i} in place of its i-th tensor.
class OperationLayer final : public LayerBase {
 public:
  // Throws Error(unsupported) that lists the known operations where there is no such one.
  OperationLayer(const std::string& class_name, Json config, Json arguments);

  TensorList call_all(const TensorList& inputs, const CallContext& context) override;
  bool supports_masking() const override { return true; }
  bool autocast_inputs() const override { return false; }
  bool inputs_are_arguments() const override { return true; }
  std::string module() const override;
  Json get_config() const override;
  // With these in place of the tensors.
  Json arguments(const Json::List& inputs) const;

  // In a model's file: whether `json` is one, and the layer, of which `inputs` counts the tensors.
  static bool is_operation(const Json& json);

 private:
  Json config_;
  Json arguments_;
};

}  // namespace lockstep::keras
