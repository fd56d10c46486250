#include <algorithm>
#include <cmath>

#include "graph/emit.h"
#include "keras/layers/registry.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/normalization.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

struct BatchNormalizationSettings {
  BatchNormalizationOptions options;
  std::optional<Json> clipping;  // null where there is no renorm

  void visit(auto& v) {
    BatchNormalizationOptions& o = options;
    v("axis", o.axis, kFinite);
    v("momentum", o.momentum, kShare);
    v("epsilon", o.epsilon, kNotNegative);
    v("center", o.center);
    v("scale", o.scale);
    v("beta_initializer", o.beta_initializer);
    v("gamma_initializer", o.gamma_initializer);
    v("moving_mean_initializer", o.moving_mean_initializer);
    v("moving_variance_initializer", o.moving_variance_initializer);
    v("beta_regularizer", o.beta_regularizer);
    v("gamma_regularizer", o.gamma_regularizer);
    v("beta_constraint", o.beta_constraint);
    v("gamma_constraint", o.gamma_constraint);
    v("synchronized", o.synchronized);
    v("renorm", o.renorm);
    v("renorm_clipping", clipping);
    v("renorm_momentum", o.renorm_momentum, kShare);
  }
};

struct ClippingSettings : RenormClipping {
  void visit(auto& v) {
    v("rmin", rmin, kNotNegative);
    v("rmax", rmax, kNotNegative);
    v("dmax", dmax, kNotNegative);
  }
};

// The square root of what another initializer makes.
class RootRule final : public Initializer::Rule {
 public:
  explicit RootRule(Initializer of) : of_(std::move(of)) {}
  Tensor make(const Shape& shape, DType dtype) const override { return sqrt(of_(shape, dtype)); }
  std::string class_name() const override { return "Root"; }

 private:
  Initializer of_;
};

class BatchNormalizationLayer final : public ConfiguredLayer<BatchNormalizationSettings> {
 public:
  static constexpr const char* kClassName = "BatchNormalization";
  BatchNormalizationLayer(const char* class_name, BatchNormalizationSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    RenormClipping& clipping = settings_.options.renorm_clipping;
    try {
      if (settings_.clipping) clipping = read_fields<ClippingSettings>(*settings_.clipping);
    } catch (Error& error) {
      error.note("in \"renorm_clipping\"");
      throw;
    }
    if (settings_.options.renorm) {
      settings_.clipping = Json::object();
      const Json written = write_fields(ClippingSettings{clipping});
      for (const auto& [name, value] : written.members())
        if (!value.is_null()) settings_.clipping->set(name, value);
    }
    const auto here = std::source_location::current();
    require(!clipping.rmin || !clipping.rmax || *clipping.rmin <= *clipping.rmax, ErrorCode::invalid_argument,
            here, "BatchNormalization: rmax of renorm_clipping must not be below rmin");
    check_fields(ClippingSettings{clipping}, "BatchNormalization: renorm_clipping");
  }

  void build(const Shape& input) override {
    const BatchNormalizationOptions& o = settings_.options;
    axis_ = normalize_axis(o.axis, input.rank(), "BatchNormalization", where());
    const Shape shape{input[axis_]};
    if (o.scale)
      gamma_ = add_weight("gamma", shape,
                          {.initializer = o.gamma_initializer,
                           .regularizer = o.gamma_regularizer,
                           .constraint = o.gamma_constraint,
                           .autocast = false});
    if (o.center)
      beta_ = add_weight("beta", shape,
                         {.initializer = o.beta_initializer,
                          .regularizer = o.beta_regularizer,
                          .constraint = o.beta_constraint,
                          .autocast = false});
    const auto statistic = [&](const char* name, const Initializer& initializer) {
      return add_weight(name, shape, {.initializer = initializer, .trainable = false, .autocast = false});
    };
    moving_mean_ = statistic("moving_mean", o.moving_mean_initializer);
    moving_variance_ = statistic("moving_variance", o.moving_variance_initializer);
    if (!o.renorm) return;
    const Initializer root(std::make_shared<RootRule>(o.moving_variance_initializer));
    moving_stddev_ = statistic("moving_stddev", root);
    renorm_mean_ = statistic("renorm_mean", o.moving_mean_initializer);
    renorm_stddev_ = statistic("renorm_stddev", root);
  }

  Tensor call(const Tensor& input, const CallContext& context) override {
    const Tensor& mask = context.mask();
    require(!mask.defined() || mask.rank() == input.rank() - 1, ErrorCode::shape_mismatch, where(),
            "BatchNormalization: the mask must have one dimension less than the input, received ",
            mask.defined() ? mask.shape() : Shape(), " for ", input.shape());
    const bool wide = input.dtype() == DType::float64;
    const Tensor x = cast(input, wide ? DType::float64 : DType::float32);
    const auto read = [&](const Variable& v) { return v.defined() ? cast(v, x.dtype()) : Tensor(); };
    Tensor gamma = read(gamma_), beta = read(beta_);
    Moments moments{read(moving_mean_), read(moving_variance_)};
    const bool by_batch = context.training && trainable();
    if (by_batch) {
      moments = synchronized() ? global_moments(x, mask) : local_moments(x, mask);
      const Moments agreed = synchronized() ? moments : mean_over_replicas(moments, x, mask);
      if (settings_.options.renorm) {
        renormalize(moments, gamma, beta);
        move_renormalized(agreed);
      } else {
        move(moving_mean_, agreed.mean, settings_.options.momentum);
        move(moving_variance_, agreed.variance, settings_.options.momentum);
      }
    }
    const bool alone = by_batch && !synchronized() && !mask.defined();
    const Tensor y = alone ? normalized_alone(x, moments, gamma, beta) : normalized(x, moments, gamma, beta);
    return cast(y, compute_dtype());
  }

