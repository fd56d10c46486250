// Rows of arrays in files, which are read when the first iterator is made.
#pragma once

#include <functional>
#include <string>

#include "data/node.h"

namespace lockstep::data {

struct StoredArrays {
  std::string name;  // as the user calls it: "idx_dataset"
  // The arrays' spec; their first dimension counts the rows.
  ElementSpec spec;
  // The arrays, contiguous, on the current device, which is a CPU. Called once, or again where it threw.
  std::function<TensorList()> read;
};

// Throws Error(shape_mismatch) where the arrays do not agree in their first dimension.
Dataset stored_rows_dataset(const StoredArrays& arrays, std::source_location where);

}  // namespace lockstep::data
