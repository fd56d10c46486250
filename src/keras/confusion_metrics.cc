// Metrics that count right and wrong: by threshold, by class; and what is computed from such sums at the end.
#include <algorithm>
#include <cmath>

#include "keras/metric_rule.h"
#include "lockstep/base/call_site.h"
#include "lockstep/ops/sort.h"
#include "ops/array/lookup.h"

namespace lockstep::keras {

namespace {

constexpr double kEpsilon = 1e-7;
constexpr double kNeverChosen = -1e10;  // below every score

Tensor constant(const std::vector<double>& values, DType dtype) {
  return cast(Tensor::from(values, {static_cast<int64_t>(values.size())}), dtype);
}

Tensor first_element(const Tensor& x) { return reshape(slice(x, {0}, {1}), {}); }

void check_class_id(const std::optional<int64_t>& class_id, const Tensor& predictions) {
  require(!class_id || (predictions.rank() > 1 && *class_id >= 0 && *class_id < predictions.shape()[-1]),
          ErrorCode::invalid_argument, std::source_location::current(), "class_id ", class_id.value_or(0),
          " is no class of predictions of shape ", predictions.shape());
}

// Labels, predictions and weights, one element each.
struct Flat {
  Tensor labels;  // 0 or 1
  Tensor predictions;
  Tensor weights;  // undefined: 1 each
};

Tensor flat(const Tensor& x) { return reshape(x, {-1}); }

Flat flattened(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight, DType dtype,
               const std::optional<int64_t>& k, const std::optional<int64_t>& class_id) {
  auto [y, p] = prepared(y_true, y_pred, sample_weight, false);
  require(y.shape() == p.shape(), ErrorCode::shape_mismatch, std::source_location::current(),
          "labels of shape ", y_true.shape(), " do not fit predictions of shape ", y_pred.shape());
  p = cast(p, dtype);
  Tensor weights = merged_weights(sample_weight, y_pred, p);
  if (weights.defined()) weights = broadcast_to(weights, p.shape());
  if (k) {
    const Tensor chosen = reduce_sum(one_hot(top_k(p, *k).indices, p.shape()[-1]), {.axis = {-2}});
    p = where(chosen > 0.0, p, kNeverChosen);
  }
  check_class_id(class_id, p);
  const auto pick = [&](const Tensor& x) {
    if (!class_id || !x.defined()) return x;
    Dims begin = Dims::filled(x.rank(), 0), size = Dims::filled(x.rank(), -1);
    begin[-1] = *class_id;
    size[-1] = 1;
    return slice(x, begin, size);
  };
  const Tensor labels = cast(not_equal(pick(y), 0.0), dtype);
  return {flat(labels), flat(pick(p)), weights.defined() ? flat(pick(weights)) : weights};
}

// --- counts at a few thresholds --------------------------------------------------------------------------------------

enum class Count { true_positives, true_negatives, false_positives, false_negatives };

// For each threshold.
Tensor count_of(Count count, const Flat& batch, const Tensor& thresholds) {
  const bool positive = count == Count::true_positives || count == Count::false_positives;
  const bool label = count == Count::true_positives || count == Count::false_negatives;
  const Tensor of_label = product(label ? batch.labels : 1.0 - batch.labels, batch.weights);
  const Tensor p = expand_dims(batch.predictions, 1), t = expand_dims(thresholds, 0);
  const Tensor chosen = cast(positive ? p > t : p <= t, p.dtype());
  return all_reduce_sum(reduce_sum(chosen * expand_dims(of_label, 1), {.axis = {0}}));
}

std::vector<double> thresholds_or(const std::vector<double>& thresholds, double otherwise) {
  return thresholds.empty() ? std::vector{otherwise} : thresholds;
}

struct NamedCount {
  const char* name;
  Count count;
};
constexpr NamedCount kTruePositives{"TruePositives", Count::true_positives};
constexpr NamedCount kTrueNegatives{"TrueNegatives", Count::true_negatives};
constexpr NamedCount kFalsePositives{"FalsePositives", Count::false_positives};
constexpr NamedCount kFalseNegatives{"FalseNegatives", Count::false_negatives};

template <const NamedCount& kNamed>
struct CountSettings : metrics::ThresholdOptions {
  static constexpr const char* kName = kNamed.name;
  static constexpr Count kCount = kNamed.count;
  void visit(auto& v) { visit_list(v, "thresholds", thresholds, kShare); }
};

template <class Settings>
class CountMetric final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  void build(const Tensor&, const Tensor&) override {
    thresholds_ = constant(thresholds_or(this->settings_.thresholds, 0.5), this->dtype());
    counts_ = this->add_variable("accumulator", thresholds_.shape());
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    counts_.assign_add(count_of(
        Settings::kCount, flattened(y_true, y_pred, sample_weight, this->dtype(), {}, {}), thresholds_));
  }
  Tensor result() const override {
    return thresholds_.size() == 1 ? first_element(counts_.value()) : counts_.value();
  }

