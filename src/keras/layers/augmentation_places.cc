// Augmentations that move, erase and mix parts of images.
#include <cmath>

#include "keras/layers/image_layer.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers/augmentation.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

// --- moving ------------------------------------------------------------------------------------------------

struct ShearSettings {
  Numbers x_factor = 0.0, y_factor = 0.0;
  RandomShearOptions options;
  void visit(auto& v) {
    v("x_factor", x_factor, kFinite);
    v("y_factor", y_factor, kFinite);
    v("interpolation", options.interpolation);
    v("fill_mode", options.fill_mode);
    v("fill_value", options.fill_value, kFinite);
    v("data_format", options.data_format);
    v("seed", options.seed, kAnything);
  }
};

class RandomShearLayer final : public TransformLayer<ShearSettings> {
 public:
  static constexpr const char* kClassName = "RandomShear";
  RandomShearLayer(const char* class_name, ShearSettings settings)
      : TransformLayer(class_name, std::move(settings)),
        across_(interval(settings_.x_factor, kClassName, "x_factor", 0, 1)),
        down_(interval(settings_.y_factor, kClassName, "y_factor", 0, 1)) {}

 protected:
  Move drawn(const Tensor& x, ImageSize) const override {
    const Tensor side = draw_side(x);
    const Tensor down = draw(x, down_.low, down_.high) * side,
                 across = draw(x, across_.low, across_.high) * side;
    const Tensor zero = zeros_like(down), one = ones_like(down);
    return {.a0 = one, .a1 = across, .a2 = zero, .b0 = down, .b1 = one, .b2 = zero};
  }

 private:
  Interval across_, down_;
};
const RegisterLayer<RandomShearLayer> random_shear;

