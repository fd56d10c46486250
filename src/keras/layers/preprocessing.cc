#include "lockstep/keras/layers/preprocessing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "graph/emit.h"
#include "keras/layers/adaptable.h"
#include "keras/layers/category_encoding.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

// One number, or a vector that broadcasts over the last dimension.
Tensor tensor_of(const Numbers& numbers, DType dtype) {
  if (numbers.single()) return Tensor::full(dtype, {}, numbers.values()[0]);
  return cast(Tensor::from(numbers.values(), {static_cast<int64_t>(numbers.values().size())}), dtype);
}

// --- scaling -----------------------------------------------------------------------------------------------

struct RescalingSettings {
  Numbers scale;
  Numbers offset = 0.0;
  LayerOptions options;
  void visit(auto& v) {
    v("scale", scale, kFinite);
    v("offset", offset, kFinite);
  }
};

class RescalingLayer final : public ConfiguredLayer<RescalingSettings> {
 public:
  static constexpr const char* kClassName = "Rescaling";
  using ConfiguredLayer::ConfiguredLayer;
  Tensor call(const Tensor& input, const CallContext&) override {
    const Tensor x = cast(input, compute_dtype());
    return x * operand(settings_.scale) + operand(settings_.offset);
  }
  bool supports_masking() const override { return true; }

 private:
  // A number becomes part of the code, a list a constant of the program.
  OperandArg operand(const Numbers& numbers) const {
    if (numbers.single()) return numbers.values()[0];
    const TracePause outside;
    return tensor_of(numbers, compute_dtype());
  }
};
const RegisterLayer<RescalingLayer> rescaling;

struct NormalizationSettings {
  Axes axis = {-1};  // a list in files
  NormalizationOptions options;
  void visit(auto& v) {
    v("axis", axis, kFinite);
    v("invert", options.invert);
    v("mean", options.mean, kFinite);
    v("variance", options.variance, kNotNegative);
  }
};

class NormalizationLayer final : public ConfiguredLayer<NormalizationSettings>, public Adaptable {
 public:
  static constexpr const char* kClassName = "Normalization";
  NormalizationLayer(const char* class_name, NormalizationSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    const auto& [mean, variance] = std::tie(settings_.options.mean, settings_.options.variance);
    const auto here = std::source_location::current();
    require(mean.defined() == variance.defined() && mean.values().size() == variance.values().size(),
            ErrorCode::invalid_argument, here,
            "Normalization: mean and variance must both be given, in one shape, or neither");
    settings_.axis = Axes(settings_.axis.values());
    require(!mean.defined() || mean.single() || !settings_.axis.values().empty(), ErrorCode::invalid_argument,
            here, "Normalization: a list of means needs an axis to run over");
  }

  void build(const Shape& input) override {
    std::set<int64_t> kept;
    for (const int64_t axis : settings_.axis.values())
      kept.insert(normalize_axis(axis, input.rank(), "Normalization", where()));
    kept_.assign(kept.begin(), kept.end());
    rank_ = input.rank();
    Shape shape;
    for (const int64_t axis : kept_) shape.push_back(input[static_cast<int>(axis)]);
    for (const int64_t size : shape)
      require(size >= 0, ErrorCode::shape_mismatch, where(),
              "Normalization: the sizes along axis must be known, received shape ", input);
    if (settings_.options.mean.defined()) {
      mean_ = fixed(settings_.options.mean, shape);
      variance_ = fixed(settings_.options.variance, shape);
      return;
    }
    const auto statistic = [&](const char* name, const char* initializer) {
      return add_weight(name, shape, {.initializer = initializer, .trainable = false});
    };
    learned_mean_ = statistic("mean", "zeros");
    learned_variance_ = statistic("variance", "ones");
    // Kept for the files' sake: nothing counts.
    add_weight("count", {}, {.initializer = "zeros", .trainable = false, .dtype = DType::int32});
  }

