// What layers ask of the shapes they are given.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras {

inline void require_rank(const LayerBase& layer, const Shape& input, int rank) {
  require(input.rank() == rank, ErrorCode::shape_mismatch, layer.where(), layer.class_name(),
          " takes inputs of rank ", rank, " (the batch included), received shape ", input);
}

}  // namespace lockstep::keras
