#include "keras/saving/legacy_hdf5.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "keras/optimizers/core.h"
#include "keras/saving/hdf5_weights.h"
#include "keras/saving/keras2_config.h"
#include "keras/saving/keras_archive.h"
#include "keras/saving/optimizer_state.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {
namespace {

constexpr const char* kLayerNames = "layer_names";
constexpr const char* kWeightNames = "weight_names";
constexpr const char* kModelConfig = "model_config";
constexpr const char* kTrainingConfig = "training_config";
constexpr const char* kOptimizerConfig = "optimizer_config";
constexpr const char* kModelWeights = "model_weights";
constexpr const char* kOptimizerWeights = "optimizer_weights";
constexpr const char* kKerasVersionName = "keras_version";
constexpr const char* kTopLevel = "top_level_model_weights";

// A list of texts; one that was too long for an attribute is in "NAME0", "NAME1", ....
std::optional<std::vector<std::string>> text_list(const train::Hdf5Reader& file, const std::string& group,
                                                  const std::string& name) {
  if (auto all = file.texts(group, name)) return all;
  std::optional<std::vector<std::string>> all;
  for (int i = 0;; ++i) {
    const auto part = file.texts(group, name + std::to_string(i));
    if (!part) return all;
    if (!all) all.emplace();
    all->insert(all->end(), part->begin(), part->end());
  }
}

std::string legacy_root(const train::Hdf5Reader& file) {
  return file.has_group(kModelWeights) ? kModelWeights : "";
}

// "kernel" of "dense_1/kernel:0"
std::string plain_name(const std::string& weight) {
  const std::string name = weight.substr(weight.rfind('/') + 1);
  return name.substr(0, name.find(':'));
}

// Whether a file of Keras 1 or 2 means this weight: "kernel" of a DepthwiseConv2D had another name in Keras
// 2, and in Keras 1 names had the layer's in front and a number behind: "block1_conv1_W_1".
bool is_called(const std::string& ours, std::string theirs) {
  if (ours == theirs || (ours == "kernel" && theirs == "depthwise_kernel")) return true;
  const size_t last = theirs.find_last_not_of("0123456789");
  if (last != std::string::npos && last + 1 < theirs.size() && theirs[last] == '_') theirs.resize(last);
  if (ours == theirs) return true;  // the second weight of a name
  constexpr std::pair<const char*, const char*> kKeras1[] = {{"kernel", "_W"},
                                                             {"bias", "_b"},
                                                             {"moving_mean", "_running_mean"},
                                                             {"moving_variance", "_running_std"}};
  for (const auto& [name, ending] : kKeras1)
    if (ours == name && theirs.ends_with(ending)) return true;
  return theirs.ends_with("_" + ours);
}

// As Keras lists them in these files: those that are trained first.
std::vector<Variable> listed(const Layer& layer) {
  std::vector<Variable> all = layer.trainable_weights();
  for (const Variable& weight : layer.non_trainable_weights()) all.push_back(weight);
  return all;
}

// "dense_1/kernel" of "inner/dense_1/kernel:0"
std::string with_layer(const std::string& weight) {
  const std::string name = weight.substr(0, weight.find(':'));
  const size_t last = name.rfind('/');
  return last == std::string::npos || last == 0 ? name : name.substr(name.rfind('/', last - 1) + 1);
}

// A weight of a layer as the file has it; no spec where its array is missing.
struct StoredWeight {
  std::string name;
  std::optional<TensorSpec> spec;
};

// The layer's weights in the order of the file's. Keras lists those first that were trained when it was
// written, by the layers inside: which ones these are here may be another matter. Of the orders in which names
// and shapes fit that one counts in which most names of the layers around the weights fit, too. Where none
// does, what a message says is the first whose names fit. Empty: none.
std::vector<Variable> in_order_of(const Layer& layer, const std::vector<StoredWeight>& stored) {
  const std::vector<Variable> all = layer.weights();
  std::vector<Variable> trained_first = all;
  std::stable_partition(trained_first.begin(), trained_first.end(),
                        [](const Variable& v) { return v.trainable(); });
  const auto agree = [&](const std::vector<Variable>& order, auto&& fitting) {
    return std::equal(order.begin(), order.end(), stored.begin(), stored.end(), fitting);
  };
  const auto called = [](const Variable& variable, const StoredWeight& weight) {
    return is_called(plain_name(variable.name()), plain_name(weight.name));
  };
  const auto of_shape = [](const Variable& variable, const StoredWeight& weight) {
    return weight.spec && fits(*weight.spec, variable);
  };
  std::vector<Variable> best, by_name;
  int64_t most = -1;
  for (const std::vector<Variable>& order : {listed(layer), trained_first, all}) {
    if (!agree(order, called)) continue;
    if (by_name.empty()) by_name = order;
    if (!agree(order, of_shape)) continue;
    int64_t same = 0;
    for (size_t i = 0; i < order.size(); ++i)
      if (with_layer(order[i].name()) == with_layer(stored[i].name)) ++same;
    if (same <= most) continue;
    most = same;
    best = order;
  }
  if (!best.empty()) return best;
  // Layers of one's own may call their weights anew: then order and shapes decide.
  if (by_name.empty() && layer.base()->module() != "keras.layers" && agree(listed(layer), of_shape))
    return listed(layer);
  return by_name;
}

// What belongs to the model itself, and to none of its layers.
std::vector<Variable> own_weights(const Model& model, std::source_location where) {
  std::set<int64_t> inside;
  for (const Layer& layer : model.layers(where))
    for (const Variable& weight : layer.weights(where)) inside.insert(static_cast<int64_t>(weight.id()));
  std::vector<Variable> own = listed(model);
  std::erase_if(own,
                [&](const Variable& weight) { return inside.contains(static_cast<int64_t>(weight.id())); });
  return own;
}

// Values by names that have slashes: groups in the group.
class NamedArrays {
 public:
  NamedArrays(train::Hdf5Writer& file, std::string group) : file_(file), group_(std::move(group)) {
    file_.make_group(group_);
  }
  void add(const std::string& wanted, const Tensor& value) {
    const int earlier = uses_[wanted]++;
    const std::string name = earlier == 0 ? wanted : wanted + "_" + std::to_string(earlier);
    const size_t slash = name.rfind('/');
    file_.add(slash == std::string::npos ? group_ : group_ + "/" + name.substr(0, slash),
              name.substr(slash + 1), value);
    names_.push_back(name);
  }
  void finish() { file_.set_texts(group_, kWeightNames, names_); }

