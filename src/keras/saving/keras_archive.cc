#include "keras/saving/keras_archive.h"

#include <algorithm>

#include "base/as_error.h"
#include "base/file.h"
#include "keras/saving/hdf5_weights.h"
#include "keras/saving/legacy_hdf5.h"
#include "keras/saving/stored_weights.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/onnx.h"
#include "lockstep/keras/save_model.h"

namespace lockstep::keras {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kMetadata = "metadata.json";
constexpr const char* kWeights = "model.weights.h5";
constexpr const char* kAssets = "assets/";

// Where the files of the layer at `path` are.
std::string folder_of_files(const std::string& path) { return kAssets + (path.empty() ? "" : path + "/"); }

// Whether a name leads into the folder that it is for, and nowhere else: an archive may come from anybody.
bool stays_inside(const std::string& name) {
  if (name.find('\\') != std::string::npos || name.find('\0') != std::string::npos) return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

KerasArchive::KerasArchive(const std::string& path, std::source_location where) : path_(path) {
  if (is_folder(path)) {
    weights_ = std::make_unique<train::Hdf5Reader>(path + "/" + kWeights, where);
    return;
  }
  zip_ = std::make_unique<train::ZipReader>(path, where);
  for (const char* entry : {kConfig, kWeights})
    require(zip_->contains(entry), ErrorCode::io, where, "\"", path,
            "\" is no model of Keras 3: the archive has no ", entry);
  weights_ = std::make_unique<train::Hdf5Reader>(zip_->read(kWeights), path + ":" + kWeights, where);
}

std::string KerasArchive::config() const {
  return zip_ ? zip_->read(kConfig) : read_file(path_ + "/" + kConfig);
}

void KerasArchive::restore_files(const Model& model, std::source_location where) const {
  if (!zip_) return;
  std::vector<std::string> names;
  for (const std::string& name : zip_->names())
    if (name.starts_with(kAssets) && !name.ends_with('/')) names.push_back(name);
  // Layers inside before those around them, whose folders hold theirs.
  std::vector<StoredWeights> layers = stored_weights(model);
  std::reverse(layers.begin(), layers.end());
  for (const StoredWeights& stored : layers) {
    if (!stored.layer.base()->keeps_files()) continue;
    const std::string folder = folder_of_files(stored.path);
    LayerBase::Named<std::string> files;
    std::erase_if(names, [&](const std::string& name) {
      if (!name.starts_with(folder)) return false;
      const std::string inside = name.substr(folder.size());
      require(stays_inside(inside), ErrorCode::io, where, "\"", path_, "\" has a file named \"", name,
              "\", which leads out of the folder of its layer; it is no model that Keras or Lockstep has "
              "written");
      files.emplace_back(inside, zip_->read(name));
      return true;
    });
    stored.layer.base()->restore_files(files);
  }
  require(names.empty(), ErrorCode::unsupported, where, "\"", path_,
          "\": layers keep files in the archive (\"", names.empty() ? "" : names[0],
          "\"), which are not read; make the layer with its vocabulary given, and save the model again");
}

void Model::save(const std::string& path, std::source_location where) const {
  models::save_model(*this, path, {}, where);
}

namespace models {
namespace {

Json without_compile(Json json) {
  json.set("compile_config", nullptr);
  return json;
}

Model load_legacy(const std::string& path, const LoadModelOptions& options, std::source_location where) {
  const train::Hdf5Reader file(path, where);
  const Model model = Model::from_json(read_legacy_config(file, options.compile, where).dump(), where);
  const PendingWeights weights = read_legacy_hdf5(model, file, "load_model", where);
  if (model.compiled(where)) {
    model.model_base(where).trainer().build_optimizer();
    read_legacy_optimizer(model, file, "load_model", where).assign(where);
  }
  weights.assign(where);
  return model;
}

}  // namespace

void save_model(const Model& model, const std::string& path, const SaveModelOptions& options,
                std::source_location where) {
  as_error("save", where, [&] {
    const bool older = (path.ends_with(".h5") || path.ends_with(".hdf5")) && !path.ends_with(".weights.h5");
    require(older || path.ends_with(".keras"), ErrorCode::invalid_argument, where, "save: \"", path,
            "\" must end in .keras, or in .h5 for Keras' older format; save_weights() writes weights alone "
            "(.weights.h5, .safetensors)");
    require(model.built(), ErrorCode::failed_precondition, where, "save: model \"", model.name(),
            "\" has no weights yet; call build() or fit() first");
    remove_stale_drafts_of(path);
    if (older) {
      AtomicFile file(path, where);
      file.write(written_legacy_hdf5(model, options.include_optimizer, where));
      return file.commit();
    }
    const Json metadata =
        Json::object({{"keras_version", kKerasVersion}, {"writer", "Lockstep " LOCKSTEP_VERSION}});
    std::string config = model.to_json(-1, where);
    if (!options.include_optimizer) config = without_compile(Json::parse(config)).dump();
    // A list in braces would copy the weights.
    std::vector<train::ZipEntry> entries;
    entries.push_back({kMetadata, metadata.dump()});
    entries.push_back({kConfig, std::move(config)});
    entries.push_back({kWeights, written_hdf5_weights(model, options.include_optimizer, where)});
    for (const StoredWeights& stored : stored_weights(model))
      for (auto& [name, bytes] : stored.layer.base()->kept_files())
        entries.push_back({folder_of_files(stored.path) + name, std::move(bytes)});
    train::write_zip(path, entries, where);
  });
}

Model load_model(const std::string& path, const LoadModelOptions& options, std::source_location where) {
  return as_error("load_model", where, [&] {
    if (path.ends_with(".onnx")) return import_onnx(path, where);
    if (!is_folder(path) && is_hdf5_file(path, where)) return load_legacy(path, options, where);
    require(is_folder(path) || is_zip_file(path, where), ErrorCode::io, where, "load_model: \"", path,
            "\" is no .keras file");
    const KerasArchive archive(path, where);
    const Json config = Json::parse(archive.config(), path + ":" + kConfig, where);
    require(config.is_object(), ErrorCode::io, where, "load_model: \"", path, "\": ", kConfig,
            " is no JSON object");
    const Model model = Model::from_json((options.compile ? config : without_compile(config)).dump(), where);
    const PendingWeights weights = read_hdf5_weights(model, archive.weights(), "load_model", where);
    if (model.compiled(where)) {
      model.model_base(where).trainer().build_optimizer();
      read_hdf5_optimizer(model, archive.weights(), "load_model", where).assign(where);
    }
    weights.assign(where);
    archive.restore_files(model, where);
    return model;
  });
}

Model clone_model(const Model& model, std::source_location where) {
  return as_error("clone_model", where, [&] {
    return Model::from_json(without_compile(Json::parse(model.to_json(-1, where))).dump(), where);
  });
}

}  // namespace models
}  // namespace lockstep::keras
