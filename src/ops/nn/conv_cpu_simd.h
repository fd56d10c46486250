// Convolution of grey images, as the first layer of a network sees them: oneDNN's AVX-512 kernels run along
// the input's channels, and one channel leaves their vectors empty. float32, no strides.
#pragma once

#include <cstdint>

namespace lockstep::cpu {

struct GreyConv {
  static constexpr int64_t kMaxRows = 16;  // of the window

  int64_t height = 1, width = 1;                      // of the images
  int64_t window_height = 1, window_width = 1;        // taps
  int64_t row_dilation = 1, column_dilation = 1;      // distance between taps
  int64_t above = 0, below = 0, left = 0, right = 0;  // zeros around the images
  int64_t out_channels = 1;
  bool relu = false;

  int64_t padded_height() const { return above + height + below; }
  int64_t padded_width() const { return left + width + right; }
  int64_t out_height() const { return padded_height() - (window_height - 1) * row_dilation; }
  int64_t out_width() const { return padded_width() - (window_width - 1) * column_dilation; }
  // Floats of scratch memory that a thread needs: one padded image.
  int64_t scratch() const { return padded_height() * padded_width(); }
};

struct GreyConvTable {
  // Rows [begin, end) of the result, counted over all images. `bias` may be null.
  void (*forward)(const GreyConv& conv, const float* x, const float* filter, const float* bias, float* y,
                  float* scratch, int64_t begin, int64_t end);
};

}  // namespace lockstep::cpu

// For AVX-512 only: oneDNN's AVX2 kernel has no such weakness, and is the faster one there.
namespace lockstep::simd_v4 {
extern const cpu::GreyConvTable kGreyConvTable [[gnu::weak]];
}
