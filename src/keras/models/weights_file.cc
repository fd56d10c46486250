// Weights by path name in a safetensors file.
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

// Every weight with the name it has in files: its path, numbered where several share one.
std::vector<std::pair<std::string, Variable>> named_weights(const Model& model) {
  std::vector<std::pair<std::string, Variable>> named;
  std::map<std::string, int> uses;
  for (const Variable& weight : model.weights()) {
    const int earlier = uses[weight.name()]++;
    named.emplace_back(earlier == 0 ? weight.name() : weight.name() + "_" + std::to_string(earlier), weight);
  }
  return named;
}

void add_line(std::string& lines, const std::string& line) { lines += "\n  " + line; }

}  // namespace

void Model::save_weights(const std::string& path, std::source_location where) const {
  const auto named = named_weights(*this);
  require(built() || !named.empty(), ErrorCode::failed_precondition, where, "save_weights: model \"", name(),
          "\" has no weights yet; call build() or fit() first");
  train::NamedTensors tensors;
  for (const auto& [key, weight] : named) tensors.emplace_back(key, weight.value(where));
  train::save_safetensors(path, tensors, {.metadata = {{"format", "lockstep"}, {"model", name()}}}, where);
}

void Model::load_weights(const std::string& path, std::source_location where) const {
  const train::SafetensorsFile file(path, where);
  const auto named = named_weights(*this);
  require(!named.empty(), ErrorCode::failed_precondition, where, "load_weights: model \"", name(),
          "\" has no weights yet; call build() or give it an input first");
  // Everything is checked before the first weight changes, and all that is wrong is listed at once.
  std::string wrong;
  std::set<std::string> wanted;
  for (const auto& [key, weight] : named) {
    wanted.insert(key);
    const auto* entry = file.find(key);
    if (!entry) {
      add_line(wrong, "missing: " + key);
    } else if (!(entry->spec.shape == weight.shape())) {
      add_line(wrong, detail::concat("shape: ", key, " is ", weight.shape(), " in the model and ",
                                     entry->spec.shape, " in the file"));
    } else if (is_floating(entry->spec.dtype) != is_floating(weight.dtype())) {
      add_line(wrong, detail::concat("dtype: ", key, " is ", weight.dtype(), " in the model and ",
                                     entry->spec.dtype, " in the file"));
    }
  }
  for (const auto& entry : file.entries())
    if (!wanted.contains(entry.name)) add_line(wrong, "not in the model: " + entry.name);
  require(wrong.empty(), ErrorCode::invalid_argument, where, "load_weights: \"", path,
          "\" does not fit model \"", name(), "\":", wrong);
  for (const auto& [key, weight] : named) {
    const Tensor value = file.read(key, where);
    weight.assign(value.dtype() == weight.dtype() ? value : cast(value, weight.dtype()), where);
  }
}

}  // namespace lockstep::keras
