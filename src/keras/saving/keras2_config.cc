#include "keras/saving/keras2_config.h"

#include <algorithm>
#include <set>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::keras {
namespace {

// Settings that say nothing that is not so anyway; the ones of an Input where they are those of layers, too.
constexpr const char* kGone[] = {"softmax_robust_masking", "query_shape", "key_shape",   "value_shape",
                                 "is_legacy_optimizer",    "jit_compile", "input_length"};
constexpr const char* kGoneOfInputs[] = {"ragged", "sparse", "optional"};

bool gone(const std::string& class_name, const std::string& name, const Json& value) {
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  const bool by_channel = class_name.starts_with("Depthwise") || class_name.starts_with("Separable");
  if (name == "groups" && (by_channel || class_name.ends_with("Transpose"))) return true;
  if (by_channel && name.starts_with("kernel_") && name != "kernel_size") return true;
  return among(kGone) || (class_name == "InputLayer" && among(kGoneOfInputs)) ||
         (name == "time_major" && value == Json(false)) ||
         (name == "decay" && value.is_number() && value.as_double() == 0);
}

bool is_model(const std::string& class_name) {
  return class_name == "Functional" || class_name == "Model" || class_name == "Sequential";
}

bool is_object_of_keras(const Json& json) {
  const Json* name = json.is_object() ? json.find("class_name") : nullptr;
  return name && name->is_string() && json.contains("config");
}

// ["dense", 0, 0] or ["dense", 0, 0, {settings of the call}]
bool is_history(const Json& json) {
  return json.is_list() && json.items().size() >= 3 && json.at(size_t{0}).is_string() &&
         json.at(size_t{1}).is_int() && json.at(size_t{2}).is_int();
}

// How the calls of one model are written anew.
class Calls {
 public:
  explicit Calls(const Json& layers) {
    for (const Json& layer : layers.items())
      if (is_object_of_keras(layer) && is_model(layer.at("class_name").as_string()))
        models_.insert(layer.at("config").at("name").as_string());
  }

  // A list of what the layer is given, the first of which has the settings of the call.
  Json node(const Json& given) const {
    Json::List tensors;
    Json kwargs = Json::object();
    for (const Json& history : given.items()) {
      tensors.push_back(tensor(history));
      if (history.items().size() > 3)
        for (const auto& [name, value] : history.at(size_t{3}).members())
          kwargs.set(name, is_history(value) ? tensor(value) : value);
    }
    const Json args = tensors.size() == 1 ? Json(tensors) : Json(Json::List{Json(tensors)});
    return Json::object({{"args", args}, {"kwargs", kwargs}});
  }

 private:
  // Keras 2 counted the making of a model as its first call.
  Json tensor(const Json& history) const {
    const std::string& layer = history.at(size_t{0}).as_string();
    const int64_t call = history.at(size_t{1}).as_int() - (models_.contains(layer) ? 1 : 0);
    return Json::object(
        {{"class_name", "__keras_tensor__"},
         {"config", Json::object({{"keras_history",
                                   Json::List{layer, std::max<int64_t>(0, call), history.at(size_t{2})}}})}});
  }

  std::set<std::string> models_;
};

Json settings_of(const std::string& class_name, const Json& config) {
  Json made = Json::object();
  for (const auto& [name, value] : config.members()) {
    if (gone(class_name, name, value)) continue;
    // One axis in a list.
    const bool one =
        name == "axis" && class_name == "BatchNormalization" && value.is_list() && value.items().size() == 1;
    made.set(name == "lr" ? "learning_rate" : name, one ? value.at(size_t{0}) : as_keras3(value));
  }
  if (const Json* reduction = made.find("reduction"); reduction && *reduction == Json("auto"))
    made.set("reduction", "sum_over_batch_size");
  return made;
}

// Keras 3 leaves out here which module a class is of, and ops between layers have names that layers have,
// too: those take one list.
bool is_operation_called_as_a_layer(const Json& layer) {
  constexpr const char* kBoth[] = {"Add", "Subtract", "Multiply", "Maximum", "Minimum", "Average", "Dot"};
  if (layer.contains("module") || !layer.contains("inbound_nodes") ||
      std::find(std::begin(kBoth), std::end(kBoth), layer.at("class_name").as_string()) == std::end(kBoth))
    return false;
  const Json::List& nodes = layer.at("inbound_nodes").items();
  return !nodes.empty() && nodes[0].is_object() && nodes[0].at("args").items().size() > 1;
}

// The layers of a model, whose calls are lists in Keras 2.
Json model_of(const std::string& class_name, const Json& config) {
  Json made = Json::object();
  const Calls calls(config.at("layers"));
  Json layers = Json::list();
  for (const Json& given : config.at("layers").items()) {
    Json layer = as_keras3(given);
    if (const Json* nodes = given.find("inbound_nodes")) {
      Json written = Json::list();
      for (const Json& node : nodes->items()) written.push_back(node.is_list() ? calls.node(node) : node);
      layer.set("inbound_nodes", written);
    }
    if (is_operation_called_as_a_layer(layer)) {
      layer.set("module", "keras.src.ops.numpy");
      layer.set("registered_name", layer.at("class_name"));
    }
    // A Sequential's first layer may say what the input is.
    const Json& settings = given.at("config");
    if (class_name == "Sequential" && layers.items().empty() &&
        given.at("class_name") != Json("InputLayer") && settings.contains("batch_input_shape"))
      layers.push_back(
          Json::object({{"class_name", "InputLayer"},
                        {"config", Json::object({{"batch_shape", settings.at("batch_input_shape")},
                                                 {"name", settings.at("name").as_string() + "_input"}})}}));
    layers.push_back(std::move(layer));
  }
  for (const auto& [name, value] : config.members()) made.set(name, name == "layers" ? layers : value);
  return made;
}

}  // namespace

Json as_keras3(const Json& json) {
  if (json.is_list()) {
    Json list = Json::list();
    for (const Json& item : json.items()) list.push_back(as_keras3(item));
    return list;
  }
  if (!json.is_object()) return json;
  if (!is_object_of_keras(json)) {
    Json object = Json::object();
    for (const auto& [name, value] : json.members()) object.set(name, as_keras3(value));
    return object;
  }
  const Json& config = json.at("config");
  std::string class_name = json.at("class_name").as_string();
  // Optimizers of Keras 2.11 and later were registered like classes of one's own.
  const std::string custom = "Custom>";
  if (class_name.starts_with(custom) && config.is_object() && config.contains("is_legacy_optimizer"))
    class_name = class_name.substr(custom.size());
  // A metric of a function, which has its name: "mae", "accuracy".
  if (class_name == "MeanMetricWrapper" && config.contains("fn") && config.at("fn").is_string())
    return config.at("name");
  Json made = Json::object();
  for (const auto& [name, value] : json.members()) made.set(name, value);
  made.set("class_name", class_name);
  if (config.is_object())
    made.set("config", is_model(class_name) && config.contains("layers") ? model_of(class_name, config)
                                                                         : settings_of(class_name, config));
  return made;
}

}  // namespace lockstep::keras
