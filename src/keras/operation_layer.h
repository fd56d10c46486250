// Operations of keras.ops between the layers of a functional model: x + y, 2 * x, ops.mean(x, axis=1), ...
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// Those of a call as Keras writes them, with {"input": i} in place of its i-th tensor.
struct OperationArguments {
  Json positional = Json::list();
  Json named = Json::object();
};

class OperationLayer final : public LayerBase {
 public:
  // Throws Error(unsupported) that lists the known operations where there is no such one.
  OperationLayer(const std::string& class_name, Json config, OperationArguments arguments);

  TensorList call_all(const TensorList& inputs, const CallContext& context) override;
  // As in Keras, an operation's result carries no mask: where one is to go on, the call of a layer behind it names it.
  TensorList compute_mask(const TensorList&, const TensorList&, size_t) override { return {}; }
  bool supports_masking() const override { return true; }
  bool autocast_inputs() const override { return false; }
  bool inputs_are_arguments() const override { return true; }
  std::string module() const override;
  Json get_config() const override;
  // With these in place of the tensors.
  OperationArguments arguments(const Json::List& inputs) const;

  // Whether `json`, an entry of a model's file, is one.
  static bool is_operation(const Json& json);
  // Keras' class names of those that there are.
  static std::vector<std::string> known();

 private:
  Json config_;
  OperationArguments arguments_;
};

}  // namespace lockstep::keras