 private:
  train::Hdf5Writer& file_;
  std::string group_;
  std::map<std::string, int> uses_;
  std::vector<std::string> names_;
};

void write_weights(train::Hdf5Writer& file, const std::string& group, const std::vector<Variable>& weights,
                   std::source_location where) {
  NamedArrays arrays(file, group);
  for (const Variable& weight : weights) arrays.add(weight.name(), weight.value(where));
  arrays.finish();
}

// "Adam/iter:0": of Keras 2.10 and before, whose optimizers keep one kind of slot behind the other.
bool is_older_counter(const std::string& name) {
  return name.ends_with("/iter:0") || name.ends_with("/iterations:0");
}

// The names of their variables in the order of our states: the third "m" is the third momentum. Nullopt where
// there are others.
std::optional<std::vector<std::string>> by_slots(const std::vector<std::string>& names,
                                                 const std::vector<StoredState>& states) {
  static const std::map<std::string, std::set<std::string>> kOurs = {
      {"m", {"momentum"}},
      {"v", {"velocity", "norm"}},
      {"vhat", {"velocity_hat"}},
      {"rms", {"velocity"}},
      {"mg", {"average_gradient"}},
      {"momentum", {"momentum"}},
      {"accumulator", {"accumulator"}},
      {"linear", {"linear"}},
      {"accum_grad", {"accumulated_grad"}},
      {"accum_var", {"accumulated_delta_var"}}};
  std::vector<bool> used(names.size());
  std::vector<std::string> ordered;
  for (const StoredState& state : states) {
    if (ordered.empty()) {
      ordered.push_back(names[0]);
      used[0] = true;
      continue;
    }
    if (state.name == "learning_rate") {
      ordered.emplace_back();
      continue;
    }
    const std::string slot = state.name.substr(state.name.rfind('/') + 1);
    size_t next = 0;
    for (; next < names.size(); ++next) {
      const auto ours = kOurs.find(plain_name(names[next]));
      if (!used[next] && ours != kOurs.end() && ours->second.contains(slot)) break;
    }
    if (next == names.size()) return {};
    used[next] = true;
    ordered.push_back(names[next]);
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) return {};
  return ordered;
}

bool of_keras2(const train::Hdf5Reader& file) {
  const auto version = file.text("", kKerasVersionName);
  return version && !version->starts_with('3');
}

// A class that was registered is called "Package>Class" there.
Json registered(Json object) {
  const Json* name = object.is_object() ? object.find("class_name") : nullptr;
  if (!name || !name->is_string()) return object;
  const std::string whole = name->as_string();
  const size_t mark = whole.find('>');
  if (mark == std::string::npos) return object;
  object.set("registered_name", whole);
  object.set("class_name", whole.substr(mark + 1));
  return object;
}

// Keras 2 puts the name of the output before that of a metric where a model has several.
Json without_names_of_outputs(const Json& metrics, const Json& model) {
  const Json* outputs = model.is_object() ? model.find("output_layers") : nullptr;
  if (!outputs || !outputs->is_list() || !metrics.is_list() || outputs->items().size() < 2 ||
      metrics.items().size() != outputs->items().size())
    return metrics;
  Json all = Json::list();
  for (size_t i = 0; i < metrics.items().size(); ++i) {
    const Json& output = outputs->at(i);
    const Json& given = metrics.at(i);
    if (!given.is_list() || !output.is_list() || !output.at(size_t{0}).is_string()) {
      all.push_back(given);
      continue;
    }
    const std::string before = output.at(size_t{0}).as_string() + "_";
    Json of_output = Json::list();
    for (Json metric : given.items()) {
      const Json* config = metric.is_object() ? metric.find("config") : nullptr;
      const Json* name = config && config->is_object() ? config->find("name") : nullptr;
      if (name && name->is_string() && name->as_string().starts_with(before)) {
        Json own = *config;
        own.set("name", name->as_string().substr(before.size()));
        metric.set("config", own);
      }
      of_output.push_back(metric);
    }
    all.push_back(of_output);
  }
  return all;
}

// The names of the layers that have this activation.
void find_activation(const Json& json, const std::string& activation, std::string& layers) {
  if (json.is_list()) {
    for (const Json& item : json.items()) find_activation(item, activation, layers);
  } else if (json.is_object()) {
    const Json* name = json.find("name");
    for (const auto& [key, value] : json.members()) {
      if (key.ends_with("activation") && value == Json(activation))
        layers += (layers.empty() ? "" : ", ") + (name && name->is_string() ? name->as_string() : "?");
      find_activation(value, activation, layers);
    }
  }
}

// Functions that are others since Keras 3, which computes them anew, too.
void warn_of_other_functions(const train::Hdf5Reader& file, const Json& model) {
  if (!of_keras2(file)) return;
  std::string layers;
  find_activation(model, "hard_sigmoid", layers);
  if (!layers.empty())
    log(LogLevel::warning, "\"", file.name(), "\" was written by Keras ", *file.text("", kKerasVersionName),
        ", where hard_sigmoid was 0.2 * x + 0.5 within [0, 1]; now it is x / 6 + 0.5, as in Keras 3: layers ",
        layers, " compute other results");
}

}  // namespace

