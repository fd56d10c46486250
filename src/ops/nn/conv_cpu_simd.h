// Convolution of grey images, as the first layer of a network sees them: oneDNN's kernels run along the
// input's channels, and one channel leaves their vectors empty. float32, no strides.
#pragma once

#include <cstdint>

#include "ops/nn/conv_window.h"

namespace lockstep::cpu {

struct GreyConv {
  static constexpr int64_t kLanes = 16;    // out_channels must be a multiple of this
  static constexpr int64_t kMaxRows = 16;  // of the window

  Window2d window;
  int64_t out_channels = kLanes;
  bool relu = false;

  int64_t padded_width() const { return window.before[1] + window.input[1] + window.after[1]; }
  // Floats of scratch memory a thread needs: one padded image.
  int64_t band() const { return (window.before[0] + window.input[0] + window.after[0]) * padded_width(); }
};

// Rows [begin, end) of the result, counted over all images. `bias` may be null.
using GreyConvForward = void (*)(const GreyConv& conv, const float* x, const float* filter, const float* bias,
                                 float* y, float* band, int64_t begin, int64_t end);

// Worth calling with AVX-512 only: oneDNN's AVX2 kernel is faster than this one compiled for AVX2.
namespace simd_v4 {
extern const GreyConvForward grey_conv_forward;
}

}  // namespace lockstep::cpu