// What TransformLayer asks for beside what Keras lets one say.
struct PerspectiveOptions : RandomPerspectiveOptions {
  FillMode fill_mode = FillMode::constant;
};
struct PerspectiveSettings {
  Numbers factor = 1.0;
  PerspectiveOptions options;
  void visit(auto& v) {
    v("factor", factor, kFinite);
    v("scale", options.scale, kShare);
    v("interpolation", options.interpolation);
    v("fill_value", options.fill_value, kFinite);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class RandomPerspectiveLayer final : public TransformLayer<PerspectiveSettings> {
 public:
  static constexpr const char* kClassName = "RandomPerspective";
  RandomPerspectiveLayer(const char* class_name, PerspectiveSettings settings)
      : TransformLayer(class_name, std::move(settings)),
        factor_(interval(settings_.factor, kClassName, "factor", 0, 1)) {
    settings_.factor = {factor_.low, factor_.high};  // as Keras writes it
  }

 protected:
  Move drawn(const Tensor& x, ImageSize size) const override {
    const Tensor moved = draw(x, 0, 1) < draw(x, factor_.low, factor_.high);
    const auto right = static_cast<double>(size.width - 1), bottom = static_cast<double>(size.height - 1);
    // A corner's distance from the first one grows or shrinks; that of images that stay is as it was.
    const auto corner = [&](double place) {
      const double half = settings_.options.scale / 2;
      return lockstep::where(moved, (draw(x, -half, half) + 1.0) * place, place);
    };
    const Tensor x0 = corner(0), y0 = corner(0), x1 = corner(right), y1 = corner(0);
    const Tensor x2 = corner(0), y2 = corner(bottom), x3 = corner(right), y3 = corner(bottom);
    // From the unit square to where the corners are now, ...
    const Tensor dx1 = x1 - x3, dx2 = x2 - x3, sx = x0 - x1 + x3 - x2;
    const Tensor dy1 = y1 - y3, dy2 = y2 - y3, sy = y0 - y1 + y3 - y2;
    const Tensor whole = dx1 * dy2 - dx2 * dy1;
    const Tensor g = (sx * dy2 - dx2 * sy) / whole, h = (dx1 * sy - sx * dy1) / whole;
    const Tensor a = x1 - x0 + g * x1, b = x2 - x0 + h * x2;
    const Tensor d = y1 - y0 + g * y1, e = y2 - y0 + h * y2;
    // ... and back: the adjoint of that matrix, with the sides of the image.
    const Tensor last = a * e - b * d;
    const Tensor wide = right / last, high = bottom / last;
    return {.a0 = (e - y0 * h) * wide,
            .a1 = (x0 * h - b) * wide,
            .a2 = (b * y0 - x0 * e) * wide,
            .b0 = (y0 * g - d) * high,
            .b1 = (a - x0 * g) * high,
            .b2 = (x0 * d - a * y0) * high,
            .c0 = (d * h - e * g) / last,
            .c1 = (b * g - a * h) / last};
  }

 private:
  Interval factor_;
};
const RegisterLayer<RandomPerspectiveLayer> random_perspective;

// --- rectangles --------------------------------------------------------------------------------------------

// Which pixels (batch, height, width, 1) lie in a rectangle of these parts of height and width, anywhere in
// each image.
struct Rectangles {
  Tensor inside;
  Tensor area;  // of each image's, as a part of it
};
template <class Draw>
Rectangles rectangles(const Tensor& images, DataFormat format, const Tensor& high, const Tensor& wide,
                      Draw&& draw) {
  const ImageSize size = size_of(images, format);
  const bool first = format.kind() == DataFormat::channels_first;
  const auto between = [&](int64_t length, const Tensor& part, const Shape& places) {
    const Tensor extent = part * static_cast<double>(length);
    const Tensor from = reshape(draw() * (static_cast<double>(length) - extent), {-1, 1, 1, 1});
    const Tensor place = reshape(range(static_cast<double>(length), DType::float32), places);
    return logical_and(place >= from, place < from + reshape(extent, {-1, 1, 1, 1}));
  };
  const Tensor columns = between(size.width, wide, first ? Shape{1, 1, 1, -1} : Shape{1, 1, -1, 1});
  const Tensor rows = between(size.height, high, first ? Shape{1, 1, -1, 1} : Shape{1, -1, 1, 1});
  return {.inside = logical_and(rows, columns), .area = high * wide};
}

struct ErasingSettings {
  Numbers factor = 1.0;
  RandomErasingOptions options;
  void visit(auto& v) {
    v("factor", factor, kFinite);
    v("scale", options.scale, kFinite);
    v("fill_value", options.fill_value, kFinite);
    v("value_range", options.value_range, kFinite);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class RandomErasingLayer final : public RandomImageLayer<ErasingSettings> {
 public:
  static constexpr const char* kClassName = "RandomErasing";
  RandomErasingLayer(const char* class_name, ErasingSettings settings)
      : RandomImageLayer(class_name, std::move(settings)),
        factor_(interval(settings_.factor, kClassName, "factor", 0, 1)),
        scale_(interval(settings_.options.scale, kClassName, "scale", 0, 1)),
        range_(value_range(settings_.options.value_range, kClassName)) {
    const Numbers& fill = settings_.options.fill_value;
    require(!fill.defined() || fill.single() || fill.values().size() == 3, ErrorCode::invalid_argument,
            std::source_location::current(),
            "RandomErasing: fill_value is a number or one for each of three channels, received ",
            fill.values().size(), " numbers");
    settings_.factor = {factor_.low, factor_.high};  // as Keras writes them
    settings_.options.scale = {scale_.low, scale_.high};
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor wide = sqrt(draw(x, scale_.low, scale_.high)), high = sqrt(draw(x, scale_.low, scale_.high));
    const Tensor inside = rectangles(x, format(), high, wide, [&] { return draw(x, 0, 1); }).inside;
    const Tensor chosen = reshape(draw(x, 0, 1) < draw(x, factor_.low, factor_.high), {-1, 1, 1, 1});
    return lockstep::where(logical_and(chosen, inside), within(filling(x), range_), x);
  }

 private:
  Tensor filling(const Tensor& x) const {
    const Numbers& fill = settings_.options.fill_value;
    if (!fill.defined())
      return cast(
          random::normal(x.shape(), {.stddev = range_.high, .per_example = true, .generator = generator()}),
          x.dtype());
    if (fill.single()) return full({1, 1, 1, 1}, fill.values()[0], x.dtype());
    TensorList each;
    for (const double value : fill.values()) each.push_back(full({}, value, x.dtype()));
    const bool first = format().kind() == DataFormat::channels_first;
    return reshape(stack(each), first ? Shape{1, -1, 1, 1} : Shape{1, 1, 1, -1});
  }
  Interval factor_, scale_, range_;
};
const RegisterLayer<RandomErasingLayer> random_erasing;

// --- mixing ------------------------------------------------------------------------------------------------

// The logarithm of numbers of the gamma distribution, one for each of `count` examples. Marsaglia and Tsang
// (2000): a normal number, pushed out of shape, is taken with a probability above 0.95; sixteen are drawn at
// once and the first that is taken counts. They are of alpha + 1, brought to alpha by a power of a uniform
// number, whose logarithm does not underflow.
Tensor log_gamma_numbers(int64_t count, const Tensor& alpha, const random::Generator* generator) {
  constexpr int64_t kTries = 16;
  const Tensor d = alpha + 2.0 / 3.0, c = 1.0 / sqrt(d * 9.0);
  const Tensor x = random::normal({count, kTries}, {.per_example = true, .generator = generator});
  const Tensor unit = random::uniform({count, kTries + 1}, {.per_example = true, .generator = generator});
  const Tensor u = maximum(slice(unit, {0, 0}, {-1, kTries}), 1e-30);
  const Tensor power = maximum(slice(unit, {0, kTries}, {-1, 1}), 1e-30);
  const Tensor side = x * c + 1.0;
  const Tensor v = maximum(side * side * side, 1e-30);
  const Tensor taken = logical_and(side > 0.0, log(u) < square(x) * 0.5 + d - d * v + d * log(v));
  const Tensor first = expand_dims(argmax(cast(taken, DType::int32), 1), 1);
  return squeeze(log(take_along_axis(v, first, 1) * d) + log(power) / alpha, {1});
}

Tensor beta_numbers(int64_t count, const Tensor& alpha, const random::Generator* generator) {
  return sigmoid(log_gamma_numbers(count, alpha, generator) - log_gamma_numbers(count, alpha, generator));
}

// Another image of the batch in the place of each.
Tensor others(const Tensor& images, const random::Generator* generator) {
  return gather(images, random::permutation(images.shape()[0], {.generator = generator}));
}

struct MixUpSettings {
  double alpha = 0.2;
  RandomImageOptions options;
  void visit(auto& v) {
    v("alpha", alpha, kPositive);
    v("data_format", options.data_format);
    v("seed", options.seed, kAnything);
  }
};

class MixUpLayer final : public RandomImageLayer<MixUpSettings> {
 public:
  static constexpr const char* kClassName = "MixUp";
  MixUpLayer(const char* class_name, MixUpSettings settings)
      : RandomImageLayer(class_name, std::move(settings)) {}

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor weight =
        per_image(beta_numbers(x.shape()[0], full({}, settings_.alpha), generator()), x.dtype());
    return weight * x + (1.0 - weight) * others(x, generator());
  }
};
const RegisterLayer<MixUpLayer> mix_up;

struct CutMixSettings {
  Numbers factor = 1.0;
  RandomImageOptions options;
  void visit(auto& v) {
    v("factor", factor, kFinite);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class CutMixLayer final : public RandomImageLayer<CutMixSettings> {
 public:
  static constexpr const char* kClassName = "CutMix";
  CutMixLayer(const char* class_name, CutMixSettings settings)
      : RandomImageLayer(class_name, std::move(settings)),
        factor_(interval(settings_.factor, kClassName, "factor", 0, 1)) {
    settings_.factor = {factor_.low, factor_.high};  // as Keras writes it
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor alpha =
        random::uniform({}, {.generator = generator()}) * (factor_.high - factor_.low) + (factor_.low + 1e-6);
    const Tensor side = sqrt(1.0 - beta_numbers(x.shape()[0], alpha, generator()));
    const Tensor inside = rectangles(x, format(), side, side, [&] { return draw(x, 0, 1); }).inside;
    return lockstep::where(inside, others(x, generator()), x);
  }

 private:
  Interval factor_;
};
const RegisterLayer<CutMixLayer> cut_mix;

// --- all of them -------------------------------------------------------------------------------------------

struct RandAugmentSettings {
  RandAugmentOptions options;
  void visit(auto& v) {
    v("value_range", options.value_range, kFinite);
    v("num_ops", options.num_ops, kNotNegative);
    v("factor", options.factor, kFinite);
    v("interpolation", options.interpolation);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class RandAugmentLayer final : public RandomImageLayer<RandAugmentSettings> {
 public:
  static constexpr const char* kClassName = "RandAugment";
  RandAugmentLayer(const char* class_name, RandAugmentSettings settings)
      : RandomImageLayer(class_name, std::move(settings)) {
    RandAugmentOptions& o = settings_.options;
    const Interval strength = interval(o.factor, kClassName, "factor", 0, 1);
    o.factor = {strength.low, strength.high};  // as Keras writes it
    const RandomTransformOptions moves{
        .interpolation = o.interpolation, .seed = o.seed, .data_format = o.data_format, .dtype = policy()};
    const RandomColorOptions colors{
        .value_range = o.value_range, .seed = o.seed, .data_format = o.data_format, .dtype = policy()};
    track(RandomShear(
        o.factor, o.factor,
        {.interpolation = o.interpolation, .data_format = o.data_format, .seed = o.seed, .dtype = policy()}));
    track(RandomTranslation(o.factor, o.factor, moves));
    track(RandomRotation(o.factor, moves));
    track(RandomBrightness(o.factor, colors));
    track(RandomColorDegeneration(o.factor, colors));
    track(RandomContrast(o.factor, colors));
    track(RandomSharpness(o.factor, colors));
    track(Solarization({.addition_factor = o.factor,
                        .threshold_factor = o.factor,
                        .value_range = o.value_range,
                        .seed = o.seed,
                        .data_format = o.data_format,
                        .dtype = policy()}));
    track(RandomPosterization(std::max(1.0, std::floor(8 * strength.high)), colors));
    track(AutoContrast({.value_range = o.value_range, .data_format = o.data_format, .dtype = policy()}));
    track(Equalization({.value_range = o.value_range, .data_format = o.data_format, .dtype = policy()}));
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    Tensor value = x;
    const auto kinds = static_cast<double>(layers().size());
    for (int64_t op = 0; op < settings_.options.num_ops; ++op) {
      const Tensor choice =
          random::uniform({}, {.maxval = kinds, .dtype = DType::int32, .generator = generator()});
      Tensor changed = value;
      for (size_t i = 0; i < layers().size(); ++i)
        changed = lockstep::where(equal(choice, static_cast<double>(i)),
                                  layers()[i](value, {.training = true}), changed);
      value = changed;
    }
    return value;
  }
};
const RegisterLayer<RandAugmentLayer> rand_augment;

}  // namespace

Layer RandomShear(const Numbers& x_factor, const Numbers& y_factor, const RandomShearOptions& options,
                  std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomShearLayer>({x_factor, y_factor, options});
}
Layer RandomPerspective(const Numbers& factor, const RandomPerspectiveOptions& options,
                        std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomPerspectiveLayer>({factor, PerspectiveOptions{options}});
}
Layer RandomErasing(const Numbers& factor, const RandomErasingOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomErasingLayer>({factor, options});
}
Layer MixUp(double alpha, const RandomImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<MixUpLayer>({alpha, options});
}
Layer CutMix(const Numbers& factor, const RandomImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<CutMixLayer>({factor, options});
}
Layer RandAugment(const RandAugmentOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandAugmentLayer>({options});
}

}  // namespace lockstep::keras::layers
