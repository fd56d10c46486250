// Pooling over sequences, images and volumes.
#pragma once

#include <string>

#include "lockstep/keras/layers/convolutional.h"

namespace lockstep::keras::layers {

struct PoolingOptions {
  Sizes pool_size = 2;
  Sizes strides = {};  // empty: pool_size
  Padding padding = Padding::valid;
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer MaxPooling1D(const PoolingOptions& options = {});
Layer MaxPooling2D(const PoolingOptions& options = {});
Layer MaxPooling3D(const PoolingOptions& options = {});
Layer AveragePooling1D(const PoolingOptions& options = {});
Layer AveragePooling2D(const PoolingOptions& options = {});
Layer AveragePooling3D(const PoolingOptions& options = {});

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
