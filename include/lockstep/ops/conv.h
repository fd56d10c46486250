// Convolution and pooling over images: NHWC activations (batch, height, width, channels) and HWIO
// filters (height, width, input channels of a group, output channels), as in TensorFlow.
//
// All take floating-point tensors and throw Error(shape_mismatch | dtype_mismatch | invalid_argument)
// naming the op, the rule and what was received. Strides, dilations and window sizes are
// {height, width}; one value stands for both.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

// Which windows there are. valid: those that lie inside the image. same: one for each stride, with
// zeros around the image shared out evenly, the odd one behind; the result then has the image's size
// divided by the stride, rounded up.
class Padding {
 public:
  enum Kind : uint8_t { valid, same };

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

struct Conv2dOptions {
  Dims strides = {1, 1};
  Padding padding = Padding::valid;
  Dims dilations = {1, 1};  // distance between the filter's taps
  int64_t groups = 1;       // channels are split into groups that do not see each other
};

// On CPUs, float32 results of 3x3 filters may come from Winograd's algorithm, whose rounding error is two
// to four times that of the plain sum.
Tensor conv2d(const TensorArg& x, const TensorArg& filter, const Conv2dOptions& options = {});

// The gradient of conv2d with respect to its input of shape `input_shape`: a transposed convolution.
Tensor conv2d_backprop_input(const Shape& input_shape, const TensorArg& filter, const TensorArg& gradient,
                             const Conv2dOptions& options = {});
// The gradient of conv2d with respect to its filter of shape `filter_shape`.
Tensor conv2d_backprop_filter(const TensorArg& x, const Shape& filter_shape, const TensorArg& gradient,
                              const Conv2dOptions& options = {});

struct Pool2dOptions {
  Dims pool_size = {2, 2};
  Dims strides = {};  // empty: pool_size, so that windows touch and do not overlap
  Padding padding = Padding::valid;
};

// The largest element of each window; its gradient goes to the first of equals. A NaN wins.
Tensor max_pool2d(const TensorArg& x, const Pool2dOptions& options = {});
// The mean of each window; padding does not count.
Tensor avg_pool2d(const TensorArg& x, const Pool2dOptions& options = {});

}  // namespace lockstep
