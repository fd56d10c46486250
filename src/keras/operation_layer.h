// Operations of keras.ops between the layers of a functional model: x + y, 2 * x, ops.mean(x, axis=1), ...
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// The arguments of a call, with {"input": i} in place of its i-th tensor.
class OperationArguments final : public CallForm {
 public:
  explicit OperationArguments(Json positional, Json named = Json::object())
      : positional_(std::move(positional)), named_(std::move(named)) {}

  const Json& positional() const { return positional_; }
  const Json& named() const { return named_; }
  Json written(const Json::List& inputs) const override;

 private:
  Json positional_;
  Json named_;
};

class OperationLayer final : public LayerBase {
 public:
  // Throws Error(unsupported) that lists the known operations where there is no such one.
  OperationLayer(const std::string& class_name, Json config);

  TensorList call_all(const TensorList& inputs, const CallContext& context) override;
  // As in Keras, an operation's result carries no mask: where one is to go on, the call of a layer behind it
  // names it.
  TensorList compute_mask(const TensorList&, const TensorList&, size_t) override { return {}; }
  bool supports_masking() const override { return true; }
  bool autocast_inputs() const override { return false; }
  bool inputs_are_arguments() const override { return true; }
  std::string module() const override;
  Json get_config() const override;
  std::shared_ptr<const CallForm> read_call(const Json& args, const Json& kwargs) const override;

  // Keras' class names of those that there are.
  static std::vector<std::string> known();

 private:
  Json config_;
};

// An operation of these values: its arguments have {"input": i} in place of the i-th one.
KerasTensor call_operation(const std::string& class_name, const Json& config, const Json& arguments,
                           const KerasTensorList& values,
                           std::source_location where = std::source_location::current());

// Whether `json`, an entry of a model's file, is an operation, and the one that it describes: of
// register_operations() where that was called.
bool is_operation(const Json& json);
Layer read_operation(const Json& json);
// Whether a layer stands for one.
bool is_operation(const LayerBase& layer);

}  // namespace lockstep::keras
