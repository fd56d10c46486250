// Models as Keras 3's own JSON.
#include <algorithm>
#include <map>

#include "base/as_error.h"
#include "keras/fields.h"
#include "keras/functional_graph.h"
#include "keras/layers/registry.h"
#include "keras/models/functional_model.h"
#include "keras/models/sequential_model.h"
#include "keras/operation_layer.h"
#include "keras/saving/keras2_config.h"
#include "keras/saving/shared_layers.h"
#include "keras/training/compile_config.h"
#include "keras/training/trainer.h"
#include "keras/written_tensors.h"
#include "lockstep/base/error.h"

namespace lockstep::keras {
namespace {

constexpr const char* kTensorClass = "__keras_tensor__";

// Calls of a layer are counted from 0, with one exception: where a model's ends are named, Keras counts the
// making of a functional model inside as its call 0, and its real calls from 1.
int64_t first_call_at_ends(const Layer& layer) {
  return dynamic_cast<const FunctionalModel*>(layer.base().get()) ? 1 : 0;
}

// --- writing -----------------------------------------------------------------------------------------------

// Numbers the calls of each layer: what Keras calls a value's history.
class Histories {
 public:
  explicit Histories(const FunctionalGraph& graph) {
    std::map<const LayerBase*, int64_t> counts;
    for (const auto& call : graph.calls) index_[call.get()] = counts[call->layer.base().get()]++;
  }
  // As the calls of other layers name it.
  Json of(const KerasTensor& value) const { return counted(value, 0); }
  // As an input or output of the whole model.
  Json at_end(const KerasTensor& value) const {
    return counted(value, first_call_at_ends(value.impl()->call->layer));
  }

 private:
  Json counted(const KerasTensor& value, int64_t first) const {
    const auto found = index_.find(value.impl()->call.get());
    require(found != index_.end(), ErrorCode::unsupported, std::source_location::current(),
            "to_json: the model starts at \"", value.name(),
            "\", a value inside another model; only models that start at Input() can be written");
    return Json::List{value.impl()->call->layer.name(), found->second + first, value.impl()->output};
  }

  std::map<const LayerCall*, int64_t> index_;
};

// Keras' argument of ReversibleEmbedding; here the dtype of the input says it.
bool reverses(const Layer& layer, const KerasTensorList& inputs) {
  return layer.class_name() == "ReversibleEmbedding" && is_floating(inputs[0].dtype());
}

// What call(training=...) is where nobody says it, as Keras writes it into files then.
std::optional<bool> written_unsaid(const Layer& layer) {
  static constexpr const char* kFalse[] = {"AdditiveAttention",
                                           "AlphaDropout",
                                           "Attention",
                                           "ConvLSTM1D",
                                           "ConvLSTM2D",
                                           "ConvLSTM3D",
                                           "Dropout",
                                           "GRU",
                                           "GaussianDropout",
                                           "GaussianNoise",
                                           "LSTM",
                                           "RNN",
                                           "SimpleRNN",
                                           "SpatialDropout1D",
                                           "SpatialDropout2D",
                                           "SpatialDropout3D",
                                           "SpectralNormalization"};
  const LayerBase& base = *layer.base();
  if (const std::optional<bool> own = base.training_by_default()) return own;
  const bool is_one = std::find(std::begin(kFalse), std::end(kFalse), base.class_name()) != std::end(kFalse);
  return is_one && base.module() == "keras.layers" ? std::optional(false) : std::nullopt;
}

Json written_arguments(const LayerCall& call, const Histories& histories) {
  const auto value = [&](const KerasTensor& tensor) {
    return Json::object({{"class_name", kTensorClass},
                         {"config", Json::object({{"shape", to_json(tensor.shape())},
                                                  {"dtype", to_json(tensor.dtype())},
                                                  {"keras_history", histories.of(tensor)}})}});
  };
  Json::List inputs;
  for (const KerasTensor& input : call.inputs) inputs.push_back(value(input));
  if (call.options.form) return call.options.form->written(inputs);
  Json args;
  const auto* model = dynamic_cast<const FunctionalModel*>(call.layer.base().get());
  if (model && !model->input_keys().empty()) {
    Json named = Json::object();
    for (size_t i = 0; i < inputs.size(); ++i) named.set(model->input_keys()[i], inputs[i]);
    args = Json::List{named};
  } else if ((inputs.size() == 1 && !call.layer.base()->takes_list()) ||
             call.layer.base()->inputs_are_arguments()) {
    args = inputs;
  } else {
    args = Json::list();
    args.push_back(inputs);  // compilers do not agree on what List{inputs} is
  }
  Json kwargs = Json::object();
  if (reverses(call.layer, call.inputs)) kwargs.set("reverse", true);
  const SymbolicCallOptions& options = call.options;
  if (options.training) kwargs.set("training", *options.training);
  if (options.mask.defined()) kwargs.set("mask", value(options.mask));
  if (!options.masks.empty()) {
    Json masks = Json::list();
    for (const KerasTensor& mask : options.masks) masks.push_back(mask.defined() ? value(mask) : Json());
    kwargs.set("mask", masks);
  }
  if (options.attention_mask.defined()) kwargs.set("attention_mask", value(options.attention_mask));
  if (options.use_causal_mask) kwargs.set("use_causal_mask", true);
  if (options.return_attention_scores) kwargs.set("return_attention_scores", true);
  if (!options.initial_state.empty()) {
    Json states = Json::list();
    for (const KerasTensor& state : options.initial_state) states.push_back(value(state));
    kwargs.set("initial_state", states);
  }
  return Json::object({{"args", args}, {"kwargs", kwargs}});
}

Json written_call(const LayerCall& call, const Histories& histories) {
  Json node = written_arguments(call, histories);
  // What Keras would not tell from a default, and passes over: here it was said.
  if (call.options.training && written_unsaid(call.layer) == call.options.training) node.set(kAsSaid, true);
  return node;
}

// --- reading -----------------------------------------------------------------------------------------------

const Json* tensor_history(const Json& json) {
  const Json* class_name = json.find("class_name");
  if (!class_name || !class_name->is_string() || class_name->as_string() != kTensorClass) return nullptr;
  return &json.at("config").at("keras_history");
}

std::map<std::string, const Json*> sorted_members(const Json& json) {
  std::map<std::string, const Json*> members;
  for (const auto& [name, value] : json.members()) members.emplace(name, &value);
  return members;
}

// The settings of a call without a `training` that is no more than the default of the layer's call(): Keras'
// models put their own in its place at every call.
Json said_settings(const Layer& layer, const Json& node) {
  Json kwargs = node.contains("kwargs") ? node.at("kwargs") : Json::object();
  const Json* training = kwargs.find("training");
  const Json* as_said = node.find(kAsSaid);
  if (training && training->is_bool() && !(as_said && *as_said == Json(true)) &&
      written_unsaid(layer) == training->as_bool())
    kwargs.erase("training");
  return kwargs;
}

class GraphReader {
 public:
  // What a call is given.
  KerasTensor find(const Json& history) const { return counted(history, 0); }
  // An input or output of the whole model.
  KerasTensor find_end(const Json& history) const {
    const auto first = first_call_.find(history.at(0).as_string());
    return counted(history, first == first_call_.end() ? 0 : first->second);
  }

