// Areas under curves over many thresholds, and one value where another is reached.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "keras/confusion_metrics.h"
#include "keras/metric_rule.h"
#include "lockstep/base/call_site.h"
#include "lockstep/ops/sort.h"
#include "ops/array/lookup.h"

namespace lockstep::keras {
namespace {

// The state of a curve: for each label the weight of the examples that exceed exactly b of the T thresholds,
// b in [0, T], negatives and positives apart. A batch costs one look-up, however many thresholds there are.
class Histogram {
 public:
  // Evenly spaced over [0, 1]; the first threshold lies a little below 0 and the last a little above 1 where
  // `open`, so that every example exceeds the first and none the last.
  static Histogram even(int64_t thresholds, bool open) {
    Histogram h;
    h.thresholds_ = thresholds;
    h.open_ = open;
    return h;
  }
  // Of these thresholds, in ascending order.
  static Histogram at(const std::vector<double>& thresholds, DType dtype) {
    Histogram h;
    h.thresholds_ = static_cast<int64_t>(thresholds.size());
    h.values_ = constant(thresholds, dtype);
    return h;
  }

  int64_t thresholds() const { return thresholds_; }
  Shape shape(int64_t labels) const { return {labels, thresholds_ + 1, 2}; }

  // Of flat labels, predictions and weights in which the labels of an example follow each other.
  Tensor of(const Flat& batch, int64_t labels) const {
    Tensor exceeded;
    if (values_.defined()) {
      exceeded = cast(searchsorted(values_, batch.predictions), batch.labels.dtype());
    } else {
      const auto last = static_cast<double>(thresholds_ - 1);
      exceeded = ceil(clip_by_value(batch.predictions, 0.0, 1.0) * last);
      if (open_) exceeded = maximum(exceeded, 1.0);
    }
    // Every example falls into one cell.
    Tensor cells = exceeded * 2.0 + batch.labels;
    const int64_t each = 2 * (thresholds_ + 1);
    if (labels > 1) {
      std::vector<double> begins;
      for (int64_t i = 0; i < labels; ++i) begins.push_back(static_cast<double>(i * each));
      cells = flat(reshape(cells, {-1, labels}) + constant(begins, cells.dtype()));
    }
    const Tensor weights = batch.weights.defined() ? batch.weights : ones_like(batch.labels);
    return all_reduce_sum(
        reshape(scatter_add(weights, cast(cells, DType::int32), labels * each), shape(labels)));
  }

  struct Counts {
    Tensor tp, fp, tn, fn;  // [labels, thresholds]

    // As Keras' metrics keep them: [thresholds, labels], or [thresholds] of one label.
    std::vector<std::pair<std::string, Tensor>> by_name(bool one_label) const {
      const auto shown = [&](const Tensor& x) { return one_label ? flat(x) : transpose(x); };
      return {{"true_positives", shown(tp)},
              {"true_negatives", shown(tn)},
              {"false_positives", shown(fp)},
              {"false_negatives", shown(fn)}};
    }
  };
  Counts counts(const Tensor& histogram) const {
    // Whoever exceeds more than i thresholds exceeds threshold i.
    const Tensor sums = cumsum(slice(histogram, {0, 1, 0}, {-1, -1, -1}), {.axis = 1, .reverse = true});
    const Tensor all = reduce_sum(histogram, {.axis = {1}});  // [labels, 2]
    const auto part = [&](int64_t kind) {
      const Tensor positive = squeeze(slice(sums, {0, 0, kind}, {-1, -1, 1}), {-1});
      return std::pair{positive, slice(all, {0, kind}, {-1, 1}) - positive};
    };
    const auto [fp, tn] = part(0);
    const auto [tp, fn] = part(1);
    return {.tp = tp, .fp = fp, .tn = tn, .fn = fn};
  }

