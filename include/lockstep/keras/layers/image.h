// Layers for images: (batch, height, width, channels), or one image without the batch. Integers become the
// compute dtype, but for Resizing, which keeps them.
//
// Random layers change images in training, and where nobody says whether it is training, as layer(images)
// does; each image of a batch by numbers of its own, which do not depend on how the batch is spread over
// replicas. A seed gives the layer a generator of its own; without one it draws from the default one.
//
// All throw Error(invalid_argument) for arguments out of range when they are made, and Error(shape_mismatch)
// for inputs of a wrong rank when they are called.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/one_or_many.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/image.h"

namespace lockstep::keras::layers {

struct ImageOptions {
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};

struct ResizingOptions {
  Interpolation interpolation = Interpolation::bilinear;
  // The middle of the image, of the new proportions, instead of a distorted image.
  bool crop_to_aspect_ratio = false;
  bool pad_to_aspect_ratio = false;  // the whole image, with fill_value on two sides
  double fill_value = 0;
  bool antialias = false;  // shrinking averages over what lies between
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Integers stay integers: rounded, and kept within what their dtype can hold.
Layer Resizing(int64_t height, int64_t width, const ResizingOptions& options = {},
               std::source_location where = std::source_location::current());

// The middle of the image. One that is too small is resized, after cropping to the new proportions.
Layer CenterCrop(int64_t height, int64_t width, const ImageOptions& options = {},
                 std::source_location where = std::source_location::current());

struct RandomImageOptions {
  std::optional<int64_t> seed = {};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Any part of this size; outside of training the middle, as large as the proportions allow, resized.
Layer RandomCrop(int64_t height, int64_t width, const RandomImageOptions& options = {},
                 std::source_location where = std::source_location::current());
// "horizontal", "vertical" or "horizontal_and_vertical": each direction at every second chance.
Layer RandomFlip(const std::string& mode = "horizontal_and_vertical", const RandomImageOptions& options = {},
                 std::source_location where = std::source_location::current());

// A factor is a number f, which stands for {-f, f}, or {lowest, highest}.

struct RandomTransformOptions {
  FillMode fill_mode = FillMode::reflect;
  Interpolation interpolation = Interpolation::bilinear;
  std::optional<int64_t> seed = {};
  double fill_value = 0;  // of FillMode::constant
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// By a part of the full circle; positive: counter-clockwise.
Layer RandomRotation(const Numbers& factor, const RandomTransformOptions& options = {},
                     std::source_location where = std::source_location::current());
// By a part of height and width; positive: down and to the right.
Layer RandomTranslation(const Numbers& height_factor, const Numbers& width_factor,
                        const RandomTransformOptions& options = {},
                        std::source_location where = std::source_location::current());
// To 1 + factor of what is seen: negative factors enlarge. Without a width_factor the proportions stay.
Layer RandomZoom(const Numbers& height_factor, const Numbers& width_factor = {},
                 const RandomTransformOptions& options = {},
                 std::source_location where = std::source_location::current());

struct RandomColorOptions {
  Numbers value_range = {0.0, 255.0};  // results are brought into it
  std::optional<int64_t> seed = {};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Distances from each channel's mean times a number in [1 - lower, 1 + upper); the factor is both, or {lower,
// upper}.
Layer RandomContrast(const Numbers& factor, const RandomColorOptions& options = {},
                     std::source_location where = std::source_location::current());
// Adds a part of the range of values.
Layer RandomBrightness(const Numbers& factor, const RandomColorOptions& options = {},
                       std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
