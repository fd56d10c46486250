#include "keras/saving/tensorflow_weights.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::keras {
namespace {

constexpr const char* kNumbered = "layer_with_weights-";
constexpr const char* kValue = "/.ATTRIBUTES/VARIABLE_VALUE";

std::string joined(const std::string& path, const std::string& part) {
  return path.empty() ? part : path + "/" + part;
}

// An attribute's name: Keras 2 keeps the projections of attention in private ones.
std::string attribute(const std::string& stored_name) {
  return stored_name.ends_with("_dense") && !stored_name.starts_with('_') ? "_" + stored_name : stored_name;
}

using Named = std::vector<std::pair<std::string, Variable>>;

// `own`: with the layer's own weights, which a layer derived from it in another language has as well.
void collect(const Layer& layer, const std::string& path, bool own, Named& into) {
  if (own)
    for (const Variable& weight : layer.base()->own_weights()) {
      const std::string name = weight.name().substr(weight.name().rfind('/') + 1);
      into.emplace_back(joined(path, name), weight);
    }
  const std::vector<Layer>& inside = layer.base()->layers();
  if (dynamic_cast<const ModelBase*>(layer.base().get())) {
    int number = 0;
    for (const Layer& inner : inside)
      if (!inner.weights().empty())
        collect(inner, joined(path, kNumbered + std::to_string(number++)), true, into);
    return;
  }
  const std::vector<std::string> names = layer.base()->stored_names();
  for (size_t i = 0; i < inside.size() && i < names.size(); ++i)
    if (names[i] == ".")
      collect(inside[i], path, false, into);
    else if (!names[i].empty())
      collect(inside[i], joined(path, attribute(names[i])), true, into);
}

// What stands before the model's own names: "" or "model/", say.
std::string prefix_of(const train::TensorflowCheckpoint& checkpoint) {
  const std::string first = std::string(kNumbered) + "0/";
  for (const auto& entry : checkpoint.entries())
    if (const size_t at = entry.name.find(first);
        at != std::string::npos && entry.name.find(".OPTIMIZER_SLOT") == std::string::npos)
      return entry.name.substr(0, at);
  return "";
}

}  // namespace

PendingWeights read_tensorflow_weights(const Model& model, const train::TensorflowCheckpoint& checkpoint,
                                       const char* user, std::source_location where) {
  Named named;
  collect(model, "", true, named);
  const std::string prefix = prefix_of(checkpoint);
  Mismatches wrong;
  for (const auto& [path, weight] : named) {
    const auto* entry = checkpoint.find(prefix + path + kValue);
    if (!entry)
      wrong.add("missing: " + prefix + path + ", for " + weight.name());
    else if (!fits(entry->spec, weight))
      wrong.add(weight.name() + " (" + prefix + path + ")", entry->spec, weight);
  }
  const std::vector<Layer> layers = model.layers(where);
  const auto count = std::count_if(layers.begin(), layers.end(),
                                   [](const Layer& layer) { return !layer.weights().empty(); });
  const std::string next = prefix + kNumbered + std::to_string(count);
  for (const auto& entry : checkpoint.entries())
    if (entry.name.starts_with(next + "/")) {
      wrong.add("not in the model: " + next);
      break;
    }
  wrong.require_none(detail::concat(user, ": TensorFlow checkpoint \"", checkpoint.prefix(),
                                    "\" does not fit model \"", model.name(), "\""),
                     where);
  PendingWeights pending;
  for (const auto& [path, weight] : named)
    pending.add(weight, checkpoint.read(prefix + path + kValue, where));
  return pending;
}

}  // namespace lockstep::keras