  void adapt(const Tensor& data, std::source_location where) override {
    require(!settings_.options.mean.defined(), ErrorCode::failed_precondition, where,
            "Normalization: mean and variance were given; there is nothing to adapt");
    require(data.defined() && data.rank() >= 1 && data.size() > 0, ErrorCode::invalid_argument, where,
            "Normalization: adapt() needs data");
    if (!built()) {
      Shape shape = data.shape();
      shape[0] = -1;
      ensure_built({shape}, where);
    }
    const std::vector<int> kept = kept_of(data.shape());
    Shape sizes;
    for (const int axis : kept) sizes.push_back(data.shape()[axis]);
    require(sizes == learned_mean_.shape(), ErrorCode::shape_mismatch, where, "Normalization: built for ",
            learned_mean_.shape(), " along axis ", Dims(settings_.axis.values()),
            ", adapt() received data of shape ", data.shape());
    const Tensor x = cast(data, learned_mean_.dtype());
    ReduceOptions over;
    for (int d = 0; d < x.rank(); ++d)
      if (!std::binary_search(kept.begin(), kept.end(), d)) over.axis.push_back(d);
    if (over.axis.empty()) {
      learned_mean_.assign(x, where);
      learned_variance_.assign(zeros_like(x), where);
      return;
    }
    const Tensor mean = reduce_mean(x, over);
    const Tensor distance = x - reshape(mean, broadcast_shape(x.shape()));
    learned_mean_.assign(mean, where);
    learned_variance_.assign(reduce_mean(square(distance), over), where);
  }

  Tensor call(const Tensor& input, const CallContext&) override {
    const Tensor x = cast(input, compute_dtype());
    const Shape shape = broadcast_shape(x.shape());
    const bool fixed = mean_.defined();
    const Tensor mean = reshape(cast(fixed ? mean_ : learned_mean_.value(), x.dtype()), shape);
    const Tensor variance = reshape(cast(fixed ? variance_ : learned_variance_.value(), x.dtype()), shape);
    const Tensor stddev = maximum(sqrt(variance), 1e-7);
    return settings_.options.invert ? x * stddev + mean : (x - mean) / stddev;
  }
  bool supports_masking() const override { return true; }

 private:
  // Where the axes that it keeps are in an input. Of inputs that have other leading dimensions than those it
  // was built for, the last ones are the same.
  std::vector<int> kept_of(const Shape& input) const {
    std::vector<int> kept;
    for (const int64_t axis : kept_) {
      kept.push_back(static_cast<int>(axis) - rank_ + input.rank());
      require(kept.back() >= 0, ErrorCode::shape_mismatch, where(),
              "Normalization: built for inputs of rank ", rank_, ", received shape ", input);
    }
    return kept;
  }
  Shape broadcast_shape(const Shape& input) const {
    Shape shape = Dims::filled(input.rank(), 1);
    for (const int axis : kept_of(input)) shape[axis] = input[axis];
    return shape;
  }
  Tensor fixed(const Numbers& numbers, const Shape& shape) const {
    return broadcast_to(tensor_of(numbers, compute_dtype()), shape);
  }

  std::vector<int64_t> kept_;
  int rank_ = 0;
  Tensor mean_, variance_;  // as given
  Variable learned_mean_, learned_variance_;
};
const RegisterLayer<NormalizationLayer> normalization;

// --- categories --------------------------------------------------------------------------------------------

struct CategoryEncodingSettings {
  int64_t num_tokens = 0;
  CategoryEncodingOptions options;
  void visit(auto& v) {
    v("num_tokens", num_tokens, kPositive);
    v("output_mode", options.output_mode);
  }
};

