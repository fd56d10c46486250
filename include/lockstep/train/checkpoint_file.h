// One checkpoint on disk: a safetensors file whose header also holds a manifest, with a checksum (CRC-32C) of
// every tensor and of the header itself.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::train {

// Opened for reading. Opening checks the header; a tensor is checked when it is read. Whatever the bytes are,
// the result is a tensor as it was saved, or Error(io) that names the file and the tensor or rule. A handle;
// may be used from any thread.
class CheckpointFile {
 public:
  struct Entry {
    std::string name;  // "model/dense/kernel": object, then what the object calls it
    TensorSpec spec;
    uint64_t offset = 0;  // in the file
    uint32_t crc32c = 0;
    std::string variable = {};  // the name of the variable that was saved, where it is one
  };

  // `path` with or without the ending ".safetensors".
  explicit CheckpointFile(const std::string& path,
                          std::source_location where = std::source_location::current());

  const std::string& path() const;  // of the file
  std::span<const Entry> entries() const&;
  std::span<const Entry> entries() && = delete;    // a loop over what a temporary holds outlives it
  const Entry* find(std::string_view name) const;  // null where there is no such tensor
  // What was saved: {"model": {"kind": "Sequential"}, "optimizer": {"kind": "Adam"}, ...}.
  const Json& objects() const;
  const std::string& library_version() const;  // that wrote it
  int64_t save_counter() const;                // 0: written by write()
  double saved_at() const;                     // seconds since 1970

  // On the current device.
  Tensor read(std::string_view name, std::source_location where = std::source_location::current()) const;
  // What is wrong with the tensors, a line each; empty where all are as they were saved.
  std::vector<std::string> verify() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep::train
