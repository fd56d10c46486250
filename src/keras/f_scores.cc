// Precision and recall of classes in one number.
#include "keras/confusion_metrics.h"
#include "keras/metric_rule.h"
#include "lockstep/base/call_site.h"

namespace lockstep::keras {
namespace {

void check_average(const std::optional<std::string>& average) {
  const auto where = std::source_location::current();
  require(!average || *average == "micro" || *average == "macro" || *average == "weighted",
          ErrorCode::invalid_argument, where, "average must be micro, macro, weighted or none, received \"",
          average.value_or(""), "\"");
}

struct FBetaScoreSettings : metrics::FBetaScoreOptions {
  static constexpr const char* kName = "FBetaScore";
  static constexpr const char* kOwnName = "fbeta_score";
  void visit(auto& v) {
    v("average", average);
    v("beta", beta, kPositive);
    v("threshold", threshold, Range{.low = 0, .high = 1, .above_low = true});
  }
  void check() const { check_average(average); }
};

struct F1ScoreSettings : metrics::F1ScoreOptions {
  static constexpr const char* kName = "F1Score";
  static constexpr const char* kOwnName = "f1_score";
  static constexpr double beta = 1;
  void visit(auto& v) {
    v("average", average);
    v("threshold", threshold, Range{.low = 0, .high = 1, .above_low = true});
  }
  void check() const { check_average(average); }
};

template <class Settings>
class FScoreMetric final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  void build(const Tensor& y_true, const Tensor& y_pred) override {
    require(y_true.rank() == 2 && y_pred.rank() == 2, ErrorCode::shape_mismatch,
            std::source_location::current(),
            "takes labels and predictions of shape (examples, classes), received ", y_true.shape(), " and ",
            y_pred.shape());
    const Shape shape = micro() ? Shape{} : Shape{y_pred.shape()[1]};
    tp_ = this->add_variable("true_positives", shape);
    fp_ = this->add_variable("false_positives", shape);
    fn_ = this->add_variable("false_negatives", shape);
    weights_ = this->add_variable("intermediate_weights", shape);
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const Tensor y = cast(y_true, this->dtype()), scores = cast(y_pred, this->dtype());
    const std::optional<double>& threshold = this->settings_.threshold;
    const Tensor chosen =
        threshold
            ? scores > *threshold
            : logical_and(scores >= reduce_max(scores, {.axis = {-1}, .keepdims = true}), abs(scores) > 1e-9);
    const Tensor p = cast(chosen, this->dtype());
    const Tensor weights = merged_weights(sample_weight, y_pred, p);
    const auto add = [&](const Variable& to, const Tensor& x) {
      to.assign_add(all_reduce_sum(reduce_sum(
          product(x, weights), {.axis = micro() ? std::vector<int64_t>{} : std::vector<int64_t>{0}})));
    };
    add(tp_, p * y);
    add(fp_, p * (1.0 - y));
    add(fn_, (1.0 - p) * y);
    add(weights_, y);
  }
  Tensor result() const override {
    const Tensor tp = tp_.value();
    const Tensor precision = tp / (tp + fp_.value() + kEpsilon), recall = tp / (tp + fn_.value() + kEpsilon);
    const double beta_2 = this->settings_.beta * this->settings_.beta;
    const Tensor score = precision * recall / (precision * beta_2 + recall + kEpsilon) * (1 + beta_2);
    const std::optional<std::string>& average = this->settings_.average;
    if (!average) return score;
    if (*average != "weighted") return reduce_mean(score);
    const Tensor weights = weights_.value();
    return reduce_sum(score * (weights / (reduce_sum(weights) + kEpsilon)));
  }

 private:
  bool micro() const { return this->settings_.average == "micro"; }

  Variable tp_, fp_, fn_, weights_;
};

}  // namespace

void enter_f_scores(Registry<Metric>& registry) {
  enter_metric<FScoreMetric, FBetaScoreSettings>(registry);
  enter_metric<FScoreMetric, F1ScoreSettings>(registry);
}

namespace metrics {

Metric FBetaScore(const FBetaScoreOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<FScoreMetric>(FBetaScoreSettings{options});
}
Metric F1Score(const F1ScoreOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<FScoreMetric>(F1ScoreSettings{options});
}

}  // namespace metrics
}  // namespace lockstep::keras
