// Augmentations that change what pixels hold.
#include <cmath>

#include "keras/layers/image_layer.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers/augmentation.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

int channel_axis(DataFormat format) { return format.kind() == DataFormat::channels_first ? 1 : 3; }

constexpr Interval kBytes{0, 255};
constexpr Interval kUnit{0, 1};

Tensor rescaled(const Tensor& x, Interval from, Interval to) {
  if (from.low == to.low && from.high == to.high) return x;
  return (x - from.low) * ((to.high - to.low) / (from.high - from.low)) + to.low;
}

// Red, green and blue of (batch, height, width) each.
TensorList colors_of(const Tensor& images, DataFormat format, const std::string& layer) {
  const int axis = channel_axis(format);
  require(images.shape()[axis] == 3, ErrorCode::shape_mismatch, std::source_location::current(), layer,
          " takes images of three channels, received shape ", images.shape());
  return unstack(images, axis);
}

// What the eye sees of red, green and blue together, with the three channels of the image.
Tensor without_colors(const Tensor& images, DataFormat format, const std::string& layer) {
  const TensorList c = colors_of(images, format, layer);
  const Tensor gray = c[0] * 0.2989 + c[1] * 0.5870 + c[2] * 0.1140;
  return stack(TensorList{gray, gray, gray}, channel_axis(format));
}

// Hue from 0 to 1, saturation from 0 to 1, and the brightest of the colours.
struct Hsv {
  Tensor hue, saturation, value;
};
Hsv hsv_of(const TensorList& rgb) {
  const Tensor& r = rgb[0];
  const Tensor& g = rgb[1];
  const Tensor& b = rgb[2];
  const Tensor value = maximum(maximum(r, g), b);
  const Tensor spread = value - minimum(minimum(r, g), b);
  const Tensor sixth =
      lockstep::where(spread > 0.0, 1.0 / (lockstep::where(spread > 0.0, spread, 1.0) * 6.0), 0.0);
  const Tensor hue = lockstep::where(
      equal(r, value), sixth * (g - b),
      lockstep::where(equal(g, value), sixth * (b - r) + 2.0 / 6.0, sixth * (r - g) + 4.0 / 6.0));
  return {.hue = lockstep::where(spread > 0.0, lockstep::where(hue < 0.0, hue + 1.0, hue), 0.0),
          .saturation = lockstep::where(value > 0.0, spread / lockstep::where(value > 0.0, value, 1.0), 0.0),
          .value = value};
}
Tensor rgb_of(const Hsv& hsv, int axis) {
  const Tensor place = hsv.hue * 6.0;
  const auto channel = [&](const Tensor& strength) {
    return hsv.value * (1.0 - hsv.saturation + hsv.saturation * within(strength, kUnit));
  };
  return stack(TensorList{channel(abs(place - 3.0) - 1.0), channel(2.0 - abs(place - 2.0)),
                          channel(2.0 - abs(place - 4.0))},
               axis);
}

// --- contrast ----------------------------------------------------------------------------------------------

struct AutoContrastSettings {
  ContrastOptions options;
  void visit(auto& v) {
    v("value_range", options.value_range, kFinite);
    v("data_format", options.data_format);
  }
};

class AutoContrastLayer final : public ImageLayer<AutoContrastSettings> {
 public:
  static constexpr const char* kClassName = "AutoContrast";
  AutoContrastLayer(const char* class_name, AutoContrastSettings settings)
      : ImageLayer(class_name, std::move(settings)),
        range_(value_range(settings_.options.value_range, class_name)) {}

 protected:
  Tensor images(const Tensor& x, bool) const override {
    const int axis = height_axis(format());
    const ReduceOptions over{.axis = {axis, axis + 1}, .keepdims = true};
    const Tensor low = reduce_min(x, over), spread = reduce_max(x, over) - low;
    const Tensor part = (x - low) / lockstep::where(spread > 0.0, spread, 1.0);
    // A channel of one value stays as it is.
    return lockstep::where(spread > 0.0, rescaled(part, kUnit, range_), x);
  }

