#include "lockstep/keras/layers/image.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keras/layers/image_layer.h"
#include "lockstep/base/call_site.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

// --- sizes and places --------------------------------------------------------------------------------------

Tensor part(const Tensor& images, DataFormat format, ImageSize from, ImageSize size) {
  const int axis = height_axis(format);
  Dims begin = Dims::filled(4, 0), sizes = Dims::filled(4, -1);
  begin[axis] = from.height;
  begin[axis + 1] = from.width;
  sizes[axis] = size.height;
  sizes[axis + 1] = size.width;
  return slice(images, begin, sizes);
}

// How high an image of this width is, or how wide one of this height, in the proportions of `target`.
int64_t matching_height(int64_t width, ImageSize target) { return width * target.height / target.width; }
int64_t matching_width(int64_t height, ImageSize target) { return height * target.width / target.height; }

// The largest part in the middle with the proportions of `target`.
Tensor cropped_to_proportions(const Tensor& images, DataFormat format, ImageSize target) {
  const ImageSize size = size_of(images, format);
  const ImageSize kept = {std::clamp(matching_height(size.width, target), int64_t{1}, size.height),
                          std::clamp(matching_width(size.height, target), int64_t{1}, size.width)};
  return part(images, format, {(size.height - kept.height) / 2, (size.width - kept.width) / 2}, kept);
}

Tensor padded_to_proportions(const Tensor& images, DataFormat format, ImageSize target, double fill_value) {
  const ImageSize size = size_of(images, format);
  const int axis = height_axis(format);
  Dims margin = Dims::filled(4, 0);
  margin[axis] = (std::max(size.height, matching_height(size.width, target)) - size.height) / 2;
  margin[axis + 1] = (std::max(size.width, matching_width(size.height, target)) - size.width) / 2;
  return pad(images, margin, margin, {.constant_value = fill_value});
}

Tensor cropped_and_resized(const Tensor& images, DataFormat format, ImageSize target) {
  return image::resize(cropped_to_proportions(images, format, target), {target.height, target.width},
                       {.data_format = format});
}

// --- sizes -------------------------------------------------------------------------------------------------

struct ResizingSettings {
  int64_t height = 0, width = 0;
  ResizingOptions options;
  std::string fill_mode = "constant";
  void visit(auto& v) {
    v("height", height, kPositive);
    v("width", width, kPositive);
    v("interpolation", options.interpolation);
    v("crop_to_aspect_ratio", options.crop_to_aspect_ratio);
    v("pad_to_aspect_ratio", options.pad_to_aspect_ratio);
    v("fill_mode", fill_mode);
    v("fill_value", options.fill_value, kFinite);
    v("antialias", options.antialias);
    v("data_format", options.data_format);
  }
};

class ResizingLayer final : public ImageLayer<ResizingSettings> {
 public:
  static constexpr const char* kClassName = "Resizing";
  ResizingLayer(const char* class_name, ResizingSettings settings)
      : ImageLayer(class_name, std::move(settings)) {
    const auto here = std::source_location::current();
    require(!settings_.options.crop_to_aspect_ratio || !settings_.options.pad_to_aspect_ratio,
            ErrorCode::invalid_argument, here,
            "Resizing: one of crop_to_aspect_ratio and pad_to_aspect_ratio at most");
    require(settings_.fill_mode == "constant", ErrorCode::unsupported, here,
            "Resizing: fill_mode must be \"constant\", received \"", settings_.fill_mode, "\"");
  }

