#include "keras/layers/noise.h"

#include <cmath>

#include "keras/layers/input_rank.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

// The identity but in training, and where there is no noise to add.
template <class Settings>
class NoiseLayer : public ConfiguredLayer<Settings> {
 public:
  NoiseLayer(const char* class_name, Settings settings)
      : ConfiguredLayer<Settings>(class_name, std::move(settings)),
        source_(*this, this->settings_.options.seed) {}
  Tensor call(const Tensor& x, const CallContext& context) final {
    return context.training && level() > 0 ? disturb(x) : x;
  }
  bool supports_masking() const final { return true; }

 protected:
  virtual double level() const = 0;
  virtual Tensor disturb(const Tensor& x) const = 0;

  NoiseSource source_;
};

// --- dropout -----------------------------------------------------------------------------------------------

struct DropoutSettings {
  double rate = 0;
  DropoutOptions options;
  void visit(auto& v) {
    v("rate", rate, kShare);
    v("seed", options.seed, kAnything);
    v("noise_shape", options.noise_shape, at_least(-1));
  }
};

class DropoutBase : public NoiseLayer<DropoutSettings> {
 public:
  DropoutBase(const char* class_name, DropoutSettings settings)
      : NoiseLayer(class_name, std::move(settings)) {
    if (!settings_.options.noise_shape) return;
    for (const int64_t size : *settings_.options.noise_shape)
      require(size > 0 || size == -1, ErrorCode::invalid_argument, std::source_location::current(),
              class_name, ": sizes of noise_shape are positive, or -1 for the input's, received ",
              *settings_.options.noise_shape);
  }

 protected:
  double level() const final { return settings_.rate; }

  Shape noise_shape(const Tensor& x) const {
    if (!settings_.options.noise_shape) return x.shape();
    Shape shape = *settings_.options.noise_shape;
    require(shape.rank() == x.rank(), ErrorCode::shape_mismatch, where(), class_name(), ": noise_shape ",
            shape, " and the input ", x.shape(), " differ in rank");
    for (int d = 0; d < shape.rank(); ++d)
      if (shape[d] < 0) shape[d] = x.shape()[d];
    return shape;
  }
  // Noise that the whole batch shares is the same on every replica.
  bool per_example() const {
    const std::optional<Shape>& shape = settings_.options.noise_shape;
    return !shape || shape->empty() || (*shape)[0] == -1;
  }
};

class DropoutLayer final : public DropoutBase {
 public:
  static constexpr const char* kClassName = "Dropout";
  using DropoutBase::DropoutBase;

 protected:
  Tensor disturb(const Tensor& x) const override {
    if (settings_.rate >= 1) return zeros_like(x);
    return dropout(
        x, settings_.rate,
        {.noise_shape = noise_shape(x), .per_example = per_example(), .generator = source_.generator()});
  }
};
const RegisterLayer<DropoutLayer> registered_dropout;

class AlphaDropoutLayer final : public DropoutBase {
 public:
  static constexpr const char* kClassName = "AlphaDropout";
  using DropoutBase::DropoutBase;

 protected:
  // Dropped elements become what SELU tends to far below 0; a and b bring mean and variance back to 0 and 1.
  Tensor disturb(const Tensor& x) const override {
    constexpr double kDropped = -1.6732632423543772 * 1.0507009873554805;
    const double rate = settings_.rate;
    const double a = 1 / std::sqrt((1 - rate) * (1 + rate * kDropped * kDropped));
    const double b = -a * kDropped * rate;
    const Tensor keep = random::bernoulli(noise_shape(x), 1 - rate,
                                          {.per_example = per_example(), .generator = source_.generator()});
    return lockstep::where(keep, x, kDropped) * a + b;
  }
};
const RegisterLayer<AlphaDropoutLayer> alpha_dropout;

struct SpatialDropoutSettings {
  double rate = 0;
  SpatialDropoutOptions options;
  bool has_data_format = true;
  void visit(auto& v) {
    v("rate", rate, kShare);
    v("seed", options.seed, kAnything);
    if (has_data_format) v("data_format", options.data_format);
  }
};

template <int kSpatial>
struct SpatialDropoutSettingsOf : SpatialDropoutSettings {
  SpatialDropoutSettingsOf() { has_data_format = kSpatial > 1; }
  SpatialDropoutSettingsOf(double rate_, const SpatialDropoutOptions& options_)
      : SpatialDropoutSettings{rate_, options_, kSpatial > 1} {}
};