 private:
  Tensor thresholds_;
  Variable counts_;
};

struct PrecisionSettings : metrics::PrecisionOptions {
  static constexpr const char* kName = "Precision";
  static constexpr Count kOthers = Count::false_positives;
  static constexpr const char* kOthersName = "false_positives";
  void visit(auto& v) {
    visit_list(v, "thresholds", thresholds, kShare);
    v("top_k", top_k, kPositive);
    v("class_id", class_id, kNotNegative);
  }
};

struct RecallSettings : PrecisionSettings {
  static constexpr const char* kName = "Recall";
  static constexpr Count kOthers = Count::false_negatives;
  static constexpr const char* kOthersName = "false_negatives";
};

// True positives among them and others.
template <class Settings>
class ShareMetric final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  void build(const Tensor&, const Tensor&) override {
    // With top_k everything that is chosen counts.
    const double chosen = this->settings_.top_k ? kNeverChosen : 0.5;
    thresholds_ = constant(thresholds_or(this->settings_.thresholds, chosen), this->dtype());
    hits_ = this->add_variable("true_positives", thresholds_.shape());
    others_ = this->add_variable(Settings::kOthersName, thresholds_.shape());
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const Flat batch = flattened(y_true, y_pred, sample_weight, this->dtype(), this->settings_.top_k,
                                 this->settings_.class_id);
    hits_.assign_add(count_of(Count::true_positives, batch, thresholds_));
    others_.assign_add(count_of(Settings::kOthers, batch, thresholds_));
  }
  Tensor result() const override {
    const Tensor share = divide_no_nan(hits_.value(), hits_.value() + others_.value());
    return thresholds_.size() == 1 ? first_element(share) : share;
  }

 private:
  Tensor thresholds_;
  Variable hits_, others_;
};

// --- curves over many thresholds -------------------------------------------------------------------------------------

// The state of a curve: for each label the weight of the examples that exceed exactly b of the T thresholds, b in
// [0, T], negatives and positives apart. A batch costs one look-up, however many thresholds there are.
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

// --- one figure where another is reached -----------------------------------------------------------------------------

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

// --- F scores --------------------------------------------------------------------------------------------------------

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

// --- confusion matrices ----------------------------------------------------------------------------------------------