 protected:
  bool keeps_integers() const override { return true; }
  Tensor images(const Tensor& x, bool) const override {
    const ImageSize target = {settings_.height, settings_.width};
    Tensor y = x;
    if (settings_.options.crop_to_aspect_ratio) y = cropped_to_proportions(x, format(), target);
    if (settings_.options.pad_to_aspect_ratio)
      y = padded_to_proportions(x, format(), target, settings_.options.fill_value);
    const Interpolation interpolation = settings_.options.interpolation;
    const auto resized = [&](const Tensor& t) {
      return image::resize(t, {target.height, target.width},
                           {.interpolation = interpolation,
                            .antialias = settings_.options.antialias,
                            .data_format = format()});
    };
    if (is_floating(x.dtype()) || interpolation.kind() == Interpolation::nearest) return resized(y);
    Tensor rounded = round(resized(cast(y, DType::float32)));
    // Means lie between the pixels; bicubic and Lanczos interpolation go beyond them at edges.
    if (x.dtype() == DType::uint8) rounded = clip_by_value(rounded, 0.0, 255.0);
    return cast(rounded, x.dtype());
  }
};
const RegisterLayer<ResizingLayer> resizing;

struct CenterCropSettings {
  int64_t height = 0, width = 0;
  ImageOptions options;
  void visit(auto& v) {
    v("height", height, kPositive);
    v("width", width, kPositive);
    v("data_format", options.data_format);
  }
};

class CenterCropLayer final : public ImageLayer<CenterCropSettings> {
 public:
  static constexpr const char* kClassName = "CenterCrop";
  CenterCropLayer(const char* class_name, CenterCropSettings settings)
      : ImageLayer(class_name, std::move(settings)) {}

 protected:
  Tensor images(const Tensor& x, bool) const override {
    const ImageSize target = {settings_.height, settings_.width}, size = size_of(x, format());
    if (size.height < target.height || size.width < target.width)
      return cropped_and_resized(x, format(), target);
    return part(x, format(), {(size.height - target.height) / 2, (size.width - target.width) / 2}, target);
  }
};
const RegisterLayer<CenterCropLayer> center_crop;

