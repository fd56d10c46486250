#include "keras/saving/stored_weights.h"

#include <map>
#include <set>

#include "keras/operation_layer.h"
#include "keras/registry.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

// GroupQueryAttention is an exported name; files have the class's own.
std::string class_in_files(const Layer& layer) {
  return layer.class_name() == "GroupQueryAttention" ? "GroupedQueryAttention" : layer.class_name();
}

}  // namespace

std::vector<std::string> names_by_class(const std::string& prefix, const std::vector<Layer>& layers) {
  std::vector<std::string> names;
  std::map<std::string, int> uses;
  for (const Layer& layer : layers) {
    if (is_operation(*layer.base())) {
      names.emplace_back();
      continue;
    }
    const std::string name = to_snake_case(class_in_files(layer));
    const int earlier = uses[name]++;
    names.push_back(prefix + name + (earlier == 0 ? "" : "_" + std::to_string(earlier)));
  }
  return names;
}

std::vector<StoredWeights> stored_weights(const Layer& root) {
  std::vector<StoredWeights> all;
  std::set<const LayerBase*> seen;
  const auto enter = [&](const auto& self, const Layer& layer, const std::string& path, bool own) -> void {
    if (!seen.insert(layer.base().get()).second) return;
    if (own) all.push_back({path, layer, layer.base()->own_weights()});
    const std::vector<std::string> names = layer.base()->stored_names();
    const std::vector<Layer>& inside = layer.base()->layers();
    for (size_t i = 0; i < inside.size(); ++i) {
      require(i < names.size(), ErrorCode::invalid_argument, layer.base()->where(), "layer \"", layer.name(),
              "\" has ", inside.size(), " layers inside, but stored_names() for ", names.size());
      if (names[i] == ".")
        self(self, inside[i], path, false);
      else if (!names[i].empty())
        self(self, inside[i], path.empty() ? names[i] : path + "/" + names[i], true);
    }
  };
  enter(enter, root, "", true);
  return all;
}

std::string group_of_weights(const std::string& path) { return path.empty() ? "vars" : path + "/vars"; }

void PendingWeights::add(const Variable& variable, Tensor value) {
  values_.emplace_back(variable, std::move(value));
}

void PendingWeights::add(const Layer& layer, LayerBase::Named<Tensor> values) {
  of_layers_.emplace_back(layer, std::move(values));
}

void PendingWeights::assign(std::source_location where) const {
  for (const auto& [variable, value] : values_)
    variable.assign(value.dtype() == variable.dtype() ? value : cast(value, variable.dtype()), where);
  for (const auto& [layer, values] : of_layers_) layer.base()->restore_values(values);
}

bool fits(const TensorSpec& stored, const Variable& variable) {
  return stored.shape == variable.shape() && is_floating(stored.dtype) == is_floating(variable.dtype());
}

void Mismatches::add(const std::string& key, const TensorSpec& stored, const Variable& variable) {
  add(detail::concat(key, " is ", TensorSpec{variable.dtype(), variable.shape()}, " in the model and ",
                     stored, " in the file"));
}

void Mismatches::require_none(const std::string& what, std::source_location where) const {
  require(lines_.empty(), ErrorCode::invalid_argument, where, what, ":", lines_);
}

}  // namespace lockstep::keras