// What a batch adds to a matrix [classes, classes] of labels by predictions, of all replicas. Where the label is ignore_class
// the pair does not count; any other number that is no class is an Error.
Tensor confusion(const Tensor& labels, const Tensor& predictions, const Tensor& weights, int64_t classes,
                 const std::optional<int64_t>& ignore_class, DType dtype) {
  require(labels.size() == predictions.size(), ErrorCode::shape_mismatch, std::source_location::current(),
          "labels of shape ", labels.shape(), " do not fit predictions of shape ", predictions.shape());
  Tensor y = whole_numbers(labels), counted;
  if (ignore_class) {
    counted = not_equal(y, *ignore_class);
    y = where(counted, y, 0);
  }
  y = flat(checked_labels(y, classes));
  const Tensor p = flat(checked_labels(whole_numbers(predictions), classes));
  const Tensor ones = counted.defined() ? cast(flat(counted), dtype) : ones_like(cast(y, dtype));
  const Tensor added = weights.defined() ? ones * flat(broadcast_to(weights, predictions.shape())) : ones;
  return all_reduce_sum(reshape(scatter_add(added, y * classes + p, classes * classes), {classes, classes}));
}

struct ConfusionMatrixSettings : metrics::MetricOptions {
  static constexpr const char* kName = "ConfusionMatrix";
  int64_t num_classes = 0;
  void visit(auto& v) { v("num_classes", num_classes, kPositive); }
};

template <class Settings>
class ConfusionMatrixMetric final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  void build(const Tensor&, const Tensor&) override {
    const int64_t n = this->settings_.num_classes;
    matrix_ = this->add_variable("total_confusion_matrix", {n, n});
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const int64_t n = this->settings_.num_classes;
    const bool scores = is_floating(y_pred.dtype()) && y_pred.rank() > 0 && y_pred.shape()[-1] == n && n > 1;
    const bool one_hot = scores && y_true.shape() == y_pred.shape();
    const Tensor labels = one_hot ? argmax(y_true) : scores ? without_width(y_true, y_pred, -1) : y_true;
    const Tensor predictions = scores ? argmax(y_pred) : y_pred;
    const Tensor weights = merged_weights(sample_weight, y_pred, predictions, this->dtype());
    matrix_.assign_add(confusion(labels, predictions, weights, n, {}, this->dtype()));
  }
  Tensor result() const override { return matrix_.value(); }

 private:
  Variable matrix_;
};

// Everything that IoU and its kin can set.
struct IoUBase {
  int64_t num_classes = 0;
  std::vector<int64_t> target_class_ids = {};
  std::optional<int64_t> ignore_class = {};
  bool sparse_y_true = true;
  bool sparse_y_pred = true;
  int axis = -1;
  std::optional<double> threshold = {};  // predictions are scores of class 1
  std::string name = {};

  void check() const {
    const auto where = std::source_location::current();
    for (const int64_t id : target_class_ids)
      require(id >= 0 && id < num_classes, ErrorCode::invalid_argument, where, "target class ", id,
              " is not in [0, ", num_classes, ")");
  }
};

struct IoUSettings : IoUBase {
  static constexpr const char* kName = "IoU";
  void visit(auto& v) {
    v("num_classes", num_classes, kPositive);
    v("target_class_ids", target_class_ids, kNotNegative);
    v("ignore_class", ignore_class, kFinite);
    v("sparse_y_true", sparse_y_true);
    v("sparse_y_pred", sparse_y_pred);
    v("axis", axis, kFinite);
  }
};

// No target classes: all.
struct MeanIoUSettings : IoUBase {
  static constexpr const char* kName = "MeanIoU";
  void visit(auto& v) {
    v("num_classes", num_classes, kPositive);
    v("ignore_class", ignore_class, kFinite);
    v("sparse_y_true", sparse_y_true);
    v("sparse_y_pred", sparse_y_pred);
    v("axis", axis, kFinite);
  }
};

struct BinaryIoUSettings : IoUBase {
  static constexpr const char* kName = "BinaryIoU";
  BinaryIoUSettings() {
    num_classes = 2;
    target_class_ids = {0, 1};
    threshold = 0.5;
  }
  void visit(auto& v) {
    v("target_class_ids", target_class_ids, kNotNegative);
    v("threshold", threshold, kFinite);
  }
};

