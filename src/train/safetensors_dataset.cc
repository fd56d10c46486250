#include "lockstep/train/safetensors_dataset.h"

#include "data/sources/rows.h"
#include "lockstep/base/error.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::data {

Dataset safetensors_dataset(const std::string& path, const SafetensorsDatasetOptions& options,
                            std::source_location where) {
  const train::SafetensorsFile file(path, where);
  std::vector<std::string> names = options.names;
  if (names.empty())
    for (const auto& entry : file.entries()) names.push_back(entry.name);
  require(!names.empty(), ErrorCode::invalid_argument, where, "safetensors_dataset: \"", path,
          "\" has no tensor");
  std::vector<std::pair<std::string, Structure>> parts;
  ElementSpec spec;
  for (const std::string& name : names) {
    parts.emplace_back(name, Structure());
    spec.tensors.push_back(file.entry(name, where).spec);
  }
  spec.structure = Structure::dict(std::move(parts));
  return stored_rows_dataset({.name = "safetensors_dataset",
                              .spec = std::move(spec),
                              .read =
                                  [file, names, where] {
                                    TensorList arrays;
                                    for (const std::string& name : names)
                                      arrays.push_back(file.read(name, where));
                                    return arrays;
                                  }},
                             where);
}

}  // namespace lockstep::data
