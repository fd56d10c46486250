// Files of named tensors in the safetensors format, which many frameworks read and write.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::train {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

struct SafetensorsOptions {
  Metadata metadata = {};
};

// Writes the tensors under their names, which must differ. The file appears complete or not at all: an older
// one of this name is there until then. Readers find the tensors in this order.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const SafetensorsOptions& options = {},
                      std::source_location where = std::source_location::current());

// All tensors of a file in the order of its header, on the current device.
NamedTensors load_safetensors(const std::string& path,
                              std::source_location where = std::source_location::current());

// A file opened for reading some of its tensors. Opening reads and checks the header alone: that it fits the
// file, that every tensor's bytes fit its dtype and shape, and that they cover the file without overlap or
// holes; what breaks a rule throws Error(io) with file, tensor and rule. A handle; may be used from any
// thread.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    TensorSpec spec;
    uint64_t offset = 0;  // in the file
  };

  explicit SafetensorsFile(const std::string& path,
                           std::source_location where = std::source_location::current());

  const std::string& path() const;
  const Metadata& metadata() const;
  std::span<const Entry> entries() const;  // in the order of the header
  // Null where there is no such tensor.
  const Entry* find(std::string_view name) const;
  // Throws Error(not_found) that says what name is near.
  const Entry& entry(std::string_view name,
                     std::source_location where = std::source_location::current()) const;

  // The tensor, on the current device. Throws as entry() does.
  Tensor read(std::string_view name, std::source_location where = std::source_location::current()) const;
  // These tensors, in this order.
  NamedTensors read(std::span<const std::string> names,
                    std::source_location where = std::source_location::current()) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep::train