struct OneHotIoUSettings : IoUBase {
  static constexpr const char* kName = "OneHotIoU";
  OneHotIoUSettings() { sparse_y_true = sparse_y_pred = false; }
  void visit(auto& v) {
    v("num_classes", num_classes, kPositive);
    v("target_class_ids", target_class_ids, kNotNegative);
    v("ignore_class", ignore_class, kFinite);
    v("sparse_y_pred", sparse_y_pred);
    v("axis", axis, kFinite);
  }
};

struct OneHotMeanIoUSettings : IoUBase {
  static constexpr const char* kName = "OneHotMeanIoU";
  OneHotMeanIoUSettings() { sparse_y_true = sparse_y_pred = false; }
  void visit(auto& v) {
    v("num_classes", num_classes, kPositive);
    v("ignore_class", ignore_class, kFinite);
    v("sparse_y_pred", sparse_y_pred);
    v("axis", axis, kFinite);
  }
};

template <class Settings>
class IoUMetric final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  void build(const Tensor&, const Tensor&) override {
    const int64_t n = this->settings_.num_classes;
    matrix_ = this->add_variable("total_confusion_matrix", {n, n});
    std::vector<double> targets(static_cast<size_t>(n), this->settings_.target_class_ids.empty() ? 1 : 0);
    for (const int64_t id : this->settings_.target_class_ids) targets[static_cast<size_t>(id)] = 1;
    targets_ = constant(targets, this->dtype());
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const Settings& s = this->settings_;
    const Tensor y = s.sparse_y_true ? y_true : argmax(y_true, s.axis);
    const Tensor p = !s.sparse_y_pred ? argmax(y_pred, s.axis)
                     : s.threshold    ? cast(y_pred >= *s.threshold, DType::int64)
                                      : y_pred;
    const Tensor weights = merged_weights(sample_weight, y_pred, p, this->dtype());
    matrix_.assign_add(confusion(y, p, weights, s.num_classes, s.ignore_class, this->dtype()));
  }
  Tensor result() const override {
    const Tensor matrix = matrix_.value();
    const Tensor both = diag_part(matrix);
    const Tensor either = reduce_sum(matrix, {.axis = {0}}) + reduce_sum(matrix, {.axis = {1}}) - both;
    // Classes that never occur do not count.
    const Tensor counted = cast(either > 1e-9, this->dtype()) * targets_;
    return reduce_sum(both / (either + kEpsilon) * counted) / (reduce_sum(counted) + kEpsilon);
  }

 private:
  Tensor targets_;
  Variable matrix_;
};

// --- R2 --------------------------------------------------------------------------------------------------------------

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

void enter_confusion_metrics(Registry<Metric>& registry) {
  enter_metric<CountMetric, CountSettings<kTruePositives>>(registry);
  enter_metric<CountMetric, CountSettings<kTrueNegatives>>(registry);
  enter_metric<CountMetric, CountSettings<kFalsePositives>>(registry);
  enter_metric<CountMetric, CountSettings<kFalseNegatives>>(registry);
  enter_metric<ShareMetric, PrecisionSettings>(registry);
  enter_metric<ShareMetric, RecallSettings>(registry);
  enter_metric<AreaMetric, AUCSettings>(registry);
  enter_metric<AtMetric, AtSettings<kSensitivityAtSpecificity>>(registry);
  enter_metric<AtMetric, AtSettings<kSpecificityAtSensitivity>>(registry);
  enter_metric<AtMetric, AtSettings<kPrecisionAtRecall>>(registry);
  enter_metric<AtMetric, AtSettings<kRecallAtPrecision>>(registry);
  enter_metric<FScoreMetric, FBetaScoreSettings>(registry);
  enter_metric<FScoreMetric, F1ScoreSettings>(registry);
  enter_metric<ConfusionMatrixMetric, ConfusionMatrixSettings>(registry);
  enter_metric<IoUMetric, IoUSettings>(registry);
  enter_metric<IoUMetric, MeanIoUSettings>(registry);
  enter_metric<IoUMetric, BinaryIoUSettings>(registry);
  enter_metric<IoUMetric, OneHotIoUSettings>(registry);
  enter_metric<IoUMetric, OneHotMeanIoUSettings>(registry);
  enter_metric<R2Metric, R2ScoreSettings>(registry);
}