struct RandomCropSettings {
  int64_t height = 0, width = 0;
  RandomImageOptions options;
  void visit(auto& v) {
    v("height", height, kPositive);
    v("width", width, kPositive);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class RandomCropLayer final : public RandomImageLayer<RandomCropSettings> {
 public:
  static constexpr const char* kClassName = "RandomCrop";
  RandomCropLayer(const char* class_name, RandomCropSettings settings)
      : RandomImageLayer(class_name, std::move(settings)) {}

 protected:
  Tensor images(const Tensor& x, bool training) const override {
    const ImageSize target = {settings_.height, settings_.width}, size = size_of(x, format());
    const bool fits = size.height >= target.height && size.width >= target.width;
    return training && fits ? disturbed(x) : cropped_and_resized(x, format(), target);
  }
  Tensor disturbed(const Tensor& x) const override {
    const int axis = height_axis(format());
    return taken(taken(x, axis, settings_.height), axis + 1, settings_.width);
  }

 private:
  // `count` neighbours along `axis`, from any place.
  Tensor taken(const Tensor& x, int axis, int64_t count) const {
    const int64_t places = x.shape()[axis] - count + 1;
    // Rounding to float32 may reach the upper bound.
    const Tensor start =
        minimum(floor(draw(x, 0, static_cast<double>(places))), static_cast<double>(places - 1));
    const Tensor indices = expand_dims(cast(start, DType::int32), 1) + range(static_cast<double>(count));
    return gather(x, indices, axis, 1);
  }
};
const RegisterLayer<RandomCropLayer> random_crop;

struct RandomFlipSettings {
  std::string mode = "horizontal_and_vertical";
  RandomImageOptions options;
  void visit(auto& v) {
    v("mode", mode);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class RandomFlipLayer final : public RandomImageLayer<RandomFlipSettings> {
 public:
  static constexpr const char* kClassName = "RandomFlip";
  RandomFlipLayer(const char* class_name, RandomFlipSettings settings)
      : RandomImageLayer(class_name, std::move(settings)),
        horizontal_(settings_.mode != "vertical"),
        vertical_(settings_.mode != "horizontal") {
    require(settings_.mode == "horizontal" || settings_.mode == "vertical" ||
                settings_.mode == "horizontal_and_vertical",
            ErrorCode::invalid_argument, std::source_location::current(),
            "RandomFlip: mode is \"horizontal\", \"vertical\" or \"horizontal_and_vertical\", received \"",
            settings_.mode, "\"");
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const int axis = height_axis(format());
    const Tensor y = vertical_ ? perhaps_flipped(x, axis) : x;
    return horizontal_ ? perhaps_flipped(y, axis + 1) : y;
  }

 private:
  Tensor perhaps_flipped(const Tensor& x, int axis) const {
    const Tensor chance = reshape(draw(x, 0, 1), {-1, 1, 1, 1});
    return lockstep::where(chance < 0.5, flip(x, {axis}), x);
  }
  bool horizontal_, vertical_;
};
const RegisterLayer<RandomFlipLayer> random_flip;

// --- moving ------------------------------------------------------------------------------------------------

struct RandomRotationSettings {
  Numbers factor = 0.0;
  RandomTransformOptions options;
  void visit(auto& v) {
    v("factor", factor, kFinite);
    visit_transform(v, options);
  }
};

class RandomRotationLayer final : public TransformLayer<RandomRotationSettings> {
 public:
  static constexpr const char* kClassName = "RandomRotation";
  RandomRotationLayer(const char* class_name, RandomRotationSettings settings)
      : TransformLayer(class_name, std::move(settings)),
        turns_(interval(settings_.factor, kClassName, "factor", -1, 1)) {
    settings_.factor = {turns_.low, turns_.high};  // as Keras writes it
  }

 protected:
  Move drawn(const Tensor& x, ImageSize size) const override {
    const Tensor angle = draw(x, turns_.low, turns_.high) * (2 * std::numbers::pi);
    const Tensor c = cos(angle), s = sin(angle);
    const double across = static_cast<double>(size.width - 1) / 2;
    const double down = static_cast<double>(size.height - 1) / 2;
    // The middle stays where it is.
    return {.a0 = c,
            .a1 = -s,
            .a2 = across - c * across + s * down,
            .b0 = s,
            .b1 = c,
            .b2 = down - s * across - c * down};
  }

 private:
  Interval turns_;
};
const RegisterLayer<RandomRotationLayer> random_rotation;

struct HeightAndWidthSettings {
  Numbers height_factor = 0.0, width_factor = {};
  RandomTransformOptions options;
  void visit(auto& v) {
    v("height_factor", height_factor, kFinite);
    v("width_factor", width_factor, kFinite);
    visit_transform(v, options);
  }
};

class RandomTranslationLayer final : public TransformLayer<HeightAndWidthSettings> {
 public:
  static constexpr const char* kClassName = "RandomTranslation";
  RandomTranslationLayer(const char* class_name, HeightAndWidthSettings settings)
      : TransformLayer(class_name, std::move(settings)),
        down_(interval(settings_.height_factor, kClassName, "height_factor", -1, 1)),
        across_(interval(settings_.width_factor, kClassName, "width_factor", -1, 1)) {}

 protected:
  Move drawn(const Tensor& x, ImageSize size) const override {
    const Tensor down = draw(x, down_.low, down_.high) * static_cast<double>(size.height);
    const Tensor across = draw(x, across_.low, across_.high) * static_cast<double>(size.width);
    const Tensor zero = zeros_like(down), one = ones_like(down);
    return {.a0 = one, .a1 = zero, .a2 = -across, .b0 = zero, .b1 = one, .b2 = -down};
  }

 private:
  Interval down_, across_;
};
const RegisterLayer<RandomTranslationLayer> random_translation;

class RandomZoomLayer final : public TransformLayer<HeightAndWidthSettings> {
 public:
  static constexpr const char* kClassName = "RandomZoom";
  RandomZoomLayer(const char* class_name, HeightAndWidthSettings settings)
      : TransformLayer(class_name, std::move(settings)),
        down_(interval(settings_.height_factor, kClassName, "height_factor", kLeast, 1)),
        across_(settings_.width_factor.defined()
                    ? interval(settings_.width_factor, kClassName, "width_factor", kLeast, 1)
                    : down_) {}

 protected:
  Move drawn(const Tensor& x, ImageSize size) const override {
    const Tensor down = draw(x, 1 + down_.low, 1 + down_.high);
    const Tensor across =
        settings_.width_factor.defined() ? draw(x, 1 + across_.low, 1 + across_.high) : down;
    const Tensor zero = zeros_like(down);
    return {.a0 = across,
            .a1 = zero,
            .a2 = (1.0 - across) * (static_cast<double>(size.width - 1) / 2),
            .b0 = zero,
            .b1 = down,
            .b2 = (1.0 - down) * (static_cast<double>(size.height - 1) / 2)};
  }

 private:
  static constexpr double kLeast = -0.999999;  // at -1 one pixel would be the whole image
  Interval down_, across_;
};
const RegisterLayer<RandomZoomLayer> random_zoom;

// --- colours -----------------------------------------------------------------------------------------------

class RandomContrastLayer final : public ColorLayer {
 public:
  static constexpr const char* kClassName = "RandomContrast";
  RandomContrastLayer(const char* class_name, ColorSettings settings)
      : ColorLayer(class_name, std::move(settings)) {
    const std::vector<double> given = settings_.factor.values();
    require(settings_.factor.single() || given.size() == 2, ErrorCode::invalid_argument,
            std::source_location::current(),
            "RandomContrast: factor is a number or {lower, upper}, received ", given.size(), " numbers");
    factor_ = {given[0], given.back()};
    for (const double f : given)
      require(f >= 0 && f <= 1, ErrorCode::invalid_argument, std::source_location::current(),
              "RandomContrast: factor must lie between 0 and 1, received ", f);
    settings_.factor = {factor_.low, factor_.high};  // as Keras writes it
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const int axis = height_axis(format());
    const Tensor mean = reduce_mean(x, {.axis = {axis, axis + 1}, .keepdims = true});
    const Tensor factor = per_image(draw(x, 1 - factor_.low, 1 + factor_.high), x.dtype());
    return in_range((x - mean) * factor + mean);
  }

 private:
  Interval factor_;
};
const RegisterLayer<RandomContrastLayer> random_contrast;

class RandomBrightnessLayer final : public ColorLayer {
 public:
  static constexpr const char* kClassName = "RandomBrightness";
  RandomBrightnessLayer(const char* class_name, ColorSettings settings)
      : ColorLayer(class_name, std::move(settings)),
        factor_(interval(settings_.factor, kClassName, "factor", -1, 1)) {
    settings_.factor = {factor_.low, factor_.high};  // as Keras writes it
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor delta = draw(x, factor_.low, factor_.high) * (range_.high - range_.low);
    return in_range(x + per_image(delta, x.dtype()));
  }

 private:
  Interval factor_;
};
const RegisterLayer<RandomBrightnessLayer> random_brightness;

}  // namespace

Layer Resizing(int64_t height, int64_t width, const ResizingOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<ResizingLayer>({height, width, options});
}
Layer CenterCrop(int64_t height, int64_t width, const ImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<CenterCropLayer>({height, width, options});
}
Layer RandomCrop(int64_t height, int64_t width, const RandomImageOptions& options,
                 std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomCropLayer>({height, width, options});
}
Layer RandomFlip(const std::string& mode, const RandomImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomFlipLayer>({mode, options});
}
Layer RandomRotation(const Numbers& factor, const RandomTransformOptions& options,
                     std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomRotationLayer>({factor, options});
}
Layer RandomTranslation(const Numbers& height_factor, const Numbers& width_factor,
                        const RandomTransformOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomTranslationLayer>({height_factor, width_factor, options});
}
Layer RandomZoom(const Numbers& height_factor, const Numbers& width_factor,
                 const RandomTransformOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomZoomLayer>({height_factor, width_factor, options});
}
Layer RandomContrast(const Numbers& factor, const RandomColorOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomContrastLayer>({factor, options});
}
Layer RandomBrightness(const Numbers& factor, const RandomColorOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomBrightnessLayer>({factor, options});
}

}  // namespace lockstep::keras::layers
