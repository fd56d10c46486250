// What layers ask of the shapes they are given.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras {

inline void require_rank(const LayerBase& layer, const Shape& input, int rank) {
  require(input.rank() == rank, ErrorCode::shape_mismatch, layer.where(), layer.class_name(),
          " takes inputs of rank ", rank, " (the batch included), received shape ", input);
}

// "channels_last" or "channels_first".
inline void require_data_format(const LayerBase& layer, const std::string& format) {
  require(format == "channels_last" || format == "channels_first", ErrorCode::invalid_argument,
          std::source_location::current(), layer.class_name(),
          ": data_format must be channels_last or channels_first, received \"", format, "\"");
}

}  // namespace lockstep::keras