  bool ready(const Json& json) const {
    if (const Json* history = tensor_history(json)) {
      const auto found = results_.find(history->at(0).as_string());
      return found != results_.end() && history->at(1).as_int() < std::ssize(found->second);
    }
    if (json.is_list())
      return std::all_of(json.items().begin(), json.items().end(),
                         [&](const Json& item) { return ready(item); });
    if (json.is_object())
      return std::all_of(json.members().begin(), json.members().end(),
                         [&](const Json::Member& member) { return ready(member.second); });
    return true;
  }

  void add_input(const KerasTensor& input) { results_[input.name()].push_back({input}); }

  void make_call(const Layer& layer, const std::string& name, const Json& node) {
    const Json kwargs = said_settings(layer, node);
    KerasTensorList operands;
    SymbolicCallOptions options;
    const Json placed = with_places(node.at("args"), operands);
    options.form = layer.base()->read_call(placed, with_places(kwargs, operands));
    if (options.form) {
      if (const Json* training = kwargs.find("training"); training && training->is_bool())
        options.training = training->as_bool();
      results_[name].push_back(layer.apply(operands, options));
      return;
    }
    operands.clear();
    collect(node.at("args"), operands);
    static constexpr const char* kInputs[] = {"query", "value", "key", "inputs", "x", "sequence"};
    for (const char* input : kInputs)
      if (const Json* given = kwargs.find(input)) collect(*given, operands);
    for (const auto& [key, value] : kwargs.members()) {
      if (value.is_null() || std::find(std::begin(kInputs), std::end(kInputs), key) != std::end(kInputs))
        continue;
      if (key == "training") {
        options.training = value.as_bool();
      } else if (key == "use_causal_mask") {
        options.use_causal_mask = value.as_bool();
      } else if (key == "return_attention_scores") {
        options.return_attention_scores = value.as_bool();
      } else if (key == "reverse" && value.is_bool() && !operands.empty() &&
                 value.as_bool() == reverses(layer, operands)) {
        continue;
      } else if (key == "mask" && value.is_list()) {
        for (const Json& mask : value.items()) {
          KerasTensorList one;
          collect(mask, one);
          options.masks.push_back(one.empty() ? KerasTensor() : one[0]);
        }
      } else if (key == "mask" || key == "attention_mask" || key == "initial_state") {
        KerasTensorList extra;
        collect(value, extra);
        if (extra.empty()) continue;
        if (key == "mask") options.mask = extra[0];
        if (key == "attention_mask") options.attention_mask = extra[0];
        if (key == "initial_state") options.initial_state = extra;
      } else {
        const bool off = value.is_bool() && !value.as_bool();
        require(off, ErrorCode::unsupported, std::source_location::current(), "from_json: layer \"", name,
                "\" is called with \"", key, "\" = ", value, ", which Lockstep does not know");
      }
    }
    results_[name].push_back(layer.apply(operands, options));
    first_call_[name] = first_call_at_ends(layer);
  }