namespace metrics {

Metric TruePositives(const ThresholdOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<CountMetric>(CountSettings<kTruePositives>{options});
}
Metric TrueNegatives(const ThresholdOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<CountMetric>(CountSettings<kTrueNegatives>{options});
}
Metric FalsePositives(const ThresholdOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<CountMetric>(CountSettings<kFalsePositives>{options});
}
Metric FalseNegatives(const ThresholdOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<CountMetric>(CountSettings<kFalseNegatives>{options});
}
Metric Precision(const PrecisionOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<ShareMetric>(PrecisionSettings{options});
}
Metric Recall(const PrecisionOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<ShareMetric>(RecallSettings{{options}});
}
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
Metric FBetaScore(const FBetaScoreOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<FScoreMetric>(FBetaScoreSettings{options});
}
Metric F1Score(const F1ScoreOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<FScoreMetric>(F1ScoreSettings{options});
}
Metric ConfusionMatrix(int64_t num_classes, const MetricOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<ConfusionMatrixMetric>(ConfusionMatrixSettings{options, num_classes});
}

Metric IoU(int64_t num_classes, const std::vector<int64_t>& target_class_ids, const IoUOptions& options,
           std::source_location where) {
  const CallSite site(where);
  return make_metric<IoUMetric>(IoUSettings{{.num_classes = num_classes,
                                             .target_class_ids = target_class_ids,
                                             .ignore_class = options.ignore_class,
                                             .sparse_y_true = options.sparse_y_true,
                                             .sparse_y_pred = options.sparse_y_pred,
                                             .axis = options.axis,
                                             .name = options.name}});
}
Metric MeanIoU(int64_t num_classes, const IoUOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<IoUMetric>(MeanIoUSettings{{.num_classes = num_classes,
                                                 .ignore_class = options.ignore_class,
                                                 .sparse_y_true = options.sparse_y_true,
                                                 .sparse_y_pred = options.sparse_y_pred,
                                                 .axis = options.axis,
                                                 .name = options.name}});
}
Metric BinaryIoU(const BinaryIoUOptions& options, std::source_location where) {
  const CallSite site(where);
  BinaryIoUSettings settings;
  settings.target_class_ids = options.target_class_ids;
  settings.threshold = options.threshold;
  settings.name = options.name;
  return make_metric<IoUMetric>(settings);
}

namespace {
template <class Settings>
Metric one_hot_iou(int64_t num_classes, const std::vector<int64_t>& target_class_ids,
                   const OneHotIoUOptions& options) {
  Settings settings;
  settings.num_classes = num_classes;
  settings.target_class_ids = target_class_ids;
  settings.ignore_class = options.ignore_class;
  settings.sparse_y_pred = options.sparse_y_pred;
  settings.axis = options.axis;
  settings.name = options.name;
  return make_metric<IoUMetric>(settings);
}
}  // namespace

Metric OneHotIoU(int64_t num_classes, const std::vector<int64_t>& target_class_ids,
                 const OneHotIoUOptions& options, std::source_location where) {
  const CallSite site(where);
  return one_hot_iou<OneHotIoUSettings>(num_classes, target_class_ids, options);
}
Metric OneHotMeanIoU(int64_t num_classes, const OneHotIoUOptions& options, std::source_location where) {
  const CallSite site(where);
  return one_hot_iou<OneHotMeanIoUSettings>(num_classes, {}, options);
}

Metric R2Score(const R2ScoreOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<R2Metric>(R2ScoreSettings{options});
}

}  // namespace metrics

}  // namespace lockstep::keras
