// Layers that change images for training beyond moving them: colours, blur, parts that are missing or of
// another image. What image.h says of random layers holds for these. `value_range` is that of the pixels,
// {lowest, highest}; a `factor` is a number f, which stands for {0, f}, or {lowest, highest}, between 0 and 1
// where nothing else is said.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/image.h"
#include "lockstep/keras/layers/one_or_many.h"
#include "lockstep/ops/image.h"

namespace lockstep::keras::layers {

// --- colours -----------------------------------------------------------------------------------------------

struct ContrastOptions {
  Numbers value_range = {0.0, 255.0};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Every channel of every image is stretched to the whole range, in training and outside of it.
Layer AutoContrast(const ContrastOptions& options = {},
                   std::source_location where = std::source_location::current());

struct EqualizationOptions {
  Numbers value_range = {0.0, 255.0};
  int64_t bins = 256;
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// All values of the range become about as frequent as each other, in each channel of all images of the batch
// together.
Layer Equalization(const EqualizationOptions& options = {},
                   std::source_location where = std::source_location::current());

struct SolarizationOptions {
  // What is added first, and from where on values are turned round: up to this part of 255. Of two numbers,
  // {lowest, highest}, the lowest is taken as it is, as by Keras.
  Numbers addition_factor = 0.0;
  Numbers threshold_factor = 0.0;
  Numbers value_range = {0.0, 255.0};
  std::optional<int64_t> seed = {};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer Solarization(const SolarizationOptions& options = {},
                   std::source_location where = std::source_location::current());

// Images are turned into their negatives with this probability.
Layer RandomInvert(const Numbers& factor = 1.0, const RandomColorOptions& options = {},
                   std::source_location where = std::source_location::current());
// Images lose their colours with this probability; they keep three channels.
Layer RandomGrayscale(double factor = 0.5, const RandomImageOptions& options = {},
                      std::source_location where = std::source_location::current());
// Values keep this number of bits, 1 to 8; two numbers are the first and the one behind the last.
Layer RandomPosterization(const Numbers& factor, const RandomColorOptions& options = {},
                          std::source_location where = std::source_location::current());
// The hue goes half of the factor around the circle, to either side.
Layer RandomHue(const Numbers& factor, const RandomColorOptions& options = {},
                std::source_location where = std::source_location::current());
// The saturation times f / (1 - f): at 0.5 it stays, below it fades, and from 0 on nothing is left of it; a
// number f stands for {-f, f}.
Layer RandomSaturation(const Numbers& factor, const RandomColorOptions& options = {},
                       std::source_location where = std::source_location::current());
// This part of the way to the image without colours; a number f stands for {-f, f}.
Layer RandomColorDegeneration(const Numbers& factor, const RandomColorOptions& options = {},
                              std::source_location where = std::source_location::current());
// At 0 smoothed, at 0.5 as it is, at 1 as much sharper.
Layer RandomSharpness(const Numbers& factor, const RandomColorOptions& options = {},
                      std::source_location where = std::source_location::current());

struct RandomGaussianBlurOptions {
  Axes kernel_size = 3;  // odd; two numbers are width and height
  Numbers sigma = 1.0;
  Numbers value_range = {0.0, 255.0};
  DataFormat data_format = DataFormat::channels_last;
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Images are blurred with this probability, those of a batch by the same filter.
Layer RandomGaussianBlur(const Numbers& factor = 1.0, const RandomGaussianBlurOptions& options = {},
                         std::source_location where = std::source_location::current());

struct RandomColorJitterOptions {
  Numbers value_range = {0.0, 255.0};
  Numbers brightness_factor = {};  // not given: it stays
  Numbers contrast_factor = {};
  Numbers saturation_factor = {};
  Numbers hue_factor = {};
  std::optional<int64_t> seed = {};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// RandomBrightness, RandomContrast, RandomSaturation and RandomHue one after the other.
Layer RandomColorJitter(const RandomColorJitterOptions& options = {},
                        std::source_location where = std::source_location::current());

// --- places ------------------------------------------------------------------------------------------------

struct RandomShearOptions {
  Interpolation interpolation = Interpolation::bilinear;
  FillMode fill_mode = FillMode::reflect;
  double fill_value = 0;
  DataFormat data_format = DataFormat::channels_last;
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Rows are shifted by this part of how far down they are, columns by this part of how far to the right, to
// either side.
Layer RandomShear(const Numbers& x_factor = 0.0, const Numbers& y_factor = 0.0,
                  const RandomShearOptions& options = {},
                  std::source_location where = std::source_location::current());

struct RandomPerspectiveOptions {
  double scale = 1;  // how far corners move: up to half of it, as a part of their distance from the first one
  Interpolation interpolation = Interpolation::bilinear;
  double fill_value = 0;
  std::optional<int64_t> seed = {};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Images are seen from another side with this probability.
Layer RandomPerspective(const Numbers& factor = 1.0, const RandomPerspectiveOptions& options = {},
                        std::source_location where = std::source_location::current());

struct RandomErasingOptions {
  Numbers scale = {0.02, 0.33};  // the part of height and width that is erased, squared
  Numbers fill_value = {};       // one number or one for each channel; not given: noise
  Numbers value_range = {0.0, 255.0};
  std::optional<int64_t> seed = {};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// A rectangle of the image is filled with this probability.
Layer RandomErasing(const Numbers& factor = 1.0, const RandomErasingOptions& options = {},
                    std::source_location where = std::source_location::current());

// Images become w times themselves plus 1 - w times another one of the batch (of the replica's part of it), w
// from the beta distribution of alpha and alpha.
Layer MixUp(double alpha = 0.2, const RandomImageOptions& options = {},
            std::source_location where = std::source_location::current());
// A rectangle of the image is that of another one of the batch (of the replica's part of it). The factor is
// alpha of the beta distribution of how much of the image stays.
Layer CutMix(const Numbers& factor = 1.0, const RandomImageOptions& options = {},
             std::source_location where = std::source_location::current());

struct RandAugmentOptions {
  Numbers value_range = {0.0, 255.0};
  int64_t num_ops = 2;
  Numbers factor = 0.5;
  Interpolation interpolation = Interpolation::bilinear;
  std::optional<int64_t> seed = {};
  DataFormat data_format = DataFormat::channels_last;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// So many of eleven changes in a row, drawn anew for every batch: shear, translation, rotation, brightness,
// colour degeneration, contrast, sharpness, solarization, posterization, automatic contrast and equalization.
Layer RandAugment(const RandAugmentOptions& options = {},
                  std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