 private:
  int64_t thresholds_ = 0;
  bool open_ = false;
  Tensor values_;
};

bool evenly_spaced(const std::vector<double>& thresholds) {
  const auto last = static_cast<double>(thresholds.size()) - 1;
  for (size_t i = 0; i < thresholds.size(); ++i)
    if (std::abs(thresholds[i] - static_cast<double>(i) / last) > kEpsilon) return false;
  return thresholds.size() >= 3;
}

struct AUCSettings : metrics::AUCOptions {
  static constexpr const char* kName = "AUC";
  std::optional<int64_t> num_labels = {};
  void visit(auto& v) {
    v("num_thresholds", num_thresholds, at_least(2));
    v("curve", curve);
    v("summation_method", summation_method);
    v("multi_label", multi_label);
    v("num_labels", num_labels, kPositive);
    visit_list(v, "label_weights", label_weights, kNotNegative);
    v("from_logits", from_logits);
    visit_list(v, "thresholds", thresholds, kShare);
  }
  void check() const {
    const auto where = std::source_location::current();
    require(curve == "ROC" || curve == "PR" || curve == "PRGAIN", ErrorCode::invalid_argument, where,
            "curve must be ROC, PR or PRGAIN, received \"", curve, "\"");
    require(summation_method == "interpolation" || summation_method == "majoring" ||
                summation_method == "minoring",
            ErrorCode::invalid_argument, where,
            "summation_method must be interpolation, majoring or minoring, received \"", summation_method,
            "\"");
  }
};

template <class Settings>
class AreaMetric final : public SettingsMetric<Settings> {
 public:
  explicit AreaMetric(const Settings& settings) : SettingsMetric<Settings>(settings) {
    // Both ends are added to thresholds that are given.
    const size_t given = settings.thresholds.size();
    if (given > 0) this->settings_.num_thresholds = static_cast<int64_t>(given) + 2;
  }
  void build(const Tensor&, const Tensor& y_pred) override {
    const Settings& s = this->settings_;
    histogram_ = Histogram::even(s.num_thresholds, true);
    if (!s.thresholds.empty()) {
      std::vector<double> all = s.thresholds;
      std::sort(all.begin(), all.end());
      all.insert(all.begin(), 0);
      all.push_back(1);
      if (evenly_spaced(all)) {
        histogram_ = Histogram::even(static_cast<int64_t>(all.size()), true);
      } else {
        all.front() -= kEpsilon;
        all.back() += kEpsilon;
        histogram_ = Histogram::at(all, this->dtype());
      }
    }
    if (s.multi_label) {
      require(y_pred.rank() == 2 && (!s.num_labels || *s.num_labels == y_pred.shape()[1]),
              ErrorCode::shape_mismatch, std::source_location::current(),
              "multi_label takes predictions of shape (examples, labels), received ", y_pred.shape());
      labels_ = y_pred.shape()[1];
    }
    const auto weights = static_cast<int64_t>(s.label_weights.size());
    require(weights == 0 || (y_pred.rank() > 0 && weights == y_pred.shape()[-1]), ErrorCode::shape_mismatch,
            std::source_location::current(), weights, " label_weights do not fit predictions of shape ",
            y_pred.shape());
    if (weights > 0) weights_ = constant(s.label_weights, this->dtype());
    state_ = this->add_variable("histogram", histogram_.shape(labels_));
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const Tensor p = this->settings_.from_logits ? sigmoid(y_pred) : y_pred;
    Flat batch = flattened(y_true, p, sample_weight, this->dtype(), {}, {});
    if (weights_.defined() && !this->settings_.multi_label)
      batch.weights = product(
          flat(broadcast_to(reshape(weights_, {1, -1}), {y_pred.size() / weights_.size(), weights_.size()})),
          batch.weights);
    state_.assign_add(histogram_.of(batch, labels_));
  }
  Tensor result() const override {
    const Tensor areas = areas_of(histogram_.counts(state_.value()));
    if (!this->settings_.multi_label || !weights_.defined()) return reduce_mean(areas);
    return divide_no_nan(reduce_sum(areas * weights_), reduce_sum(weights_));
  }
  std::vector<std::pair<std::string, Tensor>> keras_state() const override {
    if (!this->built()) return {};
    return histogram_.counts(state_.value()).by_name(!this->settings_.multi_label);
  }

 private:
  // One for each label.
  Tensor areas_of(const Histogram::Counts& c) const {
    const int64_t n = histogram_.thresholds();
    const auto front = [&](const Tensor& x) { return slice(x, {0, 0}, {-1, n - 1}); };
    const auto back = [&](const Tensor& x) { return slice(x, {0, 1}, {-1, n - 1}); };
    const std::string &curve = this->settings_.curve, &method = this->settings_.summation_method;
    const auto area = [](const Tensor& parts) { return reduce_sum(parts, {.axis = {1}}); };

    if (curve == "PR" && method == "interpolation") {
      // Between two thresholds true positives are linear in all positives, and precision is not (Davis and
      // Goadrich, 2006).
      const Tensor positives = c.tp + c.fp;
      const Tensor d_tp = front(c.tp) - back(c.tp);
      const Tensor slope = divide_no_nan(d_tp, maximum(front(positives) - back(positives), 0.0));
      const Tensor intercept = back(c.tp) - slope * back(positives);
      const Tensor both = logical_and(front(positives) > 0.0, back(positives) > 0.0);
      const Tensor growth = where(both, divide_no_nan(front(positives), back(positives)), 1.0);
      return area(divide_no_nan(slope * (d_tp + intercept * log(growth)), back(c.tp) + back(c.fn)));
    }
    Tensor x = divide_no_nan(c.tp, c.tp + c.fn), y;
    if (curve == "ROC") {
      y = x;
      x = divide_no_nan(c.fp, c.fp + c.tn);
    } else if (curve == "PR") {
      y = divide_no_nan(c.tp, c.tp + c.fp);
    } else {
      const Tensor odds = divide_no_nan(c.tp + c.fn, c.tn + c.fp);
      const Tensor none = equal(c.tp, 0.0);
      x = maximum(where(none, 0.0, 1.0 - odds * divide_no_nan(c.fn, c.tp)), 0.0);
      y = where(none, 1.0, 1.0 - odds * divide_no_nan(c.fp, c.tp));
    }
    const Tensor height = method == "interpolation" ? (front(y) + back(y)) * 0.5
                          : method == "minoring"    ? minimum(front(y), back(y))
                                                    : maximum(front(y), back(y));
    return area((front(x) - back(x)) * height);
  }