std::string written_legacy_hdf5(const Model& model, bool optimizer, std::source_location where) {
  const Json json = Json::parse(model.to_json(-1, where));
  const Json* registered = json.find("registered_name");
  for (const StoredWeights& stored : stored_weights(model))
    require(!stored.layer.base()->keeps_files(), ErrorCode::unsupported, where, "save: layer \"",
            stored.layer.name(), "\" keeps files of its own, for which .h5 has no place; a .keras file has");
  train::Hdf5Writer file(where);
  file.set_text("", kKerasVersionName, kKerasVersion);
  file.set_text("", "backend", kBackend);
  Json config = Json::object(
      {{"class_name", registered && registered->is_string() ? *registered : json.at("class_name")},
       {"config", json.at("config")}});
  // Of a model with a call() of its own, which Keras does not read from such files.
  if (const Json* build = json.find("build_config")) config.set("build_config", *build);
  file.set_text("", kModelConfig, config.dump());
  std::vector<std::string> names;
  for (const Layer& layer : model.layers(where)) {
    names.push_back(layer.name());
    write_weights(file, std::string(kModelWeights) + "/" + layer.name(), listed(layer), where);
  }
  write_weights(file, std::string(kModelWeights) + "/" + kTopLevel, own_weights(model, where), where);
  file.set_texts(kModelWeights, kLayerNames, names);
  file.set_text(kModelWeights, kKerasVersionName, kKerasVersion);
  file.set_text(kModelWeights, "backend", kBackend);
  if (!optimizer || !model.compiled(where)) return file.finish();
  Json training = json.at("compile_config");
  if (const Json* optimizer = training.find("optimizer"); optimizer && optimizer->is_object())
    training.set(kOptimizerConfig, Json::object({{"class_name", optimizer->at("class_name")},
                                                 {"config", optimizer->at("config")}}));
  training.erase("optimizer");
  file.set_text("", kTrainingConfig, training.dump());
  NamedArrays arrays(file, kOptimizerWeights);
  for (const StoredState& state : stored_state(model.optimizer(where), model.trainable_weights(where)))
    arrays.add(model.optimizer(where).name() + "/" + state.name, state.value());
  arrays.finish();
  return file.finish();
}

