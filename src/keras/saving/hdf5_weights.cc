#include "keras/saving/hdf5_weights.h"

#include <algorithm>
#include <map>
#include <set>

#include "keras/optimizers/core.h"
#include "keras/saving/optimizer_state.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {
namespace {

constexpr const char* kOptimizer = "optimizer";
constexpr const char* kInnerOptimizer = "optimizer/inner_optimizer";
constexpr const char* kName = "name";
constexpr const char* kLayers = "layers";
// What Keras 2.13 called them.
constexpr const char* kOldLayers = "_layer_checkpoint_dependencies";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// The groups of arrays below `group` that are not among `used`.
class Leftovers {
 public:
  Leftovers(const train::Hdf5Reader& file, const std::set<std::string>& used) : file_(file), used_(used) {}

  std::vector<std::string> find(const std::string& group) {
    visit(group, 0);
    return found_;
  }

 private:
  // Groups of a damaged file may hold each other.
  static constexpr int kMaxDepth = 64, kMaxGroups = 1'000'000;

  void visit(const std::string& group, int depth) {
    require(depth < kMaxDepth && ++groups_ < kMaxGroups, ErrorCode::io, std::source_location::current(),
            "HDF5 file \"", file_.name(), "\": its groups hold each other without end");
    for (const std::string& name : file_.names(group)) {
      const std::string path = group + "/" + name;
      // Some versions of Keras keep states of random generators, which are made anew here.
      if (name.starts_with("seed_generator") || !file_.has_group(path)) continue;
      if (name == "vars") {
        if (!used_.contains(path) && !file_.names(path).empty()) found_.push_back(group);
      } else {
        visit(path, depth + 1);
      }
    }
  }

  const train::Hdf5Reader& file_;
  const std::set<std::string>& used_;
  std::vector<std::string> found_;
  int groups_ = 0;
};

void write_group(train::Hdf5Writer& file, const std::string& path, const std::string& name,
                 const LayerBase::Named<Tensor>& values) {
  const std::string group = group_of_weights(path);
  file.set_text(group, kName, name);
  for (const auto& [key, value] : values) file.add(group, key, value);
}

LayerBase::Named<Tensor> numbered(const TensorList& values) {
  LayerBase::Named<Tensor> named;
  for (const Tensor& value : values) named.emplace_back(std::to_string(named.size()), value);
  return named;
}

}  // namespace

std::string does_not_fit(const char* user, const train::Hdf5Reader& file, const Model& model) {
  return detail::concat(user, ": \"", file.name(), "\" does not fit model \"", model.name(), "\"");
}

std::string written_hdf5_weights(const Model& model, bool optimizer, std::source_location where) {
  train::Hdf5Writer file(where);
  for (const StoredWeights& stored : stored_weights(model)) {
    TensorList values;
    for (const Variable& weight : stored.weights) values.push_back(weight.value(where));
    const LayerBase& layer = *stored.layer.base();
    write_group(file, stored.path, layer.name(),
                layer.keeps_values() ? layer.kept_values() : numbered(values));
  }
  if (optimizer && model.compiled(where)) {
    const optimizers::Optimizer& compiled = model.optimizer(where);
    TensorList values;
    for (const StoredState& state : stored_state(compiled, model.trainable_weights(where)))
      values.push_back(state.value());
    write_group(file, kOptimizer, compiled.name(), numbered(values));
    // Keras writes the inner one's a second time.
    if (const Json config = compiled.core()->config(); const Json* inner = config.find("inner_optimizer"))
      write_group(file, kInnerOptimizer, inner->at("config").at("name").as_string(),
                  numbered({values.begin() + 4, values.end()}));
  }
  return file.finish();
}

