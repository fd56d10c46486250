// Weights by path name in a safetensors file.
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras {
namespace {

using NamedWeights = std::vector<std::pair<std::string, Variable>>;

// Every weight with the name it has in files: its path, numbered where several share one.
NamedWeights named_weights(const Model& model) {
  NamedWeights named;
  std::map<std::string, int> uses;
  for (const Variable& weight : model.weights()) {
    const int earlier = uses[weight.name()]++;
    named.emplace_back(earlier == 0 ? weight.name() : weight.name() + "_" + std::to_string(earlier), weight);
  }
  return named;
}

using Entry = train::SafetensorsFile::Entry;

constexpr const char* kFormat = "format";
constexpr const char* kOwnFormat = "lockstep";

// "kernel" of "sequential_1/dense_3/kernel", and of "dense/kernel_1", the second weight of that path.
std::string own_name(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  const size_t number = name.find_last_not_of("0123456789");
  if (number != std::string::npos && number + 1 < name.size() && name[number] == '_') name.resize(number);
  return name;
}

bool fits(const Entry& entry, const Variable& weight) {
  return entry.spec.shape == weight.shape() && is_floating(entry.spec.dtype) == is_floating(weight.dtype());
}

// The entries for the weights, by structure: save_weights() writes the weights in the order in which the model holds
// its layers, whatever they are called ("dense_3" says how many others the program had made before). None where the
// file was written by others, whose order means nothing, or is of another structure.
std::vector<const Entry*> in_order(const train::SafetensorsFile& file, const NamedWeights& named) {
  const auto format = file.metadata().find(kFormat);
  if (format == file.metadata().end() || format->second != kOwnFormat) return {};
  if (file.entries().size() != named.size()) return {};
  std::vector<const Entry*> entries;
  for (size_t i = 0; i < named.size(); ++i) {
    const Entry& entry = file.entries()[i];
    if (own_name(entry.name) != own_name(named[i].first) || !fits(entry, named[i].second)) return {};
    entries.push_back(&entry);
  }
  return entries;
}

void add_line(std::string& lines, const std::string& line) { lines += "\n  " + line; }

// The entries for the weights, by name; throws where one is missing, left over or does not fit.
std::vector<const Entry*> by_name(const train::SafetensorsFile& file, const NamedWeights& named,
                                  const std::string& model, std::source_location where) {
  std::string wrong;
  std::set<std::string> wanted;
  std::vector<const Entry*> entries;
  for (const auto& [key, weight] : named) {
    wanted.insert(key);
    const Entry* entry = entries.emplace_back(file.find(key));
    if (!entry) {
      add_line(wrong, "missing: " + key);
    } else if (!fits(*entry, weight)) {
      add_line(wrong, detail::concat(key, " is ", TensorSpec{weight.dtype(), weight.shape()},
                                     " in the model and ", entry->spec, " in the file"));
    }
  }
  for (const Entry& entry : file.entries())
    if (!wanted.contains(entry.name)) add_line(wrong, "not in the model: " + entry.name);
  require(wrong.empty(), ErrorCode::invalid_argument, where, "load_weights: \"", file.path(),
          "\" does not fit model \"", model, "\":", wrong);
  return entries;
}

}  // namespace

void Model::save_weights(const std::string& path, std::source_location where) const {
  const auto named = named_weights(*this);
  require(built() || !named.empty(), ErrorCode::failed_precondition, where, "save_weights: model \"", name(),
          "\" has no weights yet; call build() or fit() first");
  train::NamedTensors tensors;
  for (const auto& [key, weight] : named) tensors.emplace_back(key, weight.value(where));
  train::save_safetensors(path, tensors, {.metadata = {{kFormat, kOwnFormat}, {"model", name()}}}, where);
}

void Model::load_weights(const std::string& path, std::source_location where) const {
  const train::SafetensorsFile file(path, where);
  const auto named = named_weights(*this);
  require(!named.empty(), ErrorCode::failed_precondition, where, "load_weights: model \"", name(),
          "\" has no weights yet; call build() or give it an input first");
  // Everything is checked before the first weight changes, and all that is wrong is listed at once.
  std::vector<const Entry*> entries = in_order(file, named);
  if (entries.empty()) entries = by_name(file, named, name(), where);
  for (size_t i = 0; i < named.size(); ++i) {
    const Variable& weight = named[i].second;
    const Tensor value = file.read(entries[i]->name, where);
    weight.assign(value.dtype() == weight.dtype() ? value : cast(value, weight.dtype()), where);
  }
}

}  // namespace lockstep::keras
