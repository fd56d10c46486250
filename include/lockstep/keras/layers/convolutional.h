// Convolutions over sequences, images and volumes.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "lockstep/keras/activations.h"
#include "lockstep/keras/layer.h"
#include "lockstep/ops/conv.h"

namespace lockstep::keras::layers {

// One size for every spatial dimension, or one each: 3 or {3, 5}.
class Sizes : public Dims {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  Sizes() = default;
  Sizes(int size) : Dims({size}) {}
  Sizes(int64_t size) : Dims({size}) {}
  Sizes(std::initializer_list<int64_t> sizes) : Dims(sizes) {}
  Sizes(const Dims& sizes) : Dims(sizes) {}
  // NOLINTEND(google-explicit-constructor)
};

struct ConvOptions {
  Sizes strides = 1;
  Padding padding = Padding::valid;  // also "causal" in Conv1D
  DataFormat data_format = DataFormat::channels_last;
  Sizes dilation_rate = 1;
  int64_t groups = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer Conv1D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
             std::source_location where = std::source_location::current());
Layer Conv2D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
             std::source_location where = std::source_location::current());
Layer Conv3D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options = {},
             std::source_location where = std::source_location::current());

struct ConvTransposeOptions {
  Sizes strides = 1;
  Padding padding = Padding::valid;
  Sizes output_padding = {};  // empty: see conv2d_transpose()
  DataFormat data_format = DataFormat::channels_last;
  Sizes dilation_rate = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer Conv1DTranspose(int64_t filters, const Sizes& kernel_size, const ConvTransposeOptions& options = {},
                      std::source_location where = std::source_location::current());
Layer Conv2DTranspose(int64_t filters, const Sizes& kernel_size, const ConvTransposeOptions& options = {},
                      std::source_location where = std::source_location::current());
Layer Conv3DTranspose(int64_t filters, const Sizes& kernel_size, const ConvTransposeOptions& options = {},
                      std::source_location where = std::source_location::current());

struct DepthwiseConvOptions {
  Sizes strides = 1;
  Padding padding = Padding::valid;
  int64_t depth_multiplier = 1;
  DataFormat data_format = DataFormat::channels_last;
  Sizes dilation_rate = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer depthwise_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer depthwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer DepthwiseConv1D(const Sizes& kernel_size, const DepthwiseConvOptions& options = {},
                      std::source_location where = std::source_location::current());
Layer DepthwiseConv2D(const Sizes& kernel_size, const DepthwiseConvOptions& options = {},
                      std::source_location where = std::source_location::current());

struct SeparableConvOptions {
  Sizes strides = 1;
  Padding padding = Padding::valid;
  DataFormat data_format = DataFormat::channels_last;
  Sizes dilation_rate = 1;
  int64_t depth_multiplier = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer depthwise_initializer = "glorot_uniform";
  Initializer pointwise_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer depthwise_regularizer = {};
  Regularizer pointwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint pointwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer SeparableConv1D(int64_t filters, const Sizes& kernel_size, const SeparableConvOptions& options = {},
                      std::source_location where = std::source_location::current());
Layer SeparableConv2D(int64_t filters, const Sizes& kernel_size, const SeparableConvOptions& options = {},
                      std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
