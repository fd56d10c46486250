// Model::save_weights and load_weights: which format a file has, and safetensors.
#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"
#include "keras/applications/hugging_face.h"
#include "keras/saving/hdf5_weights.h"
#include "keras/saving/keras_archive.h"
#include "keras/saving/legacy_hdf5.h"
#include "keras/saving/tensorflow_weights.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/model.h"
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

constexpr const char* kLoad = "load_weights";
constexpr const char* kFormat = "format";
constexpr const char* kOwnFormat = "lockstep";

// "kernel" of "sequential_1/dense_3/kernel", and of "dense/kernel_1", the second weight of that path.
std::string own_name(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  const size_t number = name.find_last_not_of("0123456789");
  if (number != std::string::npos && number + 1 < name.size() && name[number] == '_') name.resize(number);
  return name;
}

// The entries for the weights, by structure: save_weights() writes the weights in the order in which the
// model holds its layers, whatever they are called ("dense_3" says how many others the program had made
// before). None where the file was written by others, whose order means nothing, or is of another structure.
std::vector<const Entry*> in_order(const train::SafetensorsFile& file, const NamedWeights& named) {
  const auto format = file.metadata().find(kFormat);
  if (format == file.metadata().end() || format->second != kOwnFormat) return {};
  if (file.entries().size() != named.size()) return {};
  std::vector<const Entry*> entries;
  for (size_t i = 0; i < named.size(); ++i) {
    const Entry& entry = file.entries()[i];
    if (own_name(entry.name) != own_name(named[i].first) || !fits(entry.spec, named[i].second)) return {};
    entries.push_back(&entry);
  }
  return entries;
}

// The entries for the weights, by name; throws where one is missing, left over or does not fit.
std::vector<const Entry*> by_name(const train::SafetensorsFile& file, const NamedWeights& named,
                                  const std::string& model, std::source_location where) {
  Mismatches wrong;
  std::set<std::string> wanted;
  std::vector<const Entry*> entries;
  for (const auto& [key, weight] : named) {
    wanted.insert(key);
    const Entry* entry = entries.emplace_back(file.find(key));
    if (!entry) {
      wrong.add("missing: " + key);
    } else if (!fits(entry->spec, weight)) {
      wrong.add(key, entry->spec, weight);
    }
  }
  for (const Entry& entry : file.entries())
    if (!wanted.contains(entry.name)) wrong.add("not in the model: " + entry.name);
  wrong.require_none("load_weights: \"" + file.path() + "\" does not fit model \"" + model + "\"", where);
  return entries;
}

PendingWeights read_safetensors(const Model& model, const std::string& path, std::source_location where) {
  const train::SafetensorsFile file(path, where);
  const NamedWeights named = named_weights(model);
  std::vector<const Entry*> entries = in_order(file, named);
  if (entries.empty())
    if (auto of_hub = applications::read_hugging_face(model, file, where)) return *of_hub;
  if (entries.empty()) entries = by_name(file, named, model.name(), where);
  PendingWeights pending;
  for (size_t i = 0; i < named.size(); ++i) pending.add(named[i].second, file.read(entries[i]->name, where));
  return pending;
}

bool starts_with(const std::string& path, std::string_view bytes, std::source_location where) {
  const InputFile file(path, where);
  std::string first(std::min<uint64_t>(file.size(), bytes.size()), '\0');
  file.read_at(0, first.data(), first.size(), where);
  return first == bytes;
}

PendingWeights read_hdf5(const Model& model, const train::Hdf5Reader& file, std::source_location where) {
  return is_legacy_hdf5(file) ? read_legacy_hdf5(model, file, kLoad, where)
                              : read_hdf5_weights(model, file, kLoad, where);
}

}  // namespace

bool is_hdf5_file(const std::string& path, std::source_location where) {
  return starts_with(path, "\x89HDF\r\n\x1a\n", where);
}
bool is_zip_file(const std::string& path, std::source_location where) {
  return starts_with(path, "PK\x03\x04", where);
}

void Model::save_weights(const std::string& path, std::source_location where) const {
  const auto named = named_weights(*this);
  require(built() || !named.empty(), ErrorCode::failed_precondition, where, "save_weights: model \"", name(),
          "\" has no weights yet; call build() or fit() first");
  require(!path.ends_with(".keras") && (!path.ends_with(".h5") || path.ends_with(".weights.h5")),
          ErrorCode::invalid_argument, where, "save_weights: \"", path,
          path.ends_with(".keras")
              ? "\" is a name for a whole model; save() writes it"
              : "\": Keras' weights end in .weights.h5; other names than .h5 are safetensors");
  remove_stale_drafts_of(path);
  if (path.ends_with(".weights.h5")) {
    AtomicFile file(path, where);
    file.write(written_hdf5_weights(*this, true, where));
    return file.commit();
  }
  train::NamedTensors tensors;
  for (const auto& [key, weight] : named) tensors.emplace_back(key, weight.value(where));
  train::save_safetensors(path, tensors, {.metadata = {{kFormat, kOwnFormat}, {"model", name()}}}, where);
}

void Model::load_weights(const std::string& path, std::source_location where) const {
  require(built() || !weights(where).empty(), ErrorCode::failed_precondition, where, "load_weights: model \"",
          name(), "\" has no weights yet; call build() or give it an input first");
  // Everything is read and looked at before the first weight changes.
  const PendingWeights pending = [&] {
    if (!file_exists(path) && file_exists(path + ".index"))
      return read_tensorflow_weights(*this, train::TensorflowCheckpoint(path, where), kLoad, where);
    if (is_hdf5_file(path, where)) return read_hdf5(*this, train::Hdf5Reader(path, where), where);
    if (is_zip_file(path, where)) {
      const KerasArchive archive(path, where);
      return read_hdf5(*this, archive.weights(), where);
    }
    return read_safetensors(*this, path, where);
  }();
  pending.assign(where);
}

}  // namespace lockstep::keras
