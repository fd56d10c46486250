// The geometry of a window that slides over an image: what convolution and pooling share.
#pragma once

#include <source_location>
#include <string_view>

#include "lockstep/ops/conv.h"
#include "lockstep/tensor/shape.h"

namespace lockstep {

// Every member is {height, width}. Padding is resolved here, so that kernels see numbers only.
struct Window2d {
  Dims input = {1, 1};  // the image
  Dims size = {1, 1};   // taps of the window
  Dims strides = {1, 1};
  Dims dilations = {1, 1};
  Dims before = {0, 0};  // zeros above and left of the image
  Dims after = {0, 0};   // zeros below and right of it

  // From the first tap to the last.
  int64_t extent(int axis) const { return (size[axis] - 1) * dilations[axis] + 1; }
  // Positions of the window.
  int64_t output(int axis) const {
    return (input[axis] + before[axis] + after[axis] - extent(axis)) / strides[axis] + 1;
  }
  int64_t taps() const { return size[0] * size[1]; }

  bool operator==(const Window2d&) const = default;
  void visit(auto&& v) const {
    v("input", input), v("size", size), v("strides", strides), v("dilations", dilations);
    v("before", before), v("after", after);
  }
};

// The window of `op` on NHWC images of `shape`; one entry of size, strides or dilations stands for both.
Window2d slide_window(std::string_view op, const Shape& shape, const Dims& size, const Dims& strides,
                      const Dims& dilations, Padding padding, std::source_location where);

}  // namespace lockstep
