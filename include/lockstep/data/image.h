// Images in files: JPEG and PNG.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// A JPEG or PNG image, whichever the bytes are, as uint8 (height, width, channels). channels: 1 (grey), 3 (red,
// green, blue), 4 (and opacity), or 0 for what the image has. 16-bit samples keep their upper half, palettes become
// colours. Throws Error(io) where the bytes are no such image or damaged; `source` names them in the message.
Tensor decode_image(std::string_view bytes, int channels = 0, std::string_view source = "image",
                    std::source_location where = std::source_location::current());

// From uint8 (height, width, channels): PNG takes 1, 3 or 4 channels, JPEG 1 or 3 and a quality from 1 to 100.
std::string encode_png(const Tensor& image, std::source_location where = std::source_location::current());
std::string encode_jpeg(const Tensor& image, int quality = 95,
                        std::source_location where = std::source_location::current());

enum class Interpolation { bilinear, nearest };

struct ResizeOptions {
  Interpolation interpolation = Interpolation::bilinear;
  // Cuts the largest centred part of the target's proportions out before resizing.
  bool crop_to_aspect_ratio = false;
};

// From uint8 (height, width, channels) to float32 (new_height, new_width, channels), values from 0 to 255. Pixels
// are areas: their centres lie at half-integers, as in tf.image.resize. Bilinear resizing does not smooth first.
Tensor resize_image(const Tensor& image, int64_t height, int64_t width, const ResizeOptions& options = {},
                    std::source_location where = std::source_location::current());

}  // namespace lockstep::data
