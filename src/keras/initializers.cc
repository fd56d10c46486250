#include "lockstep/keras/initializers.h"

#include <array>
#include <cmath>

#include "base/parallel.h"
#include "graph/emit.h"
#include "keras/rule.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {

namespace {

using initializers::Seed;

// A seed draws the same numbers at every call.
class Source {
 public:
  explicit Source(const Seed& seed) {
    if (seed) own_.emplace(static_cast<uint64_t>(*seed));
  }
  const random::Generator* generator() const { return own_ ? &*own_ : nullptr; }

 private:
  std::optional<random::Generator> own_;
};

Tensor draw_normal(const Shape& shape, DType dtype, double mean, double stddev, const Seed& seed) {
  const Source source(seed);
  return random::normal(shape,
                        {.mean = mean, .stddev = stddev, .dtype = dtype, .generator = source.generator()});
}

Tensor draw_truncated(const Shape& shape, DType dtype, double mean, double stddev, const Seed& seed) {
  const Source source(seed);
  return random::truncated_normal(
      shape, {.mean = mean, .stddev = stddev, .dtype = dtype, .generator = source.generator()});
}

Tensor draw_uniform(const Shape& shape, DType dtype, double minval, double maxval, const Seed& seed) {
  const Source source(seed);
  return random::uniform(
      shape, {.minval = minval, .maxval = maxval, .dtype = dtype, .generator = source.generator()});
}

struct Fans {
  double in = 1;
  double out = 1;
};

// The fans of a kernel (window..., inputs, outputs); every tap of the window counts.
Fans fans_of(const Shape& shape) {
  if (shape.rank() == 0) return {};
  if (shape.rank() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  const auto window = static_cast<double>(shape.drop_last(2).size());
  return {window * static_cast<double>(shape[-2]), window * static_cast<double>(shape[-1])};
}

// The fans of a kernel whose inputs and outputs run over these dimensions.
Fans fans_over(const Shape& shape, const std::vector<int64_t>& input_axes,
               const std::vector<int64_t>& output_axes) {
  const auto over = [&](const std::vector<int64_t>& axes) {
    double product = 1;
    for (const int64_t axis : axes) product *= static_cast<double>(shape[static_cast<int>(axis)]);
    return product;
  };
  return {over(input_axes), over(output_axes)};
}

// Makes `count` rows of `length` elements orthonormal, in order. Subtracting from all later rows at once
// (modified Gram-Schmidt) keeps them orthogonal to far below float32's precision.
void orthonormalise(std::vector<double>& rows, int64_t count, int64_t length) {
  const auto row = [&](int64_t i) { return rows.data() + i * length; };
  const auto dot = [&](const double* a, const double* b) {
    std::array<double, 8> sums{};
    int64_t i = 0;
    for (; i + 8 <= length; i += 8)
      for (int64_t k = 0; k < 8; ++k) sums[static_cast<size_t>(k)] += a[i + k] * b[i + k];
    for (; i < length; ++i) sums[0] += a[i] * b[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  };
  for (int64_t i = 0; i < count; ++i) {
    double* q = row(i);
    const double norm = std::sqrt(dot(q, q));
    for (int64_t k = 0; k < length; ++k) q[k] /= norm;
    const int64_t grain = 1 + (int64_t{1} << 15) / length;
    parallel_for(count - i - 1, grain, team_size(), [&](int64_t begin, int64_t end) {
      for (int64_t j = i + 1 + begin; j < i + 1 + end; ++j) {
        double* other = row(j);
        const double along = dot(q, other);
        for (int64_t k = 0; k < length; ++k) other[k] -= along * q[k];
      }
    });
  }
}

// --- the rules ---------------------------------------------------------------------------------------------

template <class Settings>
class Made final : public SettingsRule<Initializer::Rule, Settings> {
 public:
  using SettingsRule<Initializer::Rule, Settings>::SettingsRule;
  Tensor make(const Shape& shape, DType dtype) const override { return this->settings_.make(shape, dtype); }
};

template <class Settings>
Initializer make_rule(Settings settings) {
  return Initializer(std::make_shared<Made<Settings>>(std::move(settings)));
}

struct ZerosSettings {
  static constexpr const char* kName = "Zeros";
  void visit(auto&) {}
  Tensor make(const Shape& shape, DType dtype) const { return zeros(shape, dtype); }
};

struct OnesSettings {
  static constexpr const char* kName = "Ones";
  void visit(auto&) {}
  Tensor make(const Shape& shape, DType dtype) const { return ones(shape, dtype); }
};

// The numbers of lists in lists, of which all at one depth are of one length.
void gather_numbers(const Json& json, size_t depth, std::vector<int64_t>& sizes,
                    std::vector<double>& numbers) {
  if (!json.is_list()) {
    numbers.push_back(json.is_bool() ? static_cast<double>(json.as_bool()) : json.as_double());
    return;
  }
  const auto size = static_cast<int64_t>(json.items().size());
  if (depth == sizes.size() && numbers.empty()) sizes.push_back(size);
  require(depth < sizes.size() && sizes[depth] == size, ErrorCode::invalid_argument,
          std::source_location::current(), "Constant: the lists of an array have one length each");
  for (const Json& part : json.items()) gather_numbers(part, depth + 1, sizes, numbers);
}

struct ConstantSettings {
  static constexpr const char* kName = "Constant";
  Json value = 0.0;  // a number, or lists in lists of numbers: what Keras' files have of arrays
  void visit(auto& v) { v("value", value); }
  void check() const {
    if (!value.is_number()) array();
  }
  Tensor make(const Shape& shape, DType dtype) const {
    if (value.is_number()) return Tensor::full(dtype, shape, value.as_double());
    const Tensor whole = array();
    return cast(whole.shape() == shape ? whole : broadcast_to(whole, shape), dtype);
  }

 private:
  Tensor array() const {
    const Json* of_array = value.is_object() ? value.find("config") : nullptr;
    const Json& lists = of_array && of_array->find("value") ? *of_array->find("value") : value;
    require(lists.is_list() || lists.is_number(), ErrorCode::invalid_argument,
            std::source_location::current(), "Constant: value is a number or an array of them, received ",
            value);
    std::vector<int64_t> sizes;
    std::vector<double> numbers;
    gather_numbers(lists, 0, sizes, numbers);
    return Tensor::from(numbers, Shape(Dims(sizes)));
  }
};

struct IdentitySettings : initializers::IdentityOptions {
  static constexpr const char* kName = "Identity";
  void visit(auto& v) { v("gain", gain, kFinite); }
  Tensor make(const Shape& shape, DType dtype) const {
    require(shape.rank() == 2, ErrorCode::shape_mismatch, std::source_location::current(),
            "Identity makes matrices, received shape ", shape);
    std::vector<double> values(static_cast<size_t>(shape.size()));
    for (int64_t i = 0; i < std::min(shape[0], shape[1]); ++i)
      values[static_cast<size_t>(i * shape[1] + i)] = gain;
    return cast(Tensor::from(values, shape), dtype);
  }
};

struct RandomNormalSettings : initializers::RandomNormalOptions {
  static constexpr const char* kName = "RandomNormal";
  void visit(auto& v) {
    v("mean", mean, kFinite);
    v("stddev", stddev, kNotNegative);
    v("seed", seed, kAnything);
  }
  Tensor make(const Shape& shape, DType dtype) const { return draw_normal(shape, dtype, mean, stddev, seed); }
};

struct TruncatedNormalSettings : RandomNormalSettings {
  static constexpr const char* kName = "TruncatedNormal";
  Tensor make(const Shape& shape, DType dtype) const {
    return draw_truncated(shape, dtype, mean, stddev, seed);
  }
};

struct RandomUniformSettings : initializers::RandomUniformOptions {
  static constexpr const char* kName = "RandomUniform";
  void visit(auto& v) {
    v("minval", minval, kFinite);
    v("maxval", maxval, kFinite);
    v("seed", seed, kAnything);
  }
  void check() const {
    require(minval <= maxval, ErrorCode::invalid_argument, std::source_location::current(),
            "RandomUniform: minval must not be above maxval, received ", minval, " and ", maxval);
  }
  Tensor make(const Shape& shape, DType dtype) const {
    return draw_uniform(shape, dtype, minval, maxval, seed);
  }
};

struct VarianceScalingSettings : initializers::VarianceScalingOptions {
  static constexpr const char* kName = "VarianceScaling";
  void visit(auto& v) {
    v("scale", scale, kPositive);
    v("mode", mode);
    v("distribution", distribution);
    v("seed", seed, kAnything);
    v("input_axes", input_axes, kFinite);
    v("output_axes", output_axes, kFinite);
  }
  void check() const {
    const auto where = std::source_location::current();
    require(mode == "fan_in" || mode == "fan_out" || mode == "fan_avg", ErrorCode::invalid_argument, where,
            "VarianceScaling: mode must be fan_in, fan_out or fan_avg, received \"", mode, "\"");
    require(
        distribution == "truncated_normal" || distribution == "untruncated_normal" ||
            distribution == "uniform",
        ErrorCode::invalid_argument, where,
        "VarianceScaling: distribution must be truncated_normal, untruncated_normal or uniform, received \"",
        distribution, "\"");
  }
  Tensor make(const Shape& shape, DType dtype) const {
    const Fans fans =
        input_axes && output_axes ? fans_over(shape, *input_axes, *output_axes) : fans_of(shape);
    const double fan = mode == "fan_in" ? fans.in : mode == "fan_out" ? fans.out : (fans.in + fans.out) / 2;
    const double variance = scale / std::max(1.0, fan);
    if (distribution == "uniform") {
      const double limit = std::sqrt(3 * variance);
      return draw_uniform(shape, dtype, -limit, limit, seed);
    }
    if (distribution == "untruncated_normal") return draw_normal(shape, dtype, 0, std::sqrt(variance), seed);
    // The standard deviation of a normal distribution that is cut off at two of its own.
    constexpr double kTruncated = 0.87962566103423978;
    return draw_truncated(shape, dtype, 0, std::sqrt(variance) / kTruncated, seed);
  }
};

// VarianceScaling by another name; what is left to set are the seed and the dimensions.
struct Named {
  const char* name;
  double scale;
  const char* mode;
  const char* distribution;
};
constexpr Named kGlorotUniform{"GlorotUniform", 1, "fan_avg", "uniform"};
constexpr Named kGlorotNormal{"GlorotNormal", 1, "fan_avg", "truncated_normal"};
constexpr Named kHeUniform{"HeUniform", 2, "fan_in", "uniform"};
constexpr Named kHeNormal{"HeNormal", 2, "fan_in", "truncated_normal"};
constexpr Named kLecunUniform{"LecunUniform", 1, "fan_in", "uniform"};
constexpr Named kLecunNormal{"LecunNormal", 1, "fan_in", "truncated_normal"};

template <const Named& kNamed>
struct NamedSettings : initializers::FanOptions {
  static constexpr const char* kName = kNamed.name;
  void visit(auto& v) {
    v("seed", seed, kAnything);
    v("input_axes", input_axes, kFinite);
    v("output_axes", output_axes, kFinite);
  }
  Tensor make(const Shape& shape, DType dtype) const {
    const VarianceScalingSettings scaling{{.scale = kNamed.scale,
                                           .mode = kNamed.mode,
                                           .distribution = kNamed.distribution,
                                           .seed = seed,
                                           .input_axes = input_axes,
                                           .output_axes = output_axes}};
    return scaling.make(shape, dtype);
  }
};

struct OrthogonalSettings : initializers::OrthogonalOptions {
  static constexpr const char* kName = "Orthogonal";
  void visit(auto& v) {
    v("gain", gain, kFinite);
    v("seed", seed, kAnything);
  }
  // Q of a normal matrix, with the signs that make R's diagonal positive: uniform over orthogonal matrices.
  Tensor make(const Shape& shape, DType dtype) const {
    require(shape.rank() >= 2, ErrorCode::shape_mismatch, std::source_location::current(),
            "Orthogonal takes two dimensions or more, received shape ", shape);
    const int64_t columns = shape[-1];
    const int64_t rows = shape.drop_last(1).size();
    const int64_t count = std::min(rows, columns), length = std::max(rows, columns);
    std::vector<double> vectors =
        draw_normal({count, length}, DType::float64, 0, 1, seed).to_vector<double>();
    orthonormalise(vectors, count, length);
    for (double& x : vectors) x *= gain;
    Tensor q = Tensor::from(vectors, {count, length});
    if (rows > columns) q = transpose(q);
    return cast(reshape(q, shape), dtype);
  }
};

Registry<Initializer>& registry() {
  static Registry<Initializer>& all = *[] {
    static Registry<Initializer> made("initializer");
    enter<Made, ZerosSettings>(made, {"zero"});
    enter<Made, OnesSettings>(made, {"one"});
    enter<Made, ConstantSettings>(made);
    enter<Made, IdentitySettings>(made, {"IdentityInitializer"});
    enter<Made, RandomNormalSettings>(made, {"normal"});
    enter<Made, TruncatedNormalSettings>(made);
    enter<Made, RandomUniformSettings>(made, {"uniform"});
    enter<Made, VarianceScalingSettings>(made);
    enter<Made, NamedSettings<kGlorotUniform>>(made);
    enter<Made, NamedSettings<kGlorotNormal>>(made);
    enter<Made, NamedSettings<kHeUniform>>(made);
    enter<Made, NamedSettings<kHeNormal>>(made);
    enter<Made, NamedSettings<kLecunUniform>>(made);
    enter<Made, NamedSettings<kLecunNormal>>(made);
    enter<Made, OrthogonalSettings>(made, {"OrthogonalInitializer"});
    return &made;
  }();
  return all;
}

}  // namespace

const Catalogued& known_initializers() { return registry(); }

Initializer::Initializer(const char* name, std::source_location where)
    : Initializer(std::string(name), where) {}

Initializer::Initializer(const std::string& name, std::source_location where)
    : Initializer(registry().make(name, Json::object(), where)) {}

Tensor Initializer::operator()(const Shape& shape, DType dtype, std::source_location where) const {
  const CallSite site(where);
  require(defined(), ErrorCode::failed_precondition, where, "an Initializer that is none was called");
  // The name is asked for where it is told alone: a function that is written elsewhere may have none.
  for (const int64_t size : shape)
    if (size < 0)
      fail(ErrorCode::shape_mismatch, where, rule_->class_name(),
           ": every size must be known, received shape ", shape);
  const TracePause pause;
  try {
    return rule_->make(shape, dtype);
  } catch (Error& error) {
    error.note("in initializer " + rule_->class_name() + " for " + detail::concat(TensorSpec{dtype, shape}));
    throw;
  }
}

Json Initializer::serialize() const {
  if (!defined()) return {};
  return serialized("keras.initializers", rule_->class_name(), rule_->config());
}

Initializer Initializer::deserialize(const Json& json, std::source_location where) {
  return json.is_null() ? Initializer() : registry().make(json, where);
}

namespace initializers {

Initializer Zeros() { return make_rule(ZerosSettings{}); }
Initializer Ones() { return make_rule(OnesSettings{}); }
Initializer Constant(double value, std::source_location where) {
  const CallSite site(where);
  ConstantSettings settings;
  settings.value = value;
  return make_rule(settings);
}
Initializer Identity(const IdentityOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(IdentitySettings{options});
}
Initializer RandomNormal(const RandomNormalOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(RandomNormalSettings{options});
}
Initializer TruncatedNormal(const RandomNormalOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(TruncatedNormalSettings{{options}});
}
Initializer RandomUniform(const RandomUniformOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(RandomUniformSettings{options});
}
Initializer VarianceScaling(const VarianceScalingOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(VarianceScalingSettings{options});
}
Initializer GlorotUniform(const FanOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(NamedSettings<kGlorotUniform>{options});
}
Initializer GlorotNormal(const FanOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(NamedSettings<kGlorotNormal>{options});
}
Initializer HeUniform(const FanOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(NamedSettings<kHeUniform>{options});
}
Initializer HeNormal(const FanOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(NamedSettings<kHeNormal>{options});
}
Initializer LecunUniform(const FanOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(NamedSettings<kLecunUniform>{options});
}
Initializer LecunNormal(const FanOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(NamedSettings<kLecunNormal>{options});
}
Initializer Orthogonal(const OrthogonalOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_rule(OrthogonalSettings{options});
}

void register_initializer(const std::string& class_name,
                          std::function<Initializer(const Json& config)> make) {
  registry().add(class_name, std::move(make));
}

}  // namespace initializers

}  // namespace lockstep::keras