bool is_legacy_hdf5(const train::Hdf5Reader& file) {
  return text_list(file, legacy_root(file), kLayerNames).has_value();
}

PendingWeights read_legacy_hdf5(const Model& model, const train::Hdf5Reader& file, const char* user,
                                std::source_location where) {
  struct Stored {
    std::string layer;
    std::vector<std::string> weights;
  };
  const std::string root = legacy_root(file);
  const auto inside = [&](const std::string& name) { return root.empty() ? name : root + "/" + name; };
  std::vector<Stored> stored;
  const auto layer_names = text_list(file, root, kLayerNames);
  for (const std::string& name : layer_names.value_or(std::vector<std::string>())) {
    auto weights = text_list(file, inside(name), kWeightNames).value_or(std::vector<std::string>());
    if (!weights.empty()) stored.push_back({name, std::move(weights)});
  }
  std::vector<Layer> layers;
  for (const Layer& layer : model.layers(where))
    if (!layer.weights(where).empty()) layers.push_back(layer);
  Mismatches wrong;
  if (layers.size() != stored.size())
    wrong.add(detail::concat("it has ", layers.size(), " layers with weights, the file ", stored.size()));
  std::vector<std::pair<std::string, Variable>> found;
  for (size_t i = 0; i < layers.size() && layers.size() == stored.size(); ++i) {
    std::vector<StoredWeight> there;
    for (const std::string& weight : stored[i].weights) {
      const std::string array = inside(stored[i].layer) + "/" + weight;
      there.push_back({weight, file.has_array(array) ? std::optional(file.spec(array)) : std::nullopt});
    }
    const std::vector<Variable> weights = in_order_of(layers[i], there);
    if (weights.empty()) {
      std::string ours, theirs;
      for (const Variable& weight : layers[i].weights()) ours += " " + plain_name(weight.name());
      for (const std::string& weight : stored[i].weights) theirs += " " + plain_name(weight);
      wrong.add(detail::concat("layer \"", layers[i].name(), "\" has", ours, ", the file's \"",
                               stored[i].layer, "\" has", theirs));
      continue;
    }
    for (size_t w = 0; w < weights.size(); ++w) {
      const std::string array = inside(stored[i].layer) + "/" + stored[i].weights[w];
      if (!file.has_array(array))
        wrong.add("missing: " + array);
      else if (const TensorSpec spec = file.spec(array); !fits(spec, weights[w]))
        wrong.add(weights[w].name() + " (" + array + ")", spec, weights[w]);
      else
        found.emplace_back(array, weights[w]);
    }
  }
  const std::vector<Variable> own = own_weights(model, where);
  const auto own_names =
      text_list(file, inside(kTopLevel), kWeightNames).value_or(std::vector<std::string>());
  if (own_names.size() != own.size())
    wrong.add(detail::concat("the model itself has ", own.size(), " weights, the file's ", own_names.size()));
  for (size_t w = 0; w < own.size() && own_names.size() == own.size(); ++w) {
    const std::string array = inside(kTopLevel) + "/" + own_names[w];
    if (file.has_array(array) && fits(file.spec(array), own[w]))
      found.emplace_back(array, own[w]);
    else
      wrong.add("missing, or of another shape: " + array);
  }
  wrong.require_none(does_not_fit(user, file, model), where);
  PendingWeights pending;
  for (const auto& [array, variable] : found) pending.add(variable, file.read(array));
  return pending;
}

