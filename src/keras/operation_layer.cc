#include "keras/operation_layer.h"

#include <functional>
#include <utility>

#include "keras/operands.h"
#include "keras/operations.h"
#include "lockstep/base/error.h"

namespace lockstep::keras {
namespace {

// Null where there is none of that name.
const Operation* find(const std::string& class_name) {
  for (const auto operations : {numpy_operations(), other_operations()})
    for (const Operation& operation : operations)
      if (class_name == operation.class_name) return &operation;
  return nullptr;
}

Json fill_in(const Json& arguments, const Json::List& inputs) {
  if (const Json* input = arguments.find("input")) return inputs[static_cast<size_t>(input->as_int())];
  if (arguments.is_list()) {
    Json list = Json::list();
    for (const Json& item : arguments.items()) list.push_back(fill_in(item, inputs));
    return list;
  }
  if (!arguments.is_object()) return arguments;
  Json object = Json::object();
  for (const auto& [name, value] : arguments.members()) object.set(name, fill_in(value, inputs));
  return object;
}

std::string name_in(const Json& config) {
  const Json* name = config.find("name");
  return name ? name->as_string() : "";
}

// Set once, by a front; read whenever a model is.
std::function<Layer(const Json& entry)>& maker_of_operations() {
  static std::function<Layer(const Json& entry)> make;
  return make;
}

bool is_module_of_operations(const std::string& module) {
  // Keras', and a front's own.
  return module.starts_with("keras.src.ops.") || module.starts_with("keras.src.activations.") ||
         module.starts_with("lockstep.");
}

}  // namespace

Json OperationArguments::written(const Json::List& inputs) const {
  Json kwargs = Json::object();  // an argument may be called "input", as the place of one is
  for (const auto& [name, value] : named_.members()) kwargs.set(name, fill_in(value, inputs));
  return Json::object({{"args", fill_in(positional_, inputs)}, {"kwargs", std::move(kwargs)}});
}

OperationLayer::OperationLayer(const std::string& class_name, Json config)
    : LayerBase(class_name, {.name = name_in(config)}), config_(std::move(config)) {
  if (!find(class_name)) {
    std::string all;
    for (const std::string& each : known()) all += (all.empty() ? "" : ", ") + each;
    fail(ErrorCode::unsupported, std::source_location::current(), "the operation \"", class_name,
         "\" of keras.ops is not known between layers; there are ", all);
  }
  config_.set("name", name());
}

TensorList OperationLayer::call_all(const TensorList& inputs, const CallContext& context) {
  const auto* arguments = dynamic_cast<const OperationArguments*>(context.form.get());
  require(arguments != nullptr, ErrorCode::invalid_argument, std::source_location::current(), "operation \"",
          name(), "\" was called without the arguments of keras.ops");
  const Operation& operation = *find(class_name());
  const Operands operands(inputs, *arguments, config_);
  if (operation.run_all) return operation.run_all(operands);
  return {operation.run(operands)};
}

std::string OperationLayer::module() const {
  return std::string("keras.src.ops.") + find(class_name())->module;
}
Json OperationLayer::get_config() const { return config_; }

std::shared_ptr<const CallForm> OperationLayer::read_call(const Json& args, const Json& kwargs) const {
  return std::make_shared<OperationArguments>(args, kwargs);
}

std::vector<std::string> OperationLayer::known() {
  std::vector<std::string> names;
  for (const auto operations : {numpy_operations(), other_operations()})
    for (const Operation& operation : operations) names.emplace_back(operation.class_name);
  return names;
}

KerasTensor call_operation(const std::string& class_name, const Json& config, const Json& arguments,
                           const KerasTensorList& values, std::source_location where) {
  return make_layer<OperationLayer>(class_name, config)(
      values, {.form = std::make_shared<OperationArguments>(arguments)}, where);
}

bool is_operation(const Json& json) {
  const Json* module = json.find("module");
  return module && module->is_string() && is_module_of_operations(module->as_string());
}

Layer read_operation(const Json& json) {
  if (const auto& make = maker_of_operations()) return make(json);
  return make_layer<OperationLayer>(json.at("class_name").as_string(), json.at("config"));
}

bool is_operation(const LayerBase& layer) { return is_module_of_operations(layer.module()); }

void register_operations(std::function<Layer(const Json& entry)> make) {
  maker_of_operations() = std::move(make);
}

}  // namespace lockstep::keras
