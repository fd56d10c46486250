// What layers over sequences, images and volumes share.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/keras/layers/convolutional.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::keras::layers {

// One value for each of `rank` dimensions; throws naming the layer and the setting.
inline Sizes per_dimension(const Sizes& sizes, int rank, const char* layer, const char* setting) {
  if (sizes.rank() == 1 && rank > 1) return Dims::filled(rank, sizes[0]);
  require(sizes.rank() == rank, ErrorCode::invalid_argument, std::source_location::current(), layer, ": ",
          setting, " needs one size or ", rank, ", received ", sizes);
  return sizes;
}

inline Sizes positive(const Sizes& sizes, int rank, const char* layer, const char* setting) {
  Sizes all = per_dimension(sizes, rank, layer, setting);
  for (const int64_t size : all)
    require(size > 0, ErrorCode::invalid_argument, std::source_location::current(), layer, ": ", setting,
            " must be positive, received ", sizes);
  return all;
}

// Where the channels stand in a tensor of `rank` spatial dimensions.
inline int channel_axis(DataFormat format, int rank) {
  return format.kind() == DataFormat::channels_first ? 1 : rank + 1;
}

// Checks the input's rank and gives its channels.
inline int64_t channels_of(const Shape& input, DataFormat format, int rank, const char* layer) {
  require(input.rank() == rank + 2, ErrorCode::shape_mismatch, std::source_location::current(), layer,
          " takes inputs of rank ", rank + 2, ", received shape ", input);
  const int64_t channels = input[channel_axis(format, rank)];
  require(channels > 0, ErrorCode::shape_mismatch, std::source_location::current(), layer,
          ": the number of channels must be known, received shape ", input);
  return channels;
}

}  // namespace lockstep::keras::layers
