// Convolution and pooling over sequences, images and volumes, as in TensorFlow: activations are (batch,
// length, channels), (batch, height, width, channels) or (batch, depth, height, width, channels), filters
// (window..., input channels of a group, output channels).
//
// All take floating-point tensors and throw Error(shape_mismatch | dtype_mismatch | invalid_argument)
// naming the op, the rule and what was received. Strides, dilations and window sizes have one value a
// spatial dimension; one value stands for all.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

// Which windows there are. valid: those that lie inside the image. same: one for each stride, with
// zeros around the image shared out evenly, the odd one behind; the result then has the image's size
// divided by the stride, rounded up. causal, for sequences: zeros in front only, so that a result sees
// nothing behind its own place.
class Padding {
 public:
  enum Kind : uint8_t { valid, same, causal };

  // NOLINTBEGIN(google-explicit-constructor): .padding = "same"
  constexpr Padding(Kind kind) : kind_(kind) {}
  Padding(const char* text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  Padding(const std::string& text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Kind kind() const { return kind_; }

 private:
  static Kind parse(std::string_view text, std::source_location where);

  Kind kind_;
};

// Where activations have their channels: behind the spatial dimensions, or between them and the batch.
// Kernels work on channels_last; with channels_first the activations are transposed there and back. Filters
// do not change.
class DataFormat {
 public:
  enum Kind : uint8_t { channels_last, channels_first };

  // NOLINTBEGIN(google-explicit-constructor): .data_format = "channels_first"
  constexpr DataFormat(Kind kind) : kind_(kind) {}
  DataFormat(const char* text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  DataFormat(const std::string& text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Kind kind() const { return kind_; }

 private:
  static Kind parse(std::string_view text, std::source_location where);

  Kind kind_;
};

struct ConvOptions {
  Dims strides = {1};
  Padding padding = Padding::valid;
  Dims dilations = {1};  // distance between the filter's taps
  int64_t groups = 1;    // channels are split into groups that do not see each other
  DataFormat data_format = DataFormat::channels_last;
};
using Conv2dOptions = ConvOptions;

// On CPUs, float32 results of 3x3 filters may come from Winograd's algorithm, whose rounding error is two
// to four times that of the plain sum.
Tensor conv1d(const TensorArg& x, const TensorArg& filter, const ConvOptions& options = {});
Tensor conv2d(const TensorArg& x, const TensorArg& filter, const ConvOptions& options = {});
Tensor conv3d(const TensorArg& x, const TensorArg& filter, const ConvOptions& options = {});

// The gradient of a convolution with respect to its input of shape `input_shape`. Channels are last.
Tensor conv2d_backprop_input(const Shape& input_shape, const TensorArg& filter, const TensorArg& gradient,
                             const ConvOptions& options = {});
Tensor conv3d_backprop_input(const Shape& input_shape, const TensorArg& filter, const TensorArg& gradient,
                             const ConvOptions& options = {});
// The gradient of a convolution with respect to its filter of shape `filter_shape`. Channels are last.
Tensor conv2d_backprop_filter(const TensorArg& x, const Shape& filter_shape, const TensorArg& gradient,
                              const ConvOptions& options = {});
Tensor conv3d_backprop_filter(const TensorArg& x, const Shape& filter_shape, const TensorArg& gradient,
                              const ConvOptions& options = {});

struct DepthwiseConvOptions {
  Dims strides = {1};
  Padding padding = Padding::valid;
  Dims dilations = {1};
  DataFormat data_format = DataFormat::channels_last;
};

// Every input channel has filters of its own: (window..., channels, multiplier). Result c * multiplier + m is
// channel c under its filter m.
Tensor depthwise_conv1d(const TensorArg& x, const TensorArg& filter,
                        const DepthwiseConvOptions& options = {});
Tensor depthwise_conv2d(const TensorArg& x, const TensorArg& filter,
                        const DepthwiseConvOptions& options = {});

// A depthwise convolution with these options, then one of 1 x 1 that mixes its channels.
Tensor separable_conv1d(const TensorArg& x, const TensorArg& depthwise_filter,
                        const TensorArg& pointwise_filter, const DepthwiseConvOptions& options = {});
Tensor separable_conv2d(const TensorArg& x, const TensorArg& depthwise_filter,
                        const TensorArg& pointwise_filter, const DepthwiseConvOptions& options = {});

struct ConvTransposeOptions {
  Dims strides = {1};
  Padding padding = Padding::valid;
  // Elements added behind the result, fewer than the stride. Empty: with padding same as many as make the
  // result's size that of x times the stride, with valid as many as the stride is longer than the window.
  Dims output_padding = {};
  Dims dilations = {1};
  DataFormat data_format = DataFormat::channels_last;
};

// Convolution backwards: every element of x, times the filter (window..., output channels, input channels),
// is added to the result where the window of a convolution would have stood. With e = (window - 1) *
// dilation + 1, a dimension of n elements becomes, for padding valid and same,
//   (n - 1) * stride + e     + output_padding    (none given: (n - 1) * stride + max(e, stride))
//   (n - 1) * stride + e % 2 + output_padding    (none given: n * stride).
Tensor conv1d_transpose(const TensorArg& x, const TensorArg& filter,
                        const ConvTransposeOptions& options = {});
Tensor conv2d_transpose(const TensorArg& x, const TensorArg& filter,
                        const ConvTransposeOptions& options = {});
Tensor conv3d_transpose(const TensorArg& x, const TensorArg& filter,
                        const ConvTransposeOptions& options = {});

struct PoolOptions {
  Dims pool_size = {2};
  Dims strides = {};  // empty: pool_size, so that windows touch and do not overlap
  Padding padding = Padding::valid;
  DataFormat data_format = DataFormat::channels_last;
};
using Pool2dOptions = PoolOptions;

// The largest element of each window; its gradient goes to the first of equals. A NaN wins.
Tensor max_pool1d(const TensorArg& x, const PoolOptions& options = {});
Tensor max_pool2d(const TensorArg& x, const PoolOptions& options = {});
Tensor max_pool3d(const TensorArg& x, const PoolOptions& options = {});
// The mean of each window; padding does not count.
Tensor avg_pool1d(const TensorArg& x, const PoolOptions& options = {});
Tensor avg_pool2d(const TensorArg& x, const PoolOptions& options = {});
Tensor avg_pool3d(const TensorArg& x, const PoolOptions& options = {});

}  // namespace lockstep