template <int kSpatial>
class SpatialDropoutLayer final : public NoiseLayer<SpatialDropoutSettingsOf<kSpatial>> {
 public:
  static constexpr const char* kClassName = kSpatial == 1   ? "SpatialDropout1D"
                                            : kSpatial == 2 ? "SpatialDropout2D"
                                                            : "SpatialDropout3D";
  SpatialDropoutLayer(const char* class_name, SpatialDropoutSettingsOf<kSpatial> settings)
      : NoiseLayer<SpatialDropoutSettingsOf<kSpatial>>(class_name, std::move(settings)) {}
  void build(const Shape& input) override { require_rank(*this, input, kSpatial + 2); }

  // Keras leaves `trainable` out and writes the dtype by name.
  Json get_config() const override {
    Json config = ConfiguredLayer<SpatialDropoutSettingsOf<kSpatial>>::get_config();
    config.erase("trainable");
    config.set("dtype", this->policy().name());
    return config;
  }

 protected:
  double level() const override { return this->settings_.rate; }
  Tensor disturb(const Tensor& x) const override {
    if (this->settings_.rate >= 1) return zeros_like(x);
    const bool first = this->settings_.options.data_format.kind() == DataFormat::channels_first;
    const int channels = first && kSpatial > 1 ? 1 : kSpatial + 1;
    Shape noise = Dims::filled(x.rank(), 1);
    noise[0] = x.shape()[0];
    noise[channels] = x.shape()[channels];
    return dropout(x, this->settings_.rate, {.noise_shape = noise, .generator = this->source_.generator()});
  }
};
const RegisterLayer<SpatialDropoutLayer<1>> spatial_dropout_1d;
const RegisterLayer<SpatialDropoutLayer<2>> spatial_dropout_2d;
const RegisterLayer<SpatialDropoutLayer<3>> spatial_dropout_3d;

// --- normal noise ------------------------------------------------------------------------------------------

struct GaussianNoiseSettings {
  double stddev = 0;
  NoiseOptions options;
  void visit(auto& v) {
    v("stddev", stddev, kShare);
    v("seed", options.seed, kAnything);
  }
};

class GaussianNoiseLayer final : public NoiseLayer<GaussianNoiseSettings> {
 public:
  static constexpr const char* kClassName = "GaussianNoise";
  GaussianNoiseLayer(const char* class_name, GaussianNoiseSettings settings)
      : NoiseLayer(class_name, std::move(settings)) {}

 protected:
  double level() const override { return settings_.stddev; }
  Tensor disturb(const Tensor& x) const override {
    return x + random::normal(x.shape(), {.stddev = settings_.stddev,
                                          .dtype = x.dtype(),
                                          .per_example = true,
                                          .generator = source_.generator()});
  }
};
const RegisterLayer<GaussianNoiseLayer> gaussian_noise;

struct GaussianDropoutSettings {
  double rate = 0;
  NoiseOptions options;
  void visit(auto& v) {
    v("rate", rate, kBelowOne);  // the noise grows without bound towards 1
    v("seed", options.seed, kAnything);
  }
};

class GaussianDropoutLayer final : public NoiseLayer<GaussianDropoutSettings> {
 public:
  static constexpr const char* kClassName = "GaussianDropout";
  GaussianDropoutLayer(const char* class_name, GaussianDropoutSettings settings)
      : NoiseLayer(class_name, std::move(settings)) {}

 protected:
  double level() const override { return settings_.rate; }
  Tensor disturb(const Tensor& x) const override {
    return x * random::normal(x.shape(), {.mean = 1,
                                          .stddev = std::sqrt(settings_.rate / (1 - settings_.rate)),
                                          .dtype = x.dtype(),
                                          .per_example = true,
                                          .generator = source_.generator()});
  }
};
const RegisterLayer<GaussianDropoutLayer> gaussian_dropout;

}  // namespace

Layer Dropout(double rate, const DropoutOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<DropoutLayer>({rate, options});
}
Layer AlphaDropout(double rate, const DropoutOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<AlphaDropoutLayer>({rate, options});
}
Layer SpatialDropout1D(double rate, const SpatialDropoutOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SpatialDropoutLayer<1>>({rate, options});
}
Layer SpatialDropout2D(double rate, const SpatialDropoutOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SpatialDropoutLayer<2>>({rate, options});
}
Layer SpatialDropout3D(double rate, const SpatialDropoutOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<SpatialDropoutLayer<3>>({rate, options});
}
Layer GaussianNoise(double stddev, const NoiseOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<GaussianNoiseLayer>({stddev, options});
}
Layer GaussianDropout(double rate, const NoiseOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<GaussianDropoutLayer>({rate, options});
}

}  // namespace lockstep::keras::layers
