// What layers of images share: batches and single images, numbers drawn for each image, factors, moves and
// colours.
#pragma once

#include <algorithm>
#include <cmath>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "keras/layers/noise.h"
#include "keras/layers/registry.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/image.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {

// --- sizes and places --------------------------------------------------------------------------------------

inline int height_axis(DataFormat format) { return format.kind() == DataFormat::channels_first ? 2 : 1; }

struct ImageSize {
  int64_t height = 0, width = 0;
};
inline ImageSize size_of(const Tensor& images, DataFormat format) {
  const int axis = height_axis(format);
  return {images.shape()[axis], images.shape()[axis + 1]};
}

// --- what all share ----------------------------------------------------------------------------------------

template <class Settings>
class ImageLayer : public ConfiguredLayer<Settings> {
 public:
  using ConfiguredLayer<Settings>::ConfiguredLayer;

  std::optional<bool> training_by_default() const final { return true; }

  Tensor call(const Tensor& input, const CallContext& context) final {
    require(input.rank() == 3 || input.rank() == 4, ErrorCode::shape_mismatch,
            std::source_location::current(), this->class_name(),
            " takes images of rank 4, or one image of rank 3, received shape ", input.shape());
    const Tensor x = keeps_integers() ? input : cast(input, this->compute_dtype());
    if (x.rank() == 4) return images(x, context.training);
    return squeeze(images(expand_dims(x, 0), context.training), {0});
  }

 protected:
  virtual Tensor images(const Tensor& x, bool training) const = 0;
  virtual bool keeps_integers() const { return false; }

  DataFormat format() const { return this->settings_.options.data_format; }
};

template <class Settings>
class RandomImageLayer : public ImageLayer<Settings> {
 public:
  RandomImageLayer(const char* class_name, Settings settings)
      : ImageLayer<Settings>(class_name, std::move(settings)), source_(*this, this->settings_.options.seed) {}

 protected:
  Tensor images(const Tensor& x, bool training) const override { return training ? disturbed(x) : x; }
  virtual Tensor disturbed(const Tensor& x) const = 0;

  // A number for each image.
  Tensor draw(const Tensor& images, double low, double high) const {
    const Tensor unit =
        random::uniform({images.shape()[0]}, {.per_example = true, .generator = source_.generator()});
    return unit * (high - low) + low;
  }
  // 1 or -1 for each image.
  Tensor draw_side(const Tensor& images) const {
    return 1.0 - cast(draw(images, 0, 1) > 0.5, DType::float32) * 2.0;
  }
  const random::Generator* generator() const { return source_.generator(); }

 private:
  NoiseSource source_;
};

// --- moving ------------------------------------------------------------------------------------------------

struct Interval {
  double low = 0, high = 0;
};

// f is {-f, f}, or {least, f} where nothing is below 0; all must lie in [least, most].
inline Interval interval(const Numbers& factor, const char* layer, const char* setting, double least,
                         double most) {
  const std::vector<double>& values = factor.values();
  const bool one = factor.single();
  require(one || values.size() == 2, ErrorCode::invalid_argument, std::source_location::current(), layer,
          ": ", setting, " is a number or {lowest, highest}, received ", values.size(), " numbers");
  const Interval found =
      one ? Interval{least < 0 ? -std::abs(values[0]) : std::min(least, values[0]), std::abs(values[0])}
          : Interval{std::min(values[0], values[1]), std::max(values[0], values[1])};
  require(found.low >= least && found.high <= most, ErrorCode::invalid_argument,
          std::source_location::current(), layer, ": ", setting, " must lie between ", least, " and ", most,
          ", received ", found.low, " to ", found.high);
  return found;
}

void visit_transform(auto& v, auto& o) {
  v("fill_mode", o.fill_mode);
  v("interpolation", o.interpolation);
  v("fill_value", o.fill_value, kFinite);
  v("seed", o.seed, kAnything);
  v("data_format", o.data_format);
}

// Where column x and row y of the result come from: (a0 x + a1 y + a2, b0 x + b1 y + b2) / (c0 x + c1 y + 1),
// for each image. Without c0 and c1 lines that are parallel stay so.
struct Move {
  Tensor a0, a1, a2, b0, b1, b2;
  Tensor c0 = {}, c1 = {};
};

template <class Settings>
class TransformLayer : public RandomImageLayer<Settings> {
 public:
  using RandomImageLayer<Settings>::RandomImageLayer;

 protected:
  virtual Move drawn(const Tensor& x, ImageSize size) const = 0;

  Tensor disturbed(const Tensor& x) const final {
    const auto& o = this->settings_.options;
    // 16-bit floats do not count the columns of a large image.
    const DType dtype = x.dtype() == DType::float64 ? DType::float64 : DType::float32;
    const Move t = drawn(x, size_of(x, o.data_format));
    const Tensor zero = zeros_like(t.a0);
    const Tensor transform =
        cast(stack(TensorList{t.a0, t.a1, t.a2, t.b0, t.b1, t.b2, t.c0.defined() ? t.c0 : zero,
                              t.c1.defined() ? t.c1 : zero},
                   1),
             dtype);
    return cast(image::affine_transform(cast(x, dtype), transform,
                                        {.interpolation = o.interpolation,
                                         .fill_mode = o.fill_mode,
                                         .fill_value = o.fill_value,
                                         .data_format = o.data_format}),
                x.dtype());
  }
};

// --- colours -----------------------------------------------------------------------------------------------

struct ColorSettings {
  Numbers factor = 0.0;
  RandomColorOptions options;
  void visit(auto& v) {
    v("factor", factor, kFinite);
    v("value_range", options.value_range, kFinite);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

inline Interval value_range(const Numbers& given, const char* layer) {
  const std::vector<double>& range = given.values();
  require(range.size() == 2 && range[0] < range[1], ErrorCode::invalid_argument,
          std::source_location::current(), layer, ": value_range is {lowest, highest}, received ",
          range.size(), " numbers");
  return {range[0], range[1]};
}
inline Tensor within(const Tensor& x, Interval range) { return minimum(maximum(x, range.low), range.high); }
inline Tensor per_image(const Tensor& numbers, DType dtype) {
  return cast(reshape(numbers, {-1, 1, 1, 1}), dtype);
}

class ColorLayer : public RandomImageLayer<ColorSettings> {
 public:
  ColorLayer(const char* class_name, ColorSettings settings)
      : RandomImageLayer(class_name, std::move(settings)),
        range_(value_range(settings_.options.value_range, class_name)) {}

 protected:
  Tensor in_range(const Tensor& x) const { return within(x, range_); }
  Interval range_;
};

}  // namespace lockstep::keras::layers