 private:
  Interval range_;
};
const RegisterLayer<AutoContrastLayer> auto_contrast;

struct EqualizationSettings {
  EqualizationOptions options;
  void visit(auto& v) {
    v("value_range", options.value_range, kFinite);
    v("bins", options.bins, at_least(2));
    v("data_format", options.data_format);
  }
};

class EqualizationLayer final : public ImageLayer<EqualizationSettings> {
 public:
  static constexpr const char* kClassName = "Equalization";
  EqualizationLayer(const char* class_name, EqualizationSettings settings)
      : ImageLayer(class_name, std::move(settings)),
        range_(value_range(settings_.options.value_range, class_name)) {}

 protected:
  Tensor images(const Tensor& x, bool training) const override {
    if (!training) return x;
    const int axis = channel_axis(format());
    TensorList channels;
    for (const Tensor& channel : unstack(x, axis)) channels.push_back(equalized(channel));
    return stack(channels, axis);
  }

 private:
  Tensor equalized(const Tensor& channel) const {
    const auto last = static_cast<double>(settings_.options.bins - 1);
    const Tensor scaled = cast(rescaled(channel, range_, kBytes), DType::float32);
    const Tensor bin = cast(within(scaled * (last / 255), {0, last}), DType::int32);
    const Tensor counts = cast(bincount(reshape(bin, {-1}), settings_.options.bins), DType::float32);
    const Tensor up_to = cumsum(counts);
    const Tensor all = reduce_max(up_to);
    const Tensor first = reduce_min(lockstep::where(up_to > 0.0, up_to, all));
    const Tensor rest = lockstep::where(all - first > 0.0, all - first, 1.0);
    const Tensor table = within(round((up_to - first) * 255.0 / rest), kBytes);
    // An image of one colour stays as it is.
    const Tensor one = count_nonzero(counts) <= 1;
    return cast(
        lockstep::where(one, cast(channel, DType::float32), rescaled(gather(table, bin), kBytes, range_)),
        channel.dtype());
  }
  Interval range_;
};
const RegisterLayer<EqualizationLayer> equalization;

