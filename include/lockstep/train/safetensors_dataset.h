// Datasets of rows of the tensors in a safetensors file.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

struct SafetensorsDatasetOptions {
  // The tensors, in the order in which elements have them. Empty: all of the file.
  std::vector<std::string> names = {};
};

// Dictionaries of one row of each tensor. The tensors must agree in their first dimension. The header is read
// at once, the tensors with the first iterator.
Dataset safetensors_dataset(const std::string& path, const SafetensorsDatasetOptions& options = {},
                            std::source_location where = std::source_location::current());

}  // namespace lockstep::data
