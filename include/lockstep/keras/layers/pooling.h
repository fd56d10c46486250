// Pooling over sequences, images and volumes.
#pragma once

#include <source_location>
#include <string>

#include "lockstep/keras/layers/convolutional.h"

namespace lockstep::keras::layers {

// Options are given by name: as the first member of their struct it takes no number, so that {3, 2} is a
// window of 3 x 2, as in Keras, and never a pool_size of 3 with strides of 2.
class ByName {
 public:
  ByName() {}  // NOLINT(modernize-use-equals-default): an aggregate would let numbers through
};

struct PoolingOptions {
  ByName by_name = {};
  Sizes pool_size = {};  // empty: 2
  Sizes strides = {};    // empty: pool_size
  Padding padding = Padding::valid;
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// The largest, or the mean, of each window. Its size is given once: MaxPooling2D({3, 2}, {.strides = 1}), or
// among the options.
Layer MaxPooling1D(const PoolingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer MaxPooling1D(const Sizes& pool_size, const PoolingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer MaxPooling2D(const PoolingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer MaxPooling2D(const Sizes& pool_size, const PoolingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer MaxPooling3D(const PoolingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer MaxPooling3D(const Sizes& pool_size, const PoolingOptions& options = {},
                   std::source_location where = std::source_location::current());
Layer AveragePooling1D(const PoolingOptions& options = {},
                       std::source_location where = std::source_location::current());
Layer AveragePooling1D(const Sizes& pool_size, const PoolingOptions& options = {},
                       std::source_location where = std::source_location::current());
Layer AveragePooling2D(const PoolingOptions& options = {},
                       std::source_location where = std::source_location::current());
Layer AveragePooling2D(const Sizes& pool_size, const PoolingOptions& options = {},
                       std::source_location where = std::source_location::current());
Layer AveragePooling3D(const PoolingOptions& options = {},
                       std::source_location where = std::source_location::current());
Layer AveragePooling3D(const Sizes& pool_size, const PoolingOptions& options = {},
                       std::source_location where = std::source_location::current());

struct AdaptivePoolingOptions {
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// As many windows as `output_size` says, whatever the input's size n: window i of m reaches from floor(i n /
// m) to ceil((i + 1) n / m).
Layer AdaptiveMaxPooling1D(const Sizes& output_size, const AdaptivePoolingOptions& options = {},
                           std::source_location where = std::source_location::current());
Layer AdaptiveMaxPooling2D(const Sizes& output_size, const AdaptivePoolingOptions& options = {},
                           std::source_location where = std::source_location::current());
Layer AdaptiveMaxPooling3D(const Sizes& output_size, const AdaptivePoolingOptions& options = {},
                           std::source_location where = std::source_location::current());
Layer AdaptiveAveragePooling1D(const Sizes& output_size, const AdaptivePoolingOptions& options = {},
                               std::source_location where = std::source_location::current());
Layer AdaptiveAveragePooling2D(const Sizes& output_size, const AdaptivePoolingOptions& options = {},
                               std::source_location where = std::source_location::current());
Layer AdaptiveAveragePooling3D(const Sizes& output_size, const AdaptivePoolingOptions& options = {},
                               std::source_location where = std::source_location::current());

struct GlobalPoolingOptions {
  DataFormat data_format = DataFormat::channels_last;
  bool keepdims = false;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer GlobalMaxPooling1D(const GlobalPoolingOptions& options = {},
                         std::source_location where = std::source_location::current());
Layer GlobalMaxPooling2D(const GlobalPoolingOptions& options = {},
                         std::source_location where = std::source_location::current());
Layer GlobalMaxPooling3D(const GlobalPoolingOptions& options = {},
                         std::source_location where = std::source_location::current());
// The mean over all positions; of a masked sequence, over the steps that the mask keeps.
Layer GlobalAveragePooling1D(const GlobalPoolingOptions& options = {},
                             std::source_location where = std::source_location::current());
Layer GlobalAveragePooling2D(const GlobalPoolingOptions& options = {},
                             std::source_location where = std::source_location::current());
Layer GlobalAveragePooling3D(const GlobalPoolingOptions& options = {},
                             std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