PendingWeights read_hdf5_weights(const Model& model, const train::Hdf5Reader& file, const char* user,
                                 std::source_location where) {
  Mismatches wrong;
  std::set<std::string> used;
  struct Found {
    std::string array;
    Variable variable;
  };
  std::vector<Found> found;
  std::vector<std::pair<Layer, std::string>> of_layers;  // and their groups: layers that keep what they like
  for (const StoredWeights& stored : stored_weights(model)) {
    std::string group = group_of_weights(stored.path);
    if (const std::string old = replaced(group, kLayers, kOldLayers);
        !file.has_group(group) && file.has_group(old))
      group = old;
    used.insert(group);
    if (stored.layer.base()->keeps_values()) {
      of_layers.emplace_back(stored.layer, group);
      continue;
    }
    const size_t there = file.names(group).size();
    if (there != stored.weights.size()) {
      wrong.add(detail::concat("layer \"", stored.layer.name(), "\" has ", stored.weights.size(),
                               " weights, \"", group, "\" ",
                               file.has_group(group) ? "has " + std::to_string(there) : "is missing"));
      continue;
    }
    for (size_t i = 0; i < stored.weights.size(); ++i) {
      const std::string array = group + "/" + std::to_string(i);
      if (!file.has_array(array))
        wrong.add("missing: " + array);
      else if (const TensorSpec spec = file.spec(array); !fits(spec, stored.weights[i]))
        wrong.add(stored.weights[i].name() + " (" + array + ")", spec, stored.weights[i]);
      else
        found.push_back({array, stored.weights[i]});
    }
  }
  for (const char* layers : {kLayers, kOldLayers})
    if (file.has_group(layers))
      for (const std::string& group : Leftovers(file, used).find(layers))
        wrong.add("not in the model: " + group);
  wrong.require_none(does_not_fit(user, file, model), where);
  // A weight that several layers list is in the file for each of them: the last one counts, as in Keras.
  PendingWeights pending;
  for (const Found& one : found) pending.add(one.variable, file.read(one.array));
  for (const auto& [layer, group] : of_layers) {
    LayerBase::Named<Tensor> values;
    for (const std::string& name : file.names(group))
      if (const std::string array = group + "/" + name; file.has_array(array))
        values.emplace_back(name, file.read(array));
    pending.add(layer, std::move(values));
  }
  return pending;
}

PendingWeights read_hdf5_optimizer(const Model& model, const train::Hdf5Reader& file, const char* user,
                                   std::source_location where) {
  const std::string group = group_of_weights(kOptimizer);
  std::vector<std::string> arrays;
  for (size_t i = 0; i < file.names(group).size(); ++i) arrays.push_back(group + "/" + std::to_string(i));
  return or_anew([&] { return read_optimizer_states(model, file, arrays, user, where); });
}

PendingWeights or_anew(const std::function<PendingWeights()>& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    log(LogLevel::warning, error.message(), "; its optimizer begins anew");
    return {};
  }
}

PendingWeights read_optimizer_states(const Model& model, const train::Hdf5Reader& file,
                                     const std::vector<std::string>& arrays, const char* user,
                                     std::source_location where) {
  const optimizers::Optimizer& optimizer = model.optimizer(where);
  const std::vector<StoredState> states = stored_state(optimizer, model.trainable_weights(where));
  const size_t there = arrays.size();
  PendingWeights pending;
  // Without slots: it never made a step, and Keras does not read it either.
  const auto scalar = [](const StoredState& state) { return state.spec.shape.rank() == 0; };
  if (there == 0 || (there < states.size() && std::all_of(states.begin(), states.begin() + there, scalar)))
    return pending;
  Mismatches wrong;
  if (there != states.size())
    wrong.add(detail::concat("optimizer \"", optimizer.name(), "\" has ", states.size(),
                             " variables, the file's has ", there));
  for (size_t i = 0; i < states.size() && there == states.size(); ++i) {
    if (arrays[i].empty()) continue;
    if (!file.has_array(arrays[i])) {
      wrong.add("missing: " + arrays[i]);
    } else if (const TensorSpec spec = file.spec(arrays[i]); spec.shape != states[i].spec.shape) {
      wrong.add(detail::concat("optimizer's ", states[i].name, " (", arrays[i], ") is ", states[i].spec,
                               " in the model and ", spec, " in the file"));
    }
  }
  wrong.require_none(does_not_fit(user, file, model) + "; {.compile = false} leaves the optimizer out",
                     where);
  for (size_t i = 0; i < states.size(); ++i)
    if (!arrays[i].empty()) states[i].read(file.read(arrays[i]), pending);
  return pending;
}

}  // namespace lockstep::keras