  // Every tensor in `json`, depth first; those of a dictionary in the order of their names, as Keras flattens
  // it.
  void collect(const Json& json, KerasTensorList& into) const {
    if (const Json* history = tensor_history(json)) {
      into.push_back(find(*history));
    } else if (json.is_list()) {
      for (const Json& item : json.items()) collect(item, into);
    } else if (json.is_object()) {
      for (const auto& [name, item] : sorted_members(json)) collect(*item, into);
    }
  }

 private:
  // The same with {"input": i} in place of its tensors, which are added to `operands`.
  Json with_places(const Json& json, KerasTensorList& operands) const {
    if (const Json* history = tensor_history(json)) {
      operands.push_back(find(*history));
      return Json::object({{"input", std::ssize(operands) - 1}});
    }
    if (json.is_list()) {
      Json list = Json::list();
      for (const Json& item : json.items()) list.push_back(with_places(item, operands));
      return list;
    }
    if (!json.is_object()) return json;
    Json object = Json::object();
    for (const auto& [name, item] : json.members()) object.set(name, with_places(item, operands));
    return object;
  }

  KerasTensor counted(const Json& history, int64_t first) const {
    const std::string& layer = history.at(0).as_string();
    const auto found = results_.find(layer);
    require(found != results_.end(), ErrorCode::invalid_argument, std::source_location::current(),
            "from_json: there is no layer \"", layer, "\"");
    const int64_t call = history.at(1).as_int() - first;
    const int64_t output = history.at(2).as_int();
    require(call >= 0 && call < std::ssize(found->second), ErrorCode::invalid_argument,
            std::source_location::current(), "from_json: ", history, " names call ", history.at(1),
            " of layer \"", layer, "\", whose calls are counted from ", first, " to ",
            first + std::ssize(found->second) - 1);
    const KerasTensorList& results = found->second[static_cast<size_t>(call)];
    require(output >= 0 && output < std::ssize(results), ErrorCode::invalid_argument,
            std::source_location::current(), "from_json: ", history, " names result ", output,
            " of a call of layer \"", layer, "\", which has ", results.size());
    return results[static_cast<size_t>(output)];
  }