  bool supports_masking() const override { return true; }

 private:
  // Where no bit may depend on the number of replicas, statistics of a slice are not enough.
  bool synchronized() const {
    const ReplicaTrace* replica = ReplicaTrace::current();
    return settings_.options.synchronized || (replica && replica->reproducible);
  }

  // A vector of features, so that it broadcasts against x.
  Tensor along(const Tensor& features, const Tensor& x) const {
    if (axis_ == x.rank() - 1) return features;
    Shape shape = Dims::filled(x.rank(), 1);
    shape[axis_] = features.size();
    return reshape(features, shape);
  }
  ReduceOptions over_all_but_features(const Tensor& x) const {
    ReduceOptions options;
    for (int d = 0; d < x.rank(); ++d)
      if (d != axis_) options.axis.push_back(d);
    return options;
  }
  Tensor feature_sums(const Tensor& x) const { return reduce_sum(x, over_all_but_features(x)); }

  Tensor normalized(const Tensor& x, const Moments& moments, const Tensor& gamma, const Tensor& beta) const {
    Tensor factor = rsqrt(moments.variance + settings_.options.epsilon);
    if (gamma.defined()) factor = factor * gamma;
    const Tensor shift = beta.defined() ? beta - moments.mean * factor : -(moments.mean * factor);
    return x * along(factor, x) + along(shift, x);
  }

  // The same for the moments of x itself, differentiated as a whole: with h the normalised x,
  //   dbeta = sum(dy),  dgamma = sum(dy h),  dx = gamma / stddev (dy - (dbeta + h dgamma) / n),
  // which reads x and dy twice and keeps nothing else. The moments are made again there, so that this can be
  // differentiated in turn; a compiled step shares them.
  Tensor normalized_alone(const Tensor& x, const Moments& moments, const Tensor& gamma,
                          const Tensor& beta) const {
    TensorList inputs{x, moments.mean, moments.variance};
    const bool scales = gamma.defined(), shifts = beta.defined();
    if (scales) inputs.push_back(gamma);
    if (shifts) inputs.push_back(beta);
    // It refers to nothing but what it is given, so that recomputing it keeps nothing.
    const auto function = [this, scales, shifts](std::span<const Tensor> in) {
      const Tensor& x = in[0];
      const Tensor gamma = scales ? in[3] : Tensor(), beta = shifts ? in[scales ? 4 : 3] : Tensor();
      const auto gradients = [=, this](std::span<const Tensor> arriving) {
        const Tensor& dy = arriving[0];
        const Moments again = local_moments(x, {});
        const Tensor rstd = rsqrt(again.variance + settings_.options.epsilon);
        Tensor sum, product;
        if (has_columns(x)) {
          const BatchNormSums sums = batch_norm_sums(x, again.mean, dy);
          sum = sums.sum, product = sums.product * rstd;
        } else {
          sum = feature_sums(dy), product = feature_sums(dy * normalized(x, again, {}, {}));
        }
        const double share = 1.0 / static_cast<double>(elements_of(x));
        const Tensor factor = gamma.defined() ? rstd * gamma : rstd;
        const Tensor slope = product * share * rstd * factor,
                     offset = again.mean * slope - sum * share * factor;
        TensorList found{dy * along(factor, x) - x * along(slope, x) + along(offset, x), {}, {}};
        if (gamma.defined()) found.push_back(product);
        if (beta.defined()) found.push_back(sum);
        return found;
      };
      return CustomGradient{{normalized(x, {in[1], in[2]}, gamma, beta)}, gradients, /*repeatable=*/true};
    };
    return custom_gradient(function, inputs)[0];
  }

  // The mean of squared distances, not the difference of means: that one loses its digits to a large mean.
  template <class Sum>
  Moments moments_of(const Tensor& x, const Tensor& mask, const OperandArg& one_over_count, Sum sum) const {
    const auto counted = [&](const Tensor& v) {
      return mask.defined() ? lockstep::where(expand_dims(mask, -1), v, 0.0) : v;
    };
    const Tensor mean = sum(feature_sums(counted(x))) * one_over_count;
    const Tensor squares = square(counted(x - along(mean, x)));
    return {mean, sum(feature_sums(squares)) * one_over_count};
  }

