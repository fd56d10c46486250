// Images in files: JPEG and PNG.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/ops/image.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// A JPEG or PNG image, whichever the bytes are, as uint8 (height, width, channels). channels: 1 (grey), 3
// (red, green, blue), 4 (and opacity), or 0 for what the image has. 16-bit samples keep their upper half,
// palettes become colours. Throws Error(io) where the bytes are no such image or damaged; `source` names them
// in the message.
Tensor decode_image(std::string_view bytes, int channels = 0, std::string_view source = "image",
                    std::source_location where = std::source_location::current());

// From uint8 (height, width, channels): PNG takes 1, 3 or 4 channels, JPEG 1 or 3 and a quality from 1
// to 100.
std::string encode_png(const Tensor& image, std::source_location where = std::source_location::current());
std::string encode_jpeg(const Tensor& image, int quality = 95,
                        std::source_location where = std::source_location::current());

struct ResizeOptions {
  Interpolation interpolation = Interpolation::bilinear;
  // Cuts the largest centred part of the target's proportions out before resizing.
  bool crop_to_aspect_ratio = false;
};

// From uint8 (height, width, channels) to float32 (new_height, new_width, channels), values from 0 to 255; or
// a batch of images, with a dimension in front. Pixels are areas: their centres lie at half-integers, as in
// tf.image.resize. Nothing is smoothed first; `area` takes means. Bicubic and Lanczos interpolation go a
// little beyond 0 and 255 at edges.
Tensor resize_image(const Tensor& image, int64_t height, int64_t width, const ResizeOptions& options = {},
                    std::source_location where = std::source_location::current());

// --- many at once ---

struct DecodeOptions {
  // Height and width: images become float32, resized. Empty: uint8, as they are, and all of one size.
  std::vector<int64_t> image_size = {};
  int channels = 3;  // 1, 3 or 4
  ResizeOptions resize = {};
  // JPEG images may be decoded at a half, a quarter or an eighth of their size where that is still no smaller
  // than image_size. Several times quicker for large ones; pixels are then means of several, not samples.
  bool shrink_while_decoding = false;
};

// (images, height, width, channels), each image decoded right into its place, side by side on the threads
// that the caller may use: all of the machine's, or one inside of a dataset's parallel stage. Throws as
// decode_image() does.
Tensor decode_images(std::span<const std::string_view> images, const DecodeOptions& options = {},
                     std::source_location where = std::source_location::current());
Tensor decode_image_files(std::span<const std::string> files, const DecodeOptions& options = {},
                          std::source_location where = std::source_location::current());

// --- changes for map(): of one image (height, width, channels) or a batch with a dimension in front ---

// The part in the middle. A view: nothing is copied.
Tensor central_crop(const Tensor& images, int64_t height, int64_t width,
                    std::source_location where = std::source_location::current());
// A part drawn for every image, from the default generator: inside of map() the same for the same element.
Tensor random_crop(const Tensor& images, int64_t height, int64_t width,
                   std::source_location where = std::source_location::current());
// Left and right change places, or up and down.
Tensor flip_left_right(const Tensor& images, std::source_location where = std::source_location::current());
Tensor flip_up_down(const Tensor& images, std::source_location where = std::source_location::current());
// Every image with this probability.
Tensor random_flip_left_right(const Tensor& images, double probability = 0.5,
                              std::source_location where = std::source_location::current());
// float32: (image - mean) / stddev, one of each for every channel, or one for all; in the images' units: from
// 0 to 255 where they were just decoded.
Tensor normalize_images(const Tensor& images, const std::vector<float>& mean,
                        const std::vector<float>& stddev,
                        std::source_location where = std::source_location::current());

}  // namespace lockstep::data
