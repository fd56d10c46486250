// Which elements of an image lie under which taps of a convolution's windows: what the kernels that are not
// oneDNN's are made of.
#pragma once

#include <cstdint>

#include "graph/kernel.h"
#include "ops/nn/conv.h"

namespace lockstep::cpu {

// Sizes as plain numbers: planes, rows and columns. Channels are those of all groups.
struct ConvPlaces {
  ConvPlaces(const KernelRequest& request, const Shape& x, const Shape& y) {
    const auto& attrs = request.attrs<ConvAttrs>();
    const Window window = lift(attrs.window, 3);
    batch = x[0], in_channels = x[-1], out_channels = y[-1], groups = attrs.groups;
    for (int axis = 0; axis < 3; ++axis) {
      input[axis] = window.input[axis], output[axis] = window.output(axis), size[axis] = window.size[axis];
      stride[axis] = window.strides[axis], dilation[axis] = window.dilations[axis],
      before[axis] = window.before[axis];
    }
    group_in = in_channels / groups, group_out = out_channels / groups;
  }

  // The image's plane (row, column) under tap `tap` of window `o`, or -1 on padding.
  int64_t under(int axis, int64_t o, int64_t tap) const {
    const int64_t position = o * stride[axis] - before[axis] + tap * dilation[axis];
    return position < input[axis] ? position : -1;
  }
  // The window whose tap `tap` lies on `position`, or -1.
  int64_t window_over(int axis, int64_t position, int64_t tap) const {
    const int64_t start = position + before[axis] - tap * dilation[axis];
    if (start < 0 || start % stride[axis] != 0 || start / stride[axis] >= output[axis]) return -1;
    return start / stride[axis];
  }

  // f(place in the filter, place) for every tap at which `find`(axis, at[axis], tap) is a place: `under` from
  // a window, `window_over` from an element of the image. Places count planes, rows and columns of `sizes` in
  // one number.
  template <class Find, class F>
  void each_tap(const int64_t (&at)[3], const int64_t (&sizes)[3], Find find, F f) const {
    for (int64_t p = 0; p < size[0]; ++p) {
      const int64_t plane = (this->*find)(0, at[0], p);
      if (plane < 0) continue;
      for (int64_t i = 0; i < size[1]; ++i) {
        const int64_t row = (this->*find)(1, at[1], i);
        if (row < 0) continue;
        for (int64_t j = 0; j < size[2]; ++j) {
          const int64_t column = (this->*find)(2, at[2], j);
          if (column >= 0) f((p * size[1] + i) * size[2] + j, (plane * sizes[1] + row) * sizes[2] + column);
        }
      }
    }
  }

  static int64_t volume(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t taps() const { return volume(size); }
  bool depthwise() const { return group_in == 1 && group_out == 1; }

  int64_t batch, in_channels, out_channels, groups, group_in, group_out;
  int64_t input[3], output[3], size[3], stride[3], dilation[3], before[3];
};

}  // namespace lockstep::cpu