  // The elements per feature. Never 0, so that the statistics of an empty batch are numbers.
  int64_t elements_of(const Tensor& x) const {
    return std::max<int64_t>(1, x.size() / std::max<int64_t>(1, x.shape()[axis_]));
  }
  // Elements of each feature that the mask lets through. Keras' epsilon keeps an empty selection from
  // dividing by 0.
  Tensor count_of(const Tensor& x, const Tensor& mask) const {
    const Tensor seen = broadcast_to(expand_dims(cast(mask, x.dtype()), -1), x.shape());
    return feature_sums(seen);
  }
  static constexpr double kKerasEpsilon = 1e-7;

  Moments local_moments(const Tensor& x, const Tensor& mask) const {
    const auto own = [](const Tensor& t) { return t; };
    if (mask.defined()) return moments_of(x, mask, reciprocal(count_of(x, mask) + kKerasEpsilon), own);
    if (has_columns(x)) return batch_moments(x);
    return moments_of(x, mask, 1.0 / static_cast<double>(elements_of(x)), own);
  }
  // Whether the features are the columns that batch_moments() knows, with numbers in them.
  bool has_columns(const Tensor& x) const { return axis_ == x.rank() - 1 && x.size() > 0; }

  Moments global_moments(const Tensor& x, const Tensor& mask) const {
    const auto all = [](const Tensor& t) { return all_reduce_sum(t); };
    if (mask.defined()) return moments_of(x, mask, reciprocal(all(count_of(x, mask)) + kKerasEpsilon), all);
    const ReplicaTrace* replica = ReplicaTrace::current();
    if (!replica) return local_moments(x, mask);
    const int64_t whole = replica->global_batch, slice = replica->local_batch;
    // Elements of each feature in one example; the first dimension may hold several rows per example.
    int64_t elements = slice > 0 ? x.shape()[0] / slice : 1;
    for (int d = 1; d < x.rank(); ++d)
      if (d != axis_) elements *= x.shape()[d];
    return moments_of(x, mask, 1.0 / static_cast<double>(std::max<int64_t>(1, whole * elements)), all);
  }

  // Weighted by examples, so that all replicas keep the same moving statistics.
  static Moments mean_over_replicas(const Moments& own, const Tensor& x, const Tensor& mask) {
    const ReplicaTrace* replica = ReplicaTrace::current();
    if (!replica) return own;
    if (!mask.defined()) {
      const double share = replica->share();
      return {all_reduce_sum(stop_gradient(own.mean) * share),
              all_reduce_sum(stop_gradient(own.variance) * share)};
    }
    const Tensor count = reduce_sum(cast(mask, x.dtype()));
    const Tensor share = count / (all_reduce_sum(count) + kKerasEpsilon);
    return {all_reduce_sum(stop_gradient(own.mean) * share),
            all_reduce_sum(stop_gradient(own.variance) * share)};
  }

  static void move(const Variable& statistic, const Tensor& value, double momentum) {
    const Tensor next = stop_gradient(cast(value, statistic.dtype()));
    statistic.assign(statistic.value() * momentum + next * (1 - momentum));
  }

  // Batch renormalisation: r and d take the batch's statistics to the moving ones, within their limits.
  void renormalize(const Moments& moments, Tensor& gamma, Tensor& beta) const {
    const BatchNormalizationOptions& o = settings_.options;
    const Tensor stddev = sqrt(moments.variance + o.epsilon);
    const Tensor known_stddev = maximum(cast(renorm_stddev_, stddev.dtype()), std::sqrt(o.epsilon));
    Tensor r = stddev / known_stddev;
    Tensor d = (moments.mean - cast(renorm_mean_, stddev.dtype())) / known_stddev;
    if (o.renorm_clipping.rmin) r = maximum(r, *o.renorm_clipping.rmin);
    if (o.renorm_clipping.rmax) r = minimum(r, *o.renorm_clipping.rmax);
    if (o.renorm_clipping.dmax) d = clip_by_value(d, -*o.renorm_clipping.dmax, *o.renorm_clipping.dmax);
    r = stop_gradient(r);
    d = stop_gradient(d);
    const Tensor shift = gamma.defined() ? d * gamma : d;
    beta = beta.defined() ? shift + beta : shift;
    gamma = gamma.defined() ? r * gamma : r;
  }
  void move_renormalized(const Moments& agreed) const {
    const BatchNormalizationOptions& o = settings_.options;
    const Tensor stddev = sqrt(agreed.variance + o.epsilon);
    move(renorm_mean_, agreed.mean, o.renorm_momentum);
    move(renorm_stddev_, stddev, o.renorm_momentum);
    move(moving_mean_, agreed.mean, o.momentum);
    move(moving_stddev_, stddev, o.momentum);
    moving_variance_.assign(relu(square(moving_stddev_.value()) - o.epsilon));
  }

  int axis_ = -1;
  Variable gamma_, beta_, moving_mean_, moving_variance_, moving_stddev_, renorm_mean_, renorm_stddev_;
};
const RegisterLayer<BatchNormalizationLayer> registered;

}  // namespace

Layer BatchNormalization(const BatchNormalizationOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_configured<BatchNormalizationLayer>({options, {}});
}

}  // namespace lockstep::keras::layers
