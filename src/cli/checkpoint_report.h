// What `lockstep checkpoint` finds out, as JSON and as text.
#pragma once

#include <string>

#include "lockstep/base/json.h"

namespace lockstep::cli {

// The file that a person means: a checkpoint with or without its ending, or a folder, of which the latest
// counts. Throws Error(not_found) where there is none.
std::string checkpoint_path(const std::string& given);

// {"path", "save_counter", "saved_at", "library", "bytes", "objects", "tensors": [{"name", "dtype", "shape",
// "bytes", "crc32c", "variable", and with stats "min", "max", "mean", "nan"}]}. With stats every tensor is
// read and checked.
Json inspect_checkpoint(const std::string& path, bool stats);
std::string inspection_text(const Json& inspection);

// {"a", "b", "same", "only_in_a": [names], "only_in_b": [names], "differing": [{"name", "a", "b" (where dtype
// or shape differ), "max_difference", "differing_elements"}]}. Values differ where their distance is more
// than `tolerance`, or where one alone is NaN.
Json diff_checkpoints(const std::string& a, const std::string& b, double tolerance);
std::string diff_text(const Json& diff);

// {"path", "good", "problems": [texts]}.
Json verify_checkpoint(const std::string& path);

}  // namespace lockstep::cli
