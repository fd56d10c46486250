// Images: resizing and moving. Images are (batch, height, width, channels), or one image without the batch;
// with data_format "channels_first" the channels stand before the height.
//
// All throw Error(shape_mismatch | dtype_mismatch | invalid_argument) naming the op, the rule and what was
// received.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/graph/tensor_arg.h"
#include "lockstep/ops/conv.h"

namespace lockstep {

// How a value between pixels is made: that of the nearest one, or a weighted mean of those around it: of 2 x
// 2 (bilinear), 4 x 4 (bicubic: Keys' cubic convolution), 6 x 6 or 10 x 10 (Lanczos windows). area is the
// mean over what a pixel of the result covers of the image.
class Interpolation {
 public:
  enum Kind : uint8_t { nearest, bilinear, bicubic, lanczos3, lanczos5, area };

  // NOLINTBEGIN(google-explicit-constructor): .interpolation = "nearest"
  constexpr Interpolation(Kind kind) : kind_(kind) {}
  Interpolation(const char* text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  Interpolation(const std::string& text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Kind kind() const { return kind_; }
  std::string_view name() const;

 private:
  static Kind parse(std::string_view text, std::source_location where);

  Kind kind_;
};

// What lies around an image a b c d: constant k k|a b c d|k k, nearest a a|a b c d|d d, reflect b a|a b c d|d
// c, wrap c d|a b c d|a b.
class FillMode {
 public:
  enum Kind : uint8_t { constant, nearest, reflect, wrap };

  // NOLINTBEGIN(google-explicit-constructor): .fill_mode = "reflect"
  constexpr FillMode(Kind kind) : kind_(kind) {}
  FillMode(const char* text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  FillMode(const std::string& text, std::source_location where = std::source_location::current())
      : kind_(parse(text, where)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Kind kind() const { return kind_; }

 private:
  static Kind parse(std::string_view text, std::source_location where);

  Kind kind_;
};

namespace image {

struct ResizeOptions {
  Interpolation interpolation = Interpolation::bilinear;
  bool antialias = false;  // shrinking averages over what lies between
  DataFormat data_format = DataFormat::channels_last;
};

// The images in `size` {height, width}. Pixels are squares: the centre of pixel i of n lies at (i + 1/2) / n
// of the image. Images of integers can be resized to the nearest pixels only. antialias has no effect on
// nearest and area.
Tensor resize(const TensorArg& images, const Dims& size, const ResizeOptions& options = {});

struct AffineTransformOptions {
  Interpolation interpolation = Interpolation::bilinear;
  FillMode fill_mode = FillMode::constant;
  double fill_value = 0;
  DataFormat data_format = DataFormat::channels_last;
};

// `transform` is (batch, 8) or (8): a0 a1 a2 b0 b1 b2 c0 c1. The pixel in column x and row y of the result is
// that of the images in column (a0 x + a1 y + a2) / k and row (b0 x + b1 y + b2) / k, with k = c0 x + c1
// y + 1. Differentiable in both. Takes floating-point images and a transform of their dtype; interpolation is
// nearest or bilinear.
Tensor affine_transform(const TensorArg& images, const TensorArg& transform,
                        const AffineTransformOptions& options = {});

}  // namespace image
}  // namespace lockstep