struct SolarizationSettings {
  SolarizationOptions options;
  void visit(auto& v) {
    v("addition_factor", options.addition_factor, kFinite);
    v("threshold_factor", options.threshold_factor, kFinite);
    v("value_range", options.value_range, kFinite);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class SolarizationLayer final : public RandomImageLayer<SolarizationSettings> {
 public:
  static constexpr const char* kClassName = "Solarization";
  SolarizationLayer(const char* class_name, SolarizationSettings settings)
      : RandomImageLayer(class_name, std::move(settings)),
        addition_(interval(settings_.options.addition_factor, kClassName, "addition_factor", 0, 1)),
        threshold_(interval(settings_.options.threshold_factor, kClassName, "threshold_factor", 0, 1)),
        range_(value_range(settings_.options.value_range, class_name)) {
    settings_.options.addition_factor = {addition_.low, addition_.high};  // as Keras writes them
    settings_.options.threshold_factor = {threshold_.low, threshold_.high};
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    // As Keras draws them: the upper end alone is a part of 255.
    const auto drawn = [&](Interval factor) {
      return per_image(draw(x, factor.low, factor.high * 255), x.dtype());
    };
    const Tensor bright = within(rescaled(x, range_, kBytes) + drawn(addition_), kBytes);
    return rescaled(lockstep::where(bright < drawn(threshold_), bright, 255.0 - bright), kBytes, range_);
  }

 private:
  Interval addition_, threshold_, range_;
};
const RegisterLayer<SolarizationLayer> solarization;

// --- colours -----------------------------------------------------------------------------------------------

// Keras' constructors of these have data_format before the seed.
struct HueSettings {
  Numbers factor = 0.0;
  RandomColorOptions options;
  void visit(auto& v) {
    v("factor", factor, kFinite);
    v("value_range", options.value_range, kFinite);
    v("data_format", options.data_format);
    v("seed", options.seed, kAnything);
  }
};

template <class Settings>
class FactorLayer : public RandomImageLayer<Settings> {
 public:
  FactorLayer(const char* class_name, Settings settings, double least, double most)
      : RandomImageLayer<Settings>(class_name, std::move(settings)),
        factor_(interval(this->settings_.factor, class_name, "factor", least, most)),
        range_(value_range(this->settings_.options.value_range, class_name)) {
    this->settings_.factor = {factor_.low, factor_.high};  // as Keras writes it
  }

 protected:
  Tensor drawn(const Tensor& x) const { return this->draw(x, factor_.low, factor_.high); }
  // Whether an image is changed at all: with a probability that is drawn as well.
  Tensor chosen(const Tensor& x) const { return reshape(this->draw(x, 0, 1) < drawn(x), {-1, 1, 1, 1}); }

  Interval factor_, range_;
};

struct InvertSettings : ColorSettings {
  InvertSettings() { factor = 1.0; }
  InvertSettings(const Numbers& given, const RandomColorOptions& said) : ColorSettings{given, said} {}
};

class RandomInvertLayer final : public FactorLayer<InvertSettings> {
 public:
  static constexpr const char* kClassName = "RandomInvert";
  RandomInvertLayer(const char* class_name, InvertSettings settings)
      : FactorLayer(class_name, std::move(settings), 0, 1) {}

 protected:
  Tensor disturbed(const Tensor& x) const override { return lockstep::where(chosen(x), range_.high - x, x); }
};
const RegisterLayer<RandomInvertLayer> random_invert;

struct GrayscaleSettings {
  double factor = 0.5;
  RandomImageOptions options;
  void visit(auto& v) {
    v("factor", factor, kShare);
    v("data_format", options.data_format);
    v("seed", options.seed, kAnything);
  }
};

class RandomGrayscaleLayer final : public RandomImageLayer<GrayscaleSettings> {
 public:
  static constexpr const char* kClassName = "RandomGrayscale";
  RandomGrayscaleLayer(const char* class_name, GrayscaleSettings settings)
      : RandomImageLayer(class_name, std::move(settings)) {}

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor chosen = reshape(draw(x, 0, 1) < settings_.factor, {-1, 1, 1, 1});
    return lockstep::where(chosen, without_colors(x, format(), kClassName), x);
  }
};
const RegisterLayer<RandomGrayscaleLayer> random_grayscale;

class RandomPosterizationLayer final : public FactorLayer<HueSettings> {
 public:
  static constexpr const char* kClassName = "RandomPosterization";
  RandomPosterizationLayer(const char* class_name, HueSettings settings)
      : FactorLayer(class_name, std::move(settings), 1, 8) {}

 protected:
  Tensor disturbed(const Tensor& x) const override {
    // Rounding to float32 may reach the upper bound.
    const Tensor bits = factor_.low == factor_.high ? drawn(x) : minimum(floor(drawn(x)), factor_.high - 1);
    const Tensor step = per_image(pow(2.0, 8.0 - bits), x.dtype());
    const Tensor whole = floor(within(rescaled(x, range_, kBytes), kBytes));
    return rescaled(floor(whole / step) * step, kBytes, range_);
  }
};
const RegisterLayer<RandomPosterizationLayer> random_posterization;

class RandomHueLayer final : public FactorLayer<HueSettings> {
 public:
  static constexpr const char* kClassName = "RandomHue";
  RandomHueLayer(const char* class_name, HueSettings settings)
      : FactorLayer(class_name, std::move(settings), 0, 1) {}

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor turn = cast(reshape(draw_side(x) * drawn(x) * 0.5, {-1, 1, 1}), x.dtype());
    Hsv hsv = hsv_of(colors_of(rescaled(x, range_, kUnit), format(), kClassName));
    hsv.hue = hsv.hue + turn;
    hsv.hue = lockstep::where(hsv.hue > 1.0, hsv.hue - 1.0, hsv.hue);
    hsv.hue = lockstep::where(hsv.hue < 0.0, hsv.hue + 1.0, hsv.hue);
    return rescaled(within(rgb_of(hsv, channel_axis(format())), kUnit), kUnit, range_);
  }
};
const RegisterLayer<RandomHueLayer> random_hue;