Json read_legacy_config(const train::Hdf5Reader& file, bool compile, std::source_location where) {
  const auto model = file.text("", kModelConfig);
  require(model.has_value(), ErrorCode::unsupported, where, "\"", file.name(),
          "\" is an HDF5 file of weights, without the model's configuration; make the model anew and call "
          "load_weights()");
  const Json written = Json::parse(*model, file.name() + ": " + kModelConfig, where);
  warn_of_other_functions(file, written);
  Json json = as_keras3(written);
  require(json.is_object() && json.contains("class_name") && json.contains("config"), ErrorCode::io, where,
          "\"", file.name(), "\": its ", kModelConfig, " is no model");
  const auto training = compile ? file.text("", kTrainingConfig) : std::nullopt;
  if (!training) return json;
  Json settings = as_keras3(Json::parse(*training, file.name() + ": " + kTrainingConfig, where));
  if (const Json* optimizer = settings.find(kOptimizerConfig))
    settings.set("optimizer", registered(*optimizer));
  settings.erase(kOptimizerConfig);
  if (of_keras2(file))
    for (const char* metrics : {"metrics", "weighted_metrics"})
      if (const Json* given = settings.find(metrics))
        settings.set(metrics, without_names_of_outputs(*given, json.at("config")));
  json.set("compile_config", settings);
  return json;
}

PendingWeights read_legacy_optimizer(const Model& model, const train::Hdf5Reader& file, const char* user,
                                     std::source_location where) {
  const std::vector<StoredState> states =
      stored_state(model.optimizer(where), model.trainable_weights(where));
  std::vector<std::string> names =
      text_list(file, kOptimizerWeights, kWeightNames).value_or(std::vector<std::string>());
  // SGD of Keras 2 has momenta that nothing moves, and the learning rate is among the settings alone.
  const bool without_slots = std::all_of(
      states.begin(), states.end(), [](const StoredState& state) { return state.spec.shape.rank() == 0; });
  if (without_slots && model.optimizer(where).core()->class_name() == "SGD" && names.size() > 1 &&
      plain_name(names[1]) != "learning_rate")
    names.resize(1);
  if (!names.empty() && is_older_counter(names[0])) {
    const auto known = by_slots(names, states);
    if (!known) {
      log(LogLevel::warning, user, ": \"", file.name(), "\" has the state of an optimizer ", names[0],
          " of Keras 2.10 or before, which is not known; its optimizer begins anew");
      return {};
    }
    names = *known;
  } else if (names.size() + 1 == states.size() && states.size() > 1 && states[1].name == "learning_rate") {
    names.insert(names.begin() + 1, "");
  }
  std::vector<std::string> arrays;
  for (const std::string& name : names)
    arrays.push_back(name.empty() ? "" : std::string(kOptimizerWeights) + "/" + name);
  return or_anew([&] { return read_optimizer_states(model, file, arrays, user, where); });
}

}  // namespace lockstep::keras