  Histogram histogram_;
  int64_t labels_ = 1;
  Tensor weights_;
  Variable state_;
};

// --- one value where another is reached --------------------------------------------------------------------

Tensor sensitivity(const Histogram::Counts& c) { return divide_no_nan(c.tp, c.tp + c.fn); }
Tensor specificity(const Histogram::Counts& c) { return divide_no_nan(c.tn, c.tn + c.fp); }
Tensor precision(const Histogram::Counts& c) { return divide_no_nan(c.tp, c.tp + c.fp); }

struct NamedAt {
  const char* name;
  const char* reached;
  Tensor (*constraint)(const Histogram::Counts&);
  Tensor (*statistic)(const Histogram::Counts&);
};
constexpr NamedAt kSensitivityAtSpecificity{"SensitivityAtSpecificity", "specificity", specificity,
                                            sensitivity};
constexpr NamedAt kSpecificityAtSensitivity{"SpecificityAtSensitivity", "sensitivity", sensitivity,
                                            specificity};
constexpr NamedAt kPrecisionAtRecall{"PrecisionAtRecall", "recall", sensitivity, precision};
constexpr NamedAt kRecallAtPrecision{"RecallAtPrecision", "precision", precision, sensitivity};

template <const NamedAt& kAt>
struct AtSettings : metrics::AtOptions {
  static constexpr const char* kName = kAt.name;
  static constexpr const NamedAt& kNamed = kAt;
  double reached = 0;
  void visit(auto& v) {
    v("class_id", class_id, kNotNegative);
    v("num_thresholds", num_thresholds, kPositive);
    v(kAt.reached, reached, kShare);
  }
};

template <class Settings>
class AtMetric final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  void build(const Tensor&, const Tensor&) override {
    const int64_t n = this->settings_.num_thresholds;
    histogram_ = n == 1 ? Histogram::at({0.5}, this->dtype()) : Histogram::even(n, false);
    state_ = this->add_variable("histogram", histogram_.shape(1));
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    state_.assign_add(histogram_.of(
        flattened(y_true, y_pred, sample_weight, this->dtype(), {}, this->settings_.class_id), 1));
  }
  Tensor result() const override {
    const Histogram::Counts counts = histogram_.counts(state_.value());
    const Tensor reached = Settings::kNamed.constraint(counts) >= this->settings_.reached;
    return reduce_max(where(reached, Settings::kNamed.statistic(counts), 0.0));
  }
  std::vector<std::pair<std::string, Tensor>> keras_state() const override {
    if (!this->built()) return {};
    return histogram_.counts(state_.value()).by_name(true);
  }

 private:
  Histogram histogram_;
  Variable state_;
};

}  // namespace

void enter_curve_metrics(Registry<Metric>& registry) {
  enter_metric<AreaMetric, AUCSettings>(registry);
  enter_metric<AtMetric, AtSettings<kSensitivityAtSpecificity>>(registry);
  enter_metric<AtMetric, AtSettings<kSpecificityAtSensitivity>>(registry);
  enter_metric<AtMetric, AtSettings<kPrecisionAtRecall>>(registry);
  enter_metric<AtMetric, AtSettings<kRecallAtPrecision>>(registry);
}

namespace metrics {

Metric AUC(const AUCOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<AreaMetric>(AUCSettings{options});
}
Metric SensitivityAtSpecificity(double specificity, const AtOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<AtMetric>(AtSettings<kSensitivityAtSpecificity>{options, specificity});
}
Metric SpecificityAtSensitivity(double sensitivity, const AtOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<AtMetric>(AtSettings<kSpecificityAtSensitivity>{options, sensitivity});
}
Metric PrecisionAtRecall(double recall, const AtOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<AtMetric>(AtSettings<kPrecisionAtRecall>{options, recall});
}
Metric RecallAtPrecision(double precision, const AtOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<AtMetric>(AtSettings<kRecallAtPrecision>{options, precision});
}

}  // namespace metrics
}  // namespace lockstep::keras
