// How much of the labels' variance predictions explain.
#include "keras/confusion_metrics.h"
#include "keras/metric_rule.h"
#include "lockstep/base/call_site.h"

namespace lockstep::keras {
namespace {

struct R2ScoreSettings : metrics::R2ScoreOptions {
  static constexpr const char* kName = "R2Score";
  static constexpr const char* kOwnName = "r2_score";
  void visit(auto& v) {
    v("class_aggregation", class_aggregation);
    v("num_regressors", num_regressors, kNotNegative);
  }
  void check() const {
    const auto where = std::source_location::current();
    require(!class_aggregation || *class_aggregation == "uniform_average" ||
                *class_aggregation == "variance_weighted_average",
            ErrorCode::invalid_argument, where,
            "class_aggregation must be uniform_average, variance_weighted_average or none, received \"",
            class_aggregation.value_or(""), "\"");
  }
};

template <class Settings>
class R2Metric final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  void build(const Tensor&, const Tensor& y_pred) override {
    require(y_pred.rank() == 1 || y_pred.rank() == 2, ErrorCode::shape_mismatch,
            std::source_location::current(), "takes predictions of shape (examples, outputs), received ",
            y_pred.shape());
    const Shape shape{y_pred.rank() == 2 ? y_pred.shape()[1] : 1};
    squared_sum_ = this->add_variable("squared_sum", shape);
    sum_ = this->add_variable("sum", shape);
    residual_ = this->add_variable("residual", shape);
    count_ = this->add_variable("count", shape);
    samples_ = this->add_variable("num_samples");
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    auto [y, p] = prepared(y_true, y_pred, sample_weight, false);
    if (p.rank() == 1) {
      y = expand_dims(y, 1);
      p = expand_dims(p, 1);
    }
    require(y.shape() == p.shape(), ErrorCode::shape_mismatch, std::source_location::current(),
            "labels of shape ", y_true.shape(), " do not fit predictions of shape ", y_pred.shape());
    y = cast(y, this->dtype());
    p = cast(p, this->dtype());
    const Tensor given = merged_weights(sample_weight, y_pred, p);
    const Tensor weights = given.defined() ? broadcast_to(given, p.shape()) : ones_like(p);
    const auto add = [](const Variable& to, const Tensor& x) {
      to.assign_add(all_reduce_sum(reduce_sum(x, {.axis = {0}})));
    };
    add(sum_, y * weights);
    add(squared_sum_, square(y) * weights);
    add(residual_, square(y - p) * weights);
    add(count_, weights);
    samples_.assign(samples_.value() + static_cast<double>(global_size(p)));
  }
  Tensor result() const override {
    const Tensor total = squared_sum_.value() - sum_.value() * (sum_.value() / count_.value());
    // 0 where all labels of an output are equal.
    const Tensor score = where(equal(total, 0.0), 0.0, 1.0 - divide_no_nan(residual_.value(), total));
    const Tensor r2 = aggregated(score, total);
    const auto regressors = static_cast<double>(this->settings_.num_regressors);
    if (regressors == 0) return r2;
    const Tensor freedom = samples_.value() - (regressors + 1);
    const Tensor adjusted = 1.0 - divide_no_nan((1.0 - r2) * (samples_.value() - 1.0), freedom);
    return where(freedom > 0.0, adjusted, r2);
  }

 private:
  Tensor aggregated(const Tensor& score, const Tensor& total) const {
    const std::optional<std::string>& how = this->settings_.class_aggregation;
    if (!how) return score;
    return *how == "uniform_average" ? reduce_mean(score) : reduce_sum(total * score) / reduce_sum(total);
  }

  Variable squared_sum_, sum_, residual_, count_, samples_;
};

}  // namespace

void enter_r2_score(Registry<Metric>& registry) { enter_metric<R2Metric, R2ScoreSettings>(registry); }

namespace metrics {

Metric R2Score(const R2ScoreOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<R2Metric>(R2ScoreSettings{options});
}

}  // namespace metrics
}  // namespace lockstep::keras
