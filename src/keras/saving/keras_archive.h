// A ".keras" file, or the folder that it unpacks to: config.json, metadata.json, model.weights.h5.
#pragma once

#include <memory>
#include <source_location>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/keras/model.h"
#include "train/hdf5.h"
#include "train/zip_archive.h"

namespace lockstep::keras {

// Whose formats files are of; the backend is the one that Keras' own files know.
inline constexpr const char* kKerasVersion = "3.15.1";
inline constexpr const char* kBackend = "tensorflow";

// Opened for reading. Throws Error(io) for what is no such file, or damaged.
class KerasArchive {
 public:
  explicit KerasArchive(const std::string& path, std::source_location where);

  // The model as JSON.
  std::string config() const;
  const train::Hdf5Reader& weights() const { return *weights_; }
  // Gives the files that layers keep in the archive to these. Throws Error(unsupported) where a layer takes
  // none.
  void restore_files(const Model& model, std::source_location where) const;

 private:
  std::string path_;
  std::unique_ptr<train::ZipReader> zip_;  // null: a folder
  std::unique_ptr<train::Hdf5Reader> weights_;
};

bool is_hdf5_file(const std::string& path, std::source_location where);
bool is_zip_file(const std::string& path, std::source_location where);

}  // namespace lockstep::keras
