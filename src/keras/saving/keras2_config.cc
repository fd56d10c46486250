#include "keras/saving/keras2_config.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {
namespace {

// Settings that say nothing that is not so anyway; the ones of an Input where they are those of layers, too.
constexpr const char* kGone[] = {"softmax_robust_masking", "query_shape", "key_shape",    "value_shape",
                                 "is_legacy_optimizer",    "jit_compile", "input_length", "rng_type"};
constexpr const char* kGoneOfInputs[] = {"ragged", "sparse", "optional"};
constexpr const char* kInitializers[] = {
    "Zeros",         "Ones",        "Constant",     "Identity",        "RandomNormal",
    "RandomUniform", "Orthogonal",  "GlorotNormal", "GlorotUniform",   "HeNormal",
    "HeUniform",     "LecunNormal", "LecunUniform", "TruncatedNormal", "VarianceScaling"};

bool among(const auto& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// `decay` of an optimizer, which became schedules.
bool is_gone_decay(const std::string& class_name, const Json& value) {
  // Nadam's is how its momentum begins, which is a matter of course now.
  if (value.as_double() != 0 && class_name != "Nadam")
    log(LogLevel::warning, "optimizer ", class_name,
        " of Keras 2 has the setting decay = ", value.as_double(),
        ", which is passed over: the learning rate stays as it is; an InverseTimeDecay schedule decays so");
  return true;
}

bool gone(const std::string& class_name, const std::string& name, const Json& value) {
  const bool by_channel = class_name.starts_with("Depthwise") || class_name.starts_with("Separable");
  if (name == "groups" && (by_channel || class_name.ends_with("Transpose"))) return true;
  if (by_channel && name.starts_with("kernel_") && name != "kernel_size") return true;
  // Of what fills weights, and of numbers of bins, which are whole anyway.
  if (name == "dtype" && (among(kInitializers, class_name) || class_name == "Discretization")) return true;
  // The function of a loss that has a class of its own; a schedule without a name.
  if (name == "fn" && value.is_string()) return true;
  if (name == "name" && value.is_null()) return true;
  return among(kGone, name) || (class_name == "InputLayer" && among(kGoneOfInputs, name)) ||
         (name == "time_major" && value == Json(false)) ||
         (name == "decay" && value.is_number() && is_gone_decay(class_name, value));
}

// What a setting is called now.
std::string name_of_now(const std::string& class_name, const std::string& name) {
  if (name == "lr") return "learning_rate";
  return class_name == "LeakyReLU" && name == "alpha" ? "negative_slope" : name;
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
// ["_CONSTANT_VALUE", -1, value, {settings of the call}]
bool is_constant(const Json& json) {
  return json.is_list() && json.items().size() >= 3 && json.at(size_t{0}) == Json("_CONSTANT_VALUE");
}

// Keras 3 writes a call as its arguments.
bool is_node_of_keras2(const Json& node) { return !node.is_object() || !node.contains("args"); }

// Slashes in names are groups of files now.
std::string plain(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

const Json* own_name(const Json& layer) {
  const Json* name = layer.at("config").is_object() ? layer.at("config").find("name") : nullptr;
  if (!name) name = layer.find("name");
  return name && name->is_string() ? name : nullptr;
}

// Whether what a layer is given beside its first tensor are states to begin with.
bool takes_states(const std::string& class_name) {
  static constexpr const char* kRecurrent[] = {"LSTM",       "GRU",        "SimpleRNN",  "RNN",
                                               "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional"};
  return among(kRecurrent, class_name);
}

// The list or object with function(part) in the place of every part; what has no parts, as it is.
template <class F>
Json mapped(const Json& json, const F& function) {
  if (json.is_list()) {
    Json list = Json::list();
    for (const Json& item : json.items()) list.push_back(function(item));
    return list;
  }
  if (!json.is_object()) return json;
  Json object = Json::object();
  for (const auto& [name, item] : json.members()) object.set(name, function(item));
  return object;
}

// How the calls of one model are written anew.
class Calls {
 public:
  explicit Calls(const Json& layers) {
    for (const Json& layer : layers.items()) {
      if (const Json* nodes = layer.find("inbound_nodes"))
        for (const Json& node : nodes->items()) of_keras2_ = of_keras2_ || is_node_of_keras2(node);
      if (!is_object_of_keras(layer)) continue;
      const std::string& class_name = layer.at("class_name").as_string();
      const Json* name = own_name(layer);
      if (!name || !is_model(class_name)) continue;
      models_.insert(name->as_string());
      if (class_name == "Sequential") sequentials_.insert(name->as_string());
    }
  }
  bool of_keras2() const { return of_keras2_; }

  // What the layer is given: tensors in lists or by names, each of which has the settings of the call.
  Json node(const Json& given, const Json& layer) const {
    Json kwargs = Json::object();
    Json inputs = input(given, kwargs);
    const std::string& class_name = layer.at("class_name").as_string();
    if (inputs.is_list() && inputs.items().size() > 1 && takes_states(class_name)) {
      const Json* constants = layer.at("config").find("num_constants");
      require(!constants || constants->is_null() || *constants == Json(0), ErrorCode::unsupported,
              std::source_location::current(), "a layer ", class_name,
              " of a model of Keras 2 is given constants beside its states; Lockstep does not know them");
      const Json::List all = inputs.items();
      inputs = Json::List{all[0]};
      kwargs.set("initial_state", Json::List(all.begin() + 1, all.end()));
    }
    const bool alone = inputs.is_list() && inputs.items().size() == 1;
    return Json::object(
        {{"args", alone ? inputs : Json(Json::List{inputs})}, {"kwargs", kwargs}, {kAsSaid, true}});
  }

  // An input or output of the model, or several of them in a list or by names.
  Json ends(const Json& given) const {
    if (is_history(given)) {
      const std::string& layer = given.at(size_t{0}).as_string();
      // Only of functional models the making counts as a call there in Keras 3.
      const int64_t call = given.at(size_t{1}).as_int() - (sequentials_.contains(layer) ? 1 : 0);
      return Json::List{plain(layer), std::max<int64_t>(0, call), given.at(size_t{2})};
    }
    return mapped(given, [&](const Json& part) { return ends(part); });
  }

 private:
  Json input(const Json& given, Json& kwargs) const {
    if (!is_history(given) && !is_constant(given))
      return mapped(given, [&](const Json& part) { return input(part, kwargs); });
    if (given.items().size() > 3)
      for (const auto& [name, value] : given.at(size_t{3}).members()) kwargs.set(name, argument(value));
    return is_history(given) ? tensor(given) : given.at(size_t{2});
  }

  Json argument(const Json& given) const {
    if (is_history(given)) return tensor(given);
    return mapped(given, [&](const Json& part) { return argument(part); });
  }

  // Keras 2 counted the making of a model as its first call.
  Json tensor(const Json& history) const {
    const std::string& layer = history.at(size_t{0}).as_string();
    const int64_t call = history.at(size_t{1}).as_int() - (models_.contains(layer) ? 1 : 0);
    return Json::object(
        {{"class_name", "__keras_tensor__"},
         {"config", Json::object({{"keras_history", Json::List{plain(layer), std::max<int64_t>(0, call),
                                                               history.at(size_t{2})}}})}});
  }

  std::set<std::string> models_, sequentials_;
  bool of_keras2_ = false;
};

Json settings_of(const std::string& class_name, const Json& config) {
  Json made = Json::object();
  for (const auto& [name, value] : config.members()) {
    if (gone(class_name, name, value)) continue;
    // One axis in a list.
    const bool one =
        name == "axis" && class_name == "BatchNormalization" && value.is_list() && value.items().size() == 1;
    made.set(name_of_now(class_name, name), one ? value.at(size_t{0}) : as_keras3(value));
  }
  // As it was called when it had no other.
  if (class_name == "VarianceScaling" && made.find("distribution") &&
      made.at("distribution") == Json("normal"))
    made.set("distribution", "truncated_normal");
  if (const Json* reduction = made.find("reduction"); reduction && *reduction == Json("auto"))
    made.set("reduction", "sum_over_batch_size");
  return made;
}

// A metric that is a function by the name that it was given: "mae", "accuracy". Where there are several outputs,
// that of the output stands before it.
Json metric_of(const Json& config) {
  static constexpr std::pair<const char*, const char*> kShort[] = {
      {"mean_squared_error", "mse"},
      {"mean_absolute_error", "mae"},
      {"mean_absolute_percentage_error", "mape"},
      {"mean_squared_logarithmic_error", "msle"},
      {"kl_divergence", "kld"},
      {"binary_accuracy", "accuracy"},
      {"binary_accuracy", "acc"},
      {"categorical_accuracy", "accuracy"},
      {"categorical_accuracy", "acc"},
      {"sparse_categorical_accuracy", "accuracy"},
      {"sparse_categorical_accuracy", "acc"}};
  const std::string& function = config.at("fn").as_string();
  const Json* given = config.find("name");
  const std::string name = given && given->is_string() ? given->as_string() : function;
  if (name == function || name.ends_with("_" + function)) return function;
  for (const auto& [whole, brief] : kShort)
    if (function == whole && (name == brief || name.ends_with(std::string("_") + brief))) return brief;
  return function;
}

// Keras 3 leaves out here which module a class is of, and ops between layers have names that layers have,
// too: those take one list.
bool is_operation_called_as_a_layer(const Json& layer) {
  constexpr const char* kBoth[] = {"Add", "Subtract", "Multiply", "Maximum", "Minimum", "Average", "Dot"};
  if (layer.contains("module") || !layer.contains("inbound_nodes") ||
      !among(kBoth, layer.at("class_name").as_string()))
    return false;
  const Json::List& nodes = layer.at("inbound_nodes").items();
  return !nodes.empty() && nodes[0].is_object() && nodes[0].at("args").items().size() > 1;
}

void require_no_operation_of_tensorflow(const Json& layer) {
  if (!is_object_of_keras(layer)) return;
  const std::string& class_name = layer.at("class_name").as_string();
  if (class_name != "TFOpLambda" && class_name != "SlicingOpLambda" && class_name != "TensorFlowOpLayer")
    return;
  const Json& config = layer.at("config");
  const Json* given = own_name(layer);
  const Json name = given ? *given : Json("?");
  const Json* op = config.is_object() ? config.find("function") : nullptr;
  fail(ErrorCode::unsupported, std::source_location::current(), "layer ", name,
       " of a model of Keras 2 is the operation ", op ? *op : name, " of TensorFlow (", class_name,
       "), which is not read; make the model anew with layers or keras.ops in its place, and load the "
       "weights");
}

void with_plain_name(Json& layer) {
  const Json* name = own_name(layer);
  if (!name || name->as_string().find('/') == std::string::npos) return;
  const std::string now = plain(name->as_string());
  if (layer.find("name")) layer.set("name", now);
  Json config = layer.at("config");
  config.set("name", now);
  layer.set("config", config);
}

// The layers of a model, whose calls are lists in Keras 2.
Json model_of(const std::string& class_name, const Json& config) {
  Json made = Json::object();
  const Calls calls(config.at("layers"));
  Json layers = Json::list();
  for (const Json& given : config.at("layers").items()) {
    require_no_operation_of_tensorflow(given);
    Json layer = as_keras3(given);
    if (const Json* nodes = given.find("inbound_nodes")) {
      Json written = Json::list();
      for (const Json& node : nodes->items())
        written.push_back(is_node_of_keras2(node) ? calls.node(node, given) : node);
      layer.set("inbound_nodes", written);
    }
    if (calls.of_keras2() || class_name == "Sequential") with_plain_name(layer);
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
  for (const auto& [name, value] : config.members())
    if (name == "layers")
      made.set(name, layers);
    else if ((name == "input_layers" || name == "output_layers") && calls.of_keras2())
      made.set(name, calls.ends(value));
    else
      made.set(name, value);
  return made;
}

}  // namespace

Json as_keras3(const Json& json) {
  if (!is_object_of_keras(json)) return mapped(json, as_keras3);
  const Json& config = json.at("config");
  std::string class_name = json.at("class_name").as_string();
  // Optimizers of Keras 2.11 and later were registered like classes of one's own.
  const std::string custom = "Custom>";
  if (class_name.starts_with(custom) && config.is_object() && config.contains("is_legacy_optimizer"))
    class_name = class_name.substr(custom.size());
  if (config.is_object() && config.contains("fn") && config.at("fn").is_string()) {
    if (class_name == "MeanMetricWrapper") return metric_of(config);
    if (class_name == "LossFunctionWrapper") return config.at("fn");
  }
  // The first models were lists of their layers.
  if (class_name == "Sequential" && config.is_list()) {
    const Json* name = json.find("name");
    Json model = json;
    model.set("config", Json::object({{"name", name ? *name : Json("sequential")}, {"layers", config}}));
    return as_keras3(model);
  }
  Json made = Json::object();
  for (const auto& [name, value] : json.members()) made.set(name, value);
  made.set("class_name", class_name);
  if (config.is_object())
    made.set("config", is_model(class_name) && config.contains("layers") ? model_of(class_name, config)
                                                                         : settings_of(class_name, config));
  return made;
}

}  // namespace lockstep::keras