class RandomSaturationLayer final : public FactorLayer<HueSettings> {
 public:
  static constexpr const char* kClassName = "RandomSaturation";
  RandomSaturationLayer(const char* class_name, HueSettings settings)
      : FactorLayer(class_name, std::move(settings), -1, 1) {}

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor factor = drawn(x);
    const Tensor times = cast(reshape(factor / (1.0 - factor + 1e-7), {-1, 1, 1}), x.dtype());
    Hsv hsv = hsv_of(colors_of(x, format(), kClassName));
    hsv.saturation = within(hsv.saturation * times, range_);
    return rgb_of(hsv, channel_axis(format()));
  }
};
const RegisterLayer<RandomSaturationLayer> random_saturation;

class RandomColorDegenerationLayer final : public FactorLayer<HueSettings> {
 public:
  static constexpr const char* kClassName = "RandomColorDegeneration";
  RandomColorDegenerationLayer(const char* class_name, HueSettings settings)
      : FactorLayer(class_name, std::move(settings), -1, 1) {}

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor gray = without_colors(x, format(), kClassName);
    return within(x + per_image(drawn(x), x.dtype()) * (gray - x), range_);
  }
};
const RegisterLayer<RandomColorDegenerationLayer> random_color_degeneration;

// The same filter (height, width) for every channel.
Tensor filtered(const Tensor& x, const Tensor& filter, DataFormat format) {
  const int64_t channels = x.shape()[channel_axis(format)];
  const Tensor each = tile(expand_dims(expand_dims(cast(filter, x.dtype()), -1), -1), {1, 1, channels, 1});
  return depthwise_conv2d(x, each, {.padding = Padding::same, .data_format = format});
}

class RandomSharpnessLayer final : public FactorLayer<HueSettings> {
 public:
  static constexpr const char* kClassName = "RandomSharpness";
  RandomSharpnessLayer(const char* class_name, HueSettings settings)
      : FactorLayer(class_name, std::move(settings), 0, 1) {}

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const double around = 1.0 / 13, middle = 5.0 / 13;
    const Tensor smoothing = pad(full({1, 1}, middle - around), {1, 1}, {1, 1}) + around;
    const Tensor smooth = filtered(x, smoothing, format());
    return within(x + (1.0 - per_image(drawn(x) * 2.0, x.dtype())) * (smooth - x), range_);
  }
};
const RegisterLayer<RandomSharpnessLayer> random_sharpness;

struct GaussianBlurSettings {
  Numbers factor = 1.0;
  RandomGaussianBlurOptions options;
  void visit(auto& v) {
    v("factor", factor, kFinite);
    v("kernel_size", options.kernel_size, kPositive);
    v("sigma", options.sigma, kFinite);
    v("value_range", options.value_range, kFinite);
    v("data_format", options.data_format);
    v("seed", options.seed, kAnything);
  }
};

class RandomGaussianBlurLayer final : public FactorLayer<GaussianBlurSettings> {
 public:
  static constexpr const char* kClassName = "RandomGaussianBlur";
  RandomGaussianBlurLayer(const char* class_name, GaussianBlurSettings settings)
      : FactorLayer(class_name, std::move(settings), 0, 1),
        sigma_(interval(settings_.options.sigma, kClassName, "sigma", 0, 1)) {
    const std::vector<int64_t> given = settings_.options.kernel_size.values();
    require(settings_.options.kernel_size.single() || given.size() == 2, ErrorCode::invalid_argument,
            std::source_location::current(),
            "RandomGaussianBlur: kernel_size is a number or {width, height}, received ", given.size(),
            " numbers");
    for (const int64_t size : given)
      require(size % 2 == 1, ErrorCode::invalid_argument, std::source_location::current(),
              "RandomGaussianBlur: kernel_size must be odd, received ", size);
    settings_.options.kernel_size = {given[0], given.back()};  // as Keras writes them
    settings_.options.sigma = {sigma_.low, sigma_.high};
  }

