// How a checkpoint's file begins: what its writer and its reader have to agree on.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/train/checkpoint_file.h"

namespace lockstep::train {

inline constexpr std::string_view kCheckpointEnding = ".safetensors";

struct CheckpointHeader {
  std::vector<CheckpointFile::Entry> entries;  // offsets count from the end of the header
  Json objects;
  int64_t save_counter = 0;
  double saved_at = 0;
};

// Gives every entry its offset, wide elements first so that all are aligned; returns the bytes of all
// together.
uint64_t lay_out(std::vector<CheckpointFile::Entry>& entries);

// The first bytes of the file, up to the tensors. Its size does not depend on the checksums.
std::string header_bytes(const CheckpointHeader& header);

// Whether the file of this path begins as a checkpoint does.
bool looks_like_checkpoint(const std::string& path);

// "a/b" of "a" and "b"; the other one where one is empty.
std::string join_names(const std::string& a, const std::string& b);

}  // namespace lockstep::train