class CategoryEncodingLayer final : public ConfiguredLayer<CategoryEncodingSettings> {
 public:
  static constexpr const char* kClassName = "CategoryEncoding";
  CategoryEncodingLayer(const char* class_name, CategoryEncodingSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    std::string& mode = settings_.options.output_mode;
    if (mode == "binary") mode = "multi_hot";
    const auto here = std::source_location::current();
    require(mode == "multi_hot" || mode == "one_hot" || mode == "count", ErrorCode::invalid_argument, here,
            "CategoryEncoding: output_mode must be multi_hot, one_hot or count, received \"", mode, "\"");
  }
  TensorList call_all(const TensorList& inputs, const CallContext&) override {
    const std::string& mode = settings_.options.output_mode;
    require(inputs.size() == 1 || (inputs.size() == 2 && mode == "count"), ErrorCode::invalid_argument,
            where(), "CategoryEncoding takes one input, and weights beside it where output_mode is count");
    return {encode(inputs[0], mode, settings_.num_tokens, compute_dtype(),
                   inputs.size() == 2 ? inputs[1] : Tensor())};
  }
  bool autocast_inputs() const override { return false; }
};
const RegisterLayer<CategoryEncodingLayer> category_encoding;

// A sketch of a distribution: values, ascending, and how much of the data each stands for.
struct Summary {
  std::vector<double> values;
  std::vector<double> weights;
};

// Linear between the points, constant beyond them.
double interpolate(double x, const std::vector<double>& xs, const std::vector<double>& ys) {
  const auto above = std::lower_bound(xs.begin(), xs.end(), x) - xs.begin();
  if (above == 0) return ys.front();
  if (above == static_cast<std::ptrdiff_t>(xs.size())) return ys.back();
  const auto i = static_cast<size_t>(above);
  return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
}

// At most 1 / epsilon values that share the data evenly. Everything is rounded to float32, as Keras does.
Summary compressed(const Summary& summary, double epsilon) {
  if (static_cast<double>(summary.values.size()) * epsilon < 1) return summary;
  std::vector<double> sums(summary.weights.size());
  std::partial_sum(summary.weights.begin(), summary.weights.end(), sums.begin());
  std::vector<double> shares = sums;
  for (double& share : shares) share /= sums.back();
  Summary result;
  double before = 0;
  const auto steps = static_cast<int64_t>(std::ceil(1 / epsilon));
  for (int64_t i = 0; i < steps; ++i) {
    const double share = epsilon + static_cast<double>(i) * epsilon;
    const double sum = interpolate(share, shares, sums);
    result.values.push_back(static_cast<float>(interpolate(share, shares, summary.values)));
    result.weights.push_back(static_cast<float>(sum - before));
    before = sum;
  }
  return result;
}

Summary summarize(std::vector<float> data, double epsilon) {
  std::sort(data.begin(), data.end());
  const double step = std::max(static_cast<double>(data.size()) * epsilon, 1.0);
  Summary summary;
  for (auto i = static_cast<size_t>(step - 1); i < data.size(); i += static_cast<size_t>(step)) {
    summary.values.push_back(data[i]);
    summary.weights.push_back(static_cast<float>(step));
  }
  return compressed(summary, epsilon);
}

struct DiscretizationSettings {
  DiscretizationOptions options;
  void visit(auto& v) {
    v("bin_boundaries", options.bin_boundaries, kAnything);
    v("num_bins", options.num_bins, kNotNegative);
    v("epsilon", options.epsilon, kPositive);
    v("output_mode", options.output_mode);
  }
};

class DiscretizationLayer final : public ConfiguredLayer<DiscretizationSettings>, public Adaptable {
 public:
  static constexpr const char* kClassName = "Discretization";
  DiscretizationLayer(const char* class_name, DiscretizationSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    const auto& [boundaries, bins, epsilon, mode, layer_name, trainable, dtype, input_shape] =
        settings_.options;
    const auto here = std::source_location::current();
    require(bins || boundaries, ErrorCode::invalid_argument, here,
            "Discretization: give bin_boundaries, or num_bins and call adapt()");
    require(mode == "int" || mode == "one_hot" || mode == "multi_hot" || mode == "count",
            ErrorCode::invalid_argument, here,
            "Discretization: output_mode must be int, one_hot, multi_hot or count, received \"", mode, "\"");
  }

