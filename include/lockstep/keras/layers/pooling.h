// Pooling over sequences, images and volumes.
#pragma once

#include <string>

#include "lockstep/keras/layers/convolutional.h"

namespace lockstep::keras::layers {

// Options are given by name: as the first member of their struct it takes no number, so that {3, 2} is a window of
// 3 x 2, as in Keras, and never a pool_size of 3 with strides of 2.
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
// The largest, or the mean, of each window. Its size is given once: MaxPooling2D({3, 2}, {.strides = 1}), or among the
// options.
Layer MaxPooling1D(const PoolingOptions& options = {});
Layer MaxPooling1D(const Sizes& pool_size, const PoolingOptions& options = {});
Layer MaxPooling2D(const PoolingOptions& options = {});
Layer MaxPooling2D(const Sizes& pool_size, const PoolingOptions& options = {});
Layer MaxPooling3D(const PoolingOptions& options = {});
Layer MaxPooling3D(const Sizes& pool_size, const PoolingOptions& options = {});
Layer AveragePooling1D(const PoolingOptions& options = {});
Layer AveragePooling1D(const Sizes& pool_size, const PoolingOptions& options = {});
Layer AveragePooling2D(const PoolingOptions& options = {});
Layer AveragePooling2D(const Sizes& pool_size, const PoolingOptions& options = {});
Layer AveragePooling3D(const PoolingOptions& options = {});
Layer AveragePooling3D(const Sizes& pool_size, const PoolingOptions& options = {});

struct AdaptivePoolingOptions {
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// As many windows as `output_size` says, whatever the input's size n: window i of m reaches from floor(i n / m) to
// ceil((i + 1) n / m).
Layer AdaptiveMaxPooling1D(const Sizes& output_size, const AdaptivePoolingOptions& options = {});
Layer AdaptiveMaxPooling2D(const Sizes& output_size, const AdaptivePoolingOptions& options = {});
Layer AdaptiveMaxPooling3D(const Sizes& output_size, const AdaptivePoolingOptions& options = {});
Layer AdaptiveAveragePooling1D(const Sizes& output_size, const AdaptivePoolingOptions& options = {});
Layer AdaptiveAveragePooling2D(const Sizes& output_size, const AdaptivePoolingOptions& options = {});
Layer AdaptiveAveragePooling3D(const Sizes& output_size, const AdaptivePoolingOptions& options = {});

struct GlobalPoolingOptions {
  DataFormat data_format = DataFormat::channels_last;
  bool keepdims = false;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer GlobalMaxPooling1D(const GlobalPoolingOptions& options = {});
Layer GlobalMaxPooling2D(const GlobalPoolingOptions& options = {});
Layer GlobalMaxPooling3D(const GlobalPoolingOptions& options = {});
// Of a masked sequence: the mean of the steps that count.
Layer GlobalAveragePooling1D(const GlobalPoolingOptions& options = {});
Layer GlobalAveragePooling2D(const GlobalPoolingOptions& options = {});
Layer GlobalAveragePooling3D(const GlobalPoolingOptions& options = {});

}  // namespace lockstep::keras::layers
