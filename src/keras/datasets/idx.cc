#include "lockstep/data/files.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::keras::datasets {

Tensor read_idx(const std::string& path, std::source_location where) { return data::read_idx(path, where); }

}  // namespace lockstep::keras::datasets