  void adapt(const Tensor& data, std::source_location where) override {
    DiscretizationOptions& o = settings_.options;
    require(o.num_bins.has_value(), ErrorCode::failed_precondition, where,
            "Discretization: bin_boundaries were given; there is nothing to adapt. Give num_bins instead");
    require(data.defined() && data.size() > 0, ErrorCode::invalid_argument, where,
            "Discretization: adapt() needs data");
    const Summary summary = summarize(cast(data, DType::float32).to_vector<float>(), o.epsilon);
    o.bin_boundaries.reset();
    if (*o.num_bins == 0) return;
    std::vector<double> boundaries = compressed(summary, 1.0 / static_cast<double>(*o.num_bins)).values;
    boundaries.pop_back();
    o.bin_boundaries = std::move(boundaries);
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const std::optional<std::vector<double>>& boundaries = settings_.options.bin_boundaries;
    require(boundaries.has_value(), ErrorCode::failed_precondition, where(),
            "Discretization: call adapt() first, or give bin_boundaries");
    Tensor bin;
    if (boundaries->empty()) {
      bin = zeros(x.shape(), DType::int32);
    } else {
      Tensor edges;
      {
        const TracePause outside;
        edges = tensor_of(Numbers(*boundaries), DType::float32);
      }
      const Tensor passed = expand_dims(cast(x, DType::float32), -1) >= edges;
      bin = reduce_sum(cast(passed, DType::int32), {.axis = {-1}});
    }
    const bool number = settings_.options.output_mode == "int";
    return encode(bin, settings_.options.output_mode, static_cast<int64_t>(boundaries->size()) + 1,
                  number ? DType::int32 : compute_dtype());
  }
  bool autocast_inputs() const override { return false; }

  // Keras leaves `trainable` out and writes the dtype by name.
  Json get_config() const override {
    Json config = ConfiguredLayer::get_config();
    config.erase("trainable");
    config.set("dtype", policy().name());
    config.set("sparse", false);
    return config;
  }
};
const RegisterLayer<DiscretizationLayer> discretization;

}  // namespace

Tensor encode(const Tensor& input, const std::string& mode, int64_t depth, DType dtype,
              const Tensor& weights) {
  const bool integer = input.dtype() == DType::int32 || input.dtype() == DType::int64;
  Tensor x = integer ? input : cast(input, DType::int32);
  if (mode == "int") return cast(x, dtype);
  if (x.rank() == 0) x = expand_dims(x, 0);
  if (mode == "one_hot")
    return one_hot(x.rank() > 1 && x.shape()[-1] == 1 ? squeeze(x, {-1}) : x, depth, dtype);
  Tensor rows = one_hot(x, depth, dtype);
  if (weights.defined()) rows = rows * expand_dims(cast(weights, dtype), -1);
  const ReduceOptions over{.axis = {x.rank() > 1 ? 1 : 0}};
  return mode == "multi_hot" ? reduce_max(rows, over) : reduce_sum(rows, over);
}

void AdaptableLayer::adapt(const Tensor& data, std::source_location where) const {
  auto* adaptable = dynamic_cast<Adaptable*>(base().get());
  require(adaptable, ErrorCode::failed_precondition, where,
          "adapt: this names no layer that learns from data");
  adaptable->adapt(data, where);
}

Layer Rescaling(const Numbers& scale, const Numbers& offset, const LayerOptions& options,
                std::source_location where) {
  const CallSite site(where);
  return make_configured<RescalingLayer>({scale, offset, options});
}
AdaptableLayer Normalization(const NormalizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return AdaptableLayer(make_configured<NormalizationLayer>({options.axis, options}).base());
}
Layer CategoryEncoding(int64_t num_tokens, const CategoryEncodingOptions& options,
                       std::source_location where) {
  const CallSite site(where);
  return make_configured<CategoryEncodingLayer>({num_tokens, options});
}
AdaptableLayer Discretization(const DiscretizationOptions& options, std::source_location where) {
  const CallSite site(where);
  require(!options.num_bins || !options.bin_boundaries, ErrorCode::invalid_argument,
          std::source_location::current(), "Discretization: give bin_boundaries or num_bins, not both");
  return AdaptableLayer(make_configured<DiscretizationLayer>({options}).base());
}

}  // namespace lockstep::keras::layers
