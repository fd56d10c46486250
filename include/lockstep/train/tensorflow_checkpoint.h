// Checkpoints of TensorFlow, for reading: PREFIX.index and PREFIX.data-00000-of-00001, ....
//
//   const auto checkpoint = train::load_checkpoint("run/ckpt-3");
//   for (const auto& entry : checkpoint.entries()) std::cout << entry.name << ' ' << entry.spec << '\n';
//   const Tensor kernel = checkpoint.read("model/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE");
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/tensor/tensor.h"

namespace lockstep::train {

// An opened checkpoint. Opening reads the index alone, checksums and all; what breaks a rule of the format
// throws Error(io) with file and rule. A handle; may be used from any thread.
class TensorflowCheckpoint {
 public:
  struct Entry {
    std::string name;
    TensorSpec spec;
    int shard = 0;
    uint64_t offset = 0;  // in the shard's file
    uint64_t bytes = 0;
    uint32_t checksum = 0;
  };

  explicit TensorflowCheckpoint(const std::string& prefix,
                                std::source_location where = std::source_location::current());

  const std::string& prefix() const;
  // The tensors of numbers, sorted by name. Texts, which the graph of objects is kept as, are left out.
  std::span<const Entry> entries() const;
  // Null where there is no such tensor.
  const Entry* find(std::string_view name) const;
  // The tensor, in the host's memory. Throws Error(not_found) that says what name is near, Error(io) where
  // its bytes do not fit their checksum, Error(unsupported) for a variable that was kept in pieces.
  Tensor read(std::string_view name, std::source_location where = std::source_location::current()) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// A checkpoint by its prefix, or the newest one of a folder, which its file "checkpoint" names.
TensorflowCheckpoint load_checkpoint(const std::string& prefix_or_folder,
                                     std::source_location where = std::source_location::current());

}  // namespace lockstep::train
