#include "keras/saving/legacy_hdf5.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

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
  constexpr std::pair<const char*, const char*> kKeras1[] = {{"kernel", "_W"},
                                                             {"bias", "_b"},
                                                             {"moving_mean", "_running_mean"},
                                                             {"moving_variance", "_running_std"}};
  for (const auto& [name, ending] : kKeras1)
    if (ours == name && theirs.ends_with(ending)) return true;
  return theirs.ends_with("_" + ours);
}

// The layer's weights in the order of the file's names: Keras lists those that are trained first, unless the
// layer was frozen.
std::vector<Variable> in_order_of(const Layer& layer, const std::vector<std::string>& names) {
  const std::vector<Variable> all = layer.weights();
  std::vector<Variable> trained_first = all;
  std::stable_partition(trained_first.begin(), trained_first.end(),
                        [](const Variable& v) { return v.trainable(); });
  for (const std::vector<Variable>& order : {trained_first, all}) {
    const bool same = std::equal(order.begin(), order.end(), names.begin(), names.end(),
                                 [](const Variable& variable, const std::string& name) {
                                   return is_called(plain_name(variable.name()), plain_name(name));
                                 });
    if (same) return order;
  }
  return {};
}

// As Keras lists them in these files: those that are trained first.
std::vector<Variable> listed(const Layer& layer) {
  std::vector<Variable> all = layer.trainable_weights();
  for (const Variable& weight : layer.non_trainable_weights()) all.push_back(weight);
  return all;
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

}  // namespace

std::string written_legacy_hdf5(const Model& model, std::source_location where) {
  const Json json = Json::parse(model.to_json(-1, where));
  const Json* registered = json.find("registered_name");
  for (const StoredWeights& stored : stored_weights(model))
    require(!stored.layer.base()->keeps_files(), ErrorCode::unsupported, where, "save: layer \"",
            stored.layer.name(), "\" keeps files of its own, for which .h5 has no place; a .keras file has");
  train::Hdf5Writer file(where);
  file.set_text("", "keras_version", kKerasVersion);
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
  file.set_text(kModelWeights, "keras_version", kKerasVersion);
  file.set_text(kModelWeights, "backend", kBackend);
  if (!model.compiled(where)) return file.finish();
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
    const std::vector<Variable> weights = in_order_of(layers[i], stored[i].weights);
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
  Json json = as_keras3(Json::parse(*model, file.name() + ": " + kModelConfig, where));
  require(json.is_object() && json.contains("class_name") && json.contains("config"), ErrorCode::io, where,
          "\"", file.name(), "\": its ", kModelConfig, " is no model");
  const auto training = compile ? file.text("", kTrainingConfig) : std::nullopt;
  if (!training) return json;
  Json settings = as_keras3(Json::parse(*training, file.name() + ": " + kTrainingConfig, where));
  if (const Json* optimizer = settings.find(kOptimizerConfig)) settings.set("optimizer", *optimizer);
  settings.erase(kOptimizerConfig);
  json.set("compile_config", settings);
  return json;
}

PendingWeights read_legacy_optimizer(const Model& model, const train::Hdf5Reader& file, const char* user,
                                     std::source_location where) {
  std::vector<std::string> arrays;
  for (const std::string& name :
       text_list(file, kOptimizerWeights, kWeightNames).value_or(std::vector<std::string>()))
    arrays.push_back(std::string(kOptimizerWeights) + "/" + name);
  // Keras 2 has the learning rate among the settings alone.
  const std::vector<StoredState> states =
      stored_state(model.optimizer(where), model.trainable_weights(where));
  if (arrays.size() + 1 == states.size() && states.size() > 1 && states[1].name == "learning_rate")
    arrays.insert(arrays.begin() + 1, "");
  try {
    return read_optimizer_states(model, file, arrays, user, where);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    log(LogLevel::warning, error.message(), "; its optimizer begins anew");
    return {};
  }
}

}  // namespace lockstep::keras