 protected:
  Tensor disturbed(const Tensor& x) const override {
    const Tensor chosen = this->chosen(x);
    const TensorList sigmas = unstack(
        random::uniform({2}, {.generator = generator()}) * (sigma_.high - sigma_.low) + (sigma_.low + 1e-6));
    const std::vector<int64_t>& sizes = settings_.options.kernel_size.values();
    const Tensor across = bell(sizes[0], sigmas[0]), down = bell(sizes[1], sigmas[1]);
    const Tensor blurred = filtered(x, expand_dims(down, 1) * expand_dims(across, 0), format());
    return within(lockstep::where(chosen, blurred, x), range_);
  }

 private:
  static Tensor bell(int64_t size, const Tensor& sigma) {
    const Tensor places =
        range(static_cast<double>(size), DType::float32) - static_cast<double>(size - 1) / 2;
    const Tensor heights = exp(square(places / sigma) * -0.5);
    return heights / reduce_sum(heights);
  }
  Interval sigma_;
};
const RegisterLayer<RandomGaussianBlurLayer> random_gaussian_blur;

struct ColorJitterSettings {
  RandomColorJitterOptions options;
  void visit(auto& v) {
    v("value_range", options.value_range, kFinite);
    v("brightness_factor", options.brightness_factor, kFinite);
    v("contrast_factor", options.contrast_factor, kFinite);
    v("saturation_factor", options.saturation_factor, kFinite);
    v("hue_factor", options.hue_factor, kFinite);
    v("seed", options.seed, kAnything);
    v("data_format", options.data_format);
  }
};

class RandomColorJitterLayer final : public ImageLayer<ColorJitterSettings> {
 public:
  static constexpr const char* kClassName = "RandomColorJitter";
  RandomColorJitterLayer(const char* class_name, ColorJitterSettings settings)
      : ImageLayer(class_name, std::move(settings)) {
    const RandomColorJitterOptions& o = settings_.options;
    const RandomColorOptions each{
        .value_range = o.value_range, .seed = o.seed, .data_format = o.data_format, .dtype = policy()};
    if (o.brightness_factor.defined()) track(RandomBrightness(o.brightness_factor, each));
    if (o.contrast_factor.defined()) track(RandomContrast(o.contrast_factor, each));
    if (o.saturation_factor.defined()) track(RandomSaturation(o.saturation_factor, each));
    if (o.hue_factor.defined()) track(RandomHue(o.hue_factor, each));
  }

 protected:
  Tensor images(const Tensor& x, bool training) const override {
    Tensor value = x;
    for (const Layer& layer : layers()) value = layer(value, {.training = training});
    return value;
  }
};
const RegisterLayer<RandomColorJitterLayer> random_color_jitter;

}  // namespace

Layer AutoContrast(const ContrastOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<AutoContrastLayer>({options});
}
Layer Equalization(const EqualizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<EqualizationLayer>({options});
}
Layer Solarization(const SolarizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SolarizationLayer>({options});
}
Layer RandomInvert(const Numbers& factor, const RandomColorOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomInvertLayer>({factor, options});
}
Layer RandomGrayscale(double factor, const RandomImageOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomGrayscaleLayer>({factor, options});
}
Layer RandomPosterization(const Numbers& factor, const RandomColorOptions& options,
                          std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomPosterizationLayer>({factor, options});
}
Layer RandomHue(const Numbers& factor, const RandomColorOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomHueLayer>({factor, options});
}
Layer RandomSaturation(const Numbers& factor, const RandomColorOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomSaturationLayer>({factor, options});
}
Layer RandomColorDegeneration(const Numbers& factor, const RandomColorOptions& options,
                              std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomColorDegenerationLayer>({factor, options});
}
Layer RandomSharpness(const Numbers& factor, const RandomColorOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomSharpnessLayer>({factor, options});
}
Layer RandomGaussianBlur(const Numbers& factor, const RandomGaussianBlurOptions& options,
                         std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomGaussianBlurLayer>({factor, options});
}
Layer RandomColorJitter(const RandomColorJitterOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<RandomColorJitterLayer>({options});
}

}  // namespace lockstep::keras::layers
