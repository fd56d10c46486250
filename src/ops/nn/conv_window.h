// The geometry of a window that slides over an image: what convolution and pooling share.
#pragma once

#include <optional>
#include <source_location>
#include <string_view>

#include "lockstep/ops/conv.h"
#include "lockstep/tensor/shape.h"

namespace lockstep {

// Every member has one entry per spatial dimension: {height, width}, {depth, height, width}, ... Padding is
// resolved here, so that kernels see numbers only.
struct Window {
  Dims input = {1, 1};  // the image
  Dims size = {1, 1};   // taps of the window
  Dims strides = {1, 1};
  Dims dilations = {1, 1};
  Dims before = {0, 0};  // zeros above and left of the image
  Dims after = {0, 0};   // zeros below and right of it

  int rank() const { return input.rank(); }
  // From the first tap to the last.
  int64_t extent(int axis) const { return (size[axis] - 1) * dilations[axis] + 1; }
  // Positions of the window.
  int64_t output(int axis) const {
    return (input[axis] + before[axis] + after[axis] - extent(axis)) / strides[axis] + 1;
  }
  Dims output() const;
  int64_t taps() const { return Shape(size).size(); }

  bool operator==(const Window&) const = default;
  void visit(auto&& v) const {
    v("input", input), v("size", size), v("strides", strides), v("dilations", dilations);
    v("before", before), v("after", after);
  }
};

// The window of `op` on images of `shape` (batch, spatial dimensions..., channels) with `rank` spatial
// dimensions; one entry of size, strides or dilations stands for all.
Window slide_window(std::string_view op, int rank, const Shape& shape, const Dims& size, const Dims& strides,
                    const Dims& dilations, Padding padding, std::source_location where);

// The window over images of `rank` dimensions that is this one in the last dimensions and one element in the
// others.
Window lift(const Window& window, int rank);

// The window over images of `shape` that were padded so much before this one slides over them; nothing where
// the padding would not be the same on both sides, or where more than the spatial dimensions grow.
std::optional<Window> with_padding(Window window, const Shape& shape, const Dims& before, const Dims& after);

// (batch, spatial dimensions..., channels)
Shape image_shape(int64_t batch, const Dims& size, int64_t channels);
// The spatial dimensions of (batch, spatial dimensions..., channels).
Dims image_size(const Shape& shape);
// "(batch, height, width, channels)" for two spatial dimensions.
std::string_view image_axes(int rank);

// `values`, or the one value for each of `rank` dimensions; each `least` or more.
Dims per_axis(std::string_view op, std::string_view what, int rank, const Dims& values, int64_t least,
              std::source_location where);

// Where options ask for channels_first: the images with channels last, and results back again.
Tensor to_channels_last(const Tensor& x, DataFormat format, std::source_location where);
Tensor from_channels_last(const Tensor& x, DataFormat format, std::source_location where);

}  // namespace lockstep