  std::map<std::string, std::vector<KerasTensorList>> results_;  // by layer, then call
  std::map<std::string, int64_t> first_call_;  // by layer: the number of its first call at ends
};

KerasTensor read_input(const Json& config) {
  const Json* batch_shape = config.find("batch_shape");
  if (!batch_shape) batch_shape = &config.at("batch_input_shape");
  Shape shape;
  from_json(*batch_shape, shape);
  DType dtype = DType::float32;
  if (const Json* given = config.find("dtype"); given && given->is_string()) from_json(*given, dtype);
  return make_input(shape, dtype, config.at("name").as_string());
}

bool is_input(const Json& json) { return json.at("class_name").as_string() == "InputLayer"; }

KerasTensors read_ends(const GraphReader& graph, const Json& json) {
  // One end may stand without a list around it.
  if (json.is_list() && !json.items().empty() && json.at(size_t{0}).is_string()) return graph.find_end(json);
  if (json.is_object()) {
    KerasTensors::Named named;
    for (const auto& [name, history] : json.members()) named.emplace(name, graph.find_end(history));
    return named;
  }
  KerasTensorList ends;
  for (const Json& history : json.items()) ends.push_back(graph.find_end(history));
  return ends;
}

Layer read_functional(const Json& config) {
  GraphReader graph;
  struct Pending {
    std::string name;
    Json json;
    Layer layer;
    size_t done = 0;
  };
  std::vector<Pending> pending;
  for (const Json& json : config.at("layers").items()) {
    if (is_input(json)) {
      graph.add_input(read_input(json.at("config")));
      continue;
    }
    const std::string& name =
        json.contains("name") ? json.at("name").as_string() : json.at("config").at("name").as_string();
    pending.push_back({name, json, is_operation(json) ? read_operation(json) : Layer::deserialize(json), 0});
  }
  // A call can be made once everything it is given is there; layers are not always listed in that order.
  for (bool progress = true; progress;) {
    progress = false;
    for (Pending& entry : pending) {
      const Json::List& nodes = entry.json.at("inbound_nodes").items();
      while (entry.done < nodes.size() && graph.ready(nodes[entry.done])) {
        graph.make_call(entry.layer, entry.name, nodes[entry.done++]);
        progress = true;
      }
    }
  }
  for (const Pending& entry : pending)
    require(entry.done == entry.json.at("inbound_nodes").items().size(), ErrorCode::invalid_argument,
            std::source_location::current(), "from_json: layer \"", entry.name,
            "\" is given a value that no layer makes");
  ModelOptions options{.name = config.at("name").as_string()};
  if (const Json* trainable = config.find("trainable")) options.trainable = trainable->as_bool();
  return Model(read_ends(graph, config.at("input_layers")), read_ends(graph, config.at("output_layers")),
               options);
}

Layer read_sequential(const Json& config) {
  ModelOptions options{.name = config.at("name").as_string()};
  if (const Json* trainable = config.find("trainable")) options.trainable = trainable->as_bool();
  const Sequential model(options);
  bool has_input = false;
  for (const Json& json : config.at("layers").items()) {
    if (is_input(json)) {
      model.add(read_input(json.at("config")));
      has_input = true;
    } else {
      model.add(Layer::deserialize(json));
    }
  }
  const Json* shape = config.find("build_input_shape");
  if (!has_input && shape && shape->is_list() && !model.built()) {
    Shape input;
    from_json(*shape, input);
    model.build(input);
  }
  return model;
}

const bool registered = [] {
  layer_registry().add("Functional", read_functional, {"Model"});
  layer_registry().add("Sequential", read_sequential);
  return true;
}();

}  // namespace

Json FunctionalModel::get_config() const {
  const Histories histories(graph_);
  Json config = Json::object({{"name", name()}, {"trainable", trainable()}});
  Json listed = Json::list();
  for (const Layer& layer : graph_.layers) {
    Json json = layer.serialize();
    json.set("name", layer.name());
    Json nodes = Json::list();
    for (const auto& call : graph_.calls)
      if (call->layer == layer && !call->inputs.empty()) nodes.push_back(written_call(*call, histories));
    json.set("inbound_nodes", nodes);
    listed.push_back(std::move(json));
  }
  config.set("layers", std::move(listed));
  const auto ends = [&](const KerasTensors& values) {
    Json list = Json::list(), named = Json::object();
    for (size_t i = 0; i < values.list().size(); ++i) {
      list.push_back(histories.at_end(values.list()[i]));
      if (!values.names().empty()) named.set(values.names()[i], list.at(i));
    }
    if (!values.names().empty()) return named;
    return values.list().size() == 1 ? list.at(size_t{0}) : list;
  };
  config.set("input_layers", ends(inputs_));
  config.set("output_layers", ends(outputs_));
  return config;
}

Json SequentialModel::get_config() const {
  Json config = LayerBase::get_config();
  Json listed = Json::list();
  if (input_given_) listed.push_back(input_.impl()->call->layer.serialize());
  for (const Layer& layer : layers()) listed.push_back(layer.serialize());
  config.set("layers", std::move(listed));
  if (input_.defined()) config.set("build_input_shape", to_json(input_.shape()));
  return config;
}

Json ModelBase::compile_config() const {
  return trainer_->compiled() ? serialize_compile_options(trainer_->options()) : Json::object();
}

void ModelBase::compile_from_config(const Json& config, std::source_location where) {
  if (config.contains("optimizer"))
    Model(std::static_pointer_cast<ModelBase>(shared_from_this()))
        .compile(deserialize_compile_options(config, where), where);
}

std::string Model::to_json(int indent, std::source_location where) const {
  const CallSite site(where);
  const ModelBase& base = model_base(where);
  const SharedLayersWritten shared(*this);
  Json json = serialize();
  json.set("compile_config", base.compile_config());
  return json.dump(indent);
}

Model Model::from_json(const std::string& text, std::source_location where) {
  return as_error("from_json", where, [&] {
    const Json json = with_plain_settings(Json::parse(text, "model JSON", where));
    const SharedLayersRead shared;
    const Layer layer = Layer::deserialize(json, where);
    auto base = std::dynamic_pointer_cast<ModelBase>(layer.base());
    require(base != nullptr, ErrorCode::invalid_argument, where, "from_json: \"",
            json.at("class_name").as_string(), "\" is a layer, not a model");
    const Model model(base);
    if (const Json* settings = json.find("compile_config");
        settings && settings->is_object() && !settings->members().empty())
      base->compile_from_config(*settings, where);
    return model;
  });
}

}  // namespace lockstep::keras
