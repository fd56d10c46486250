// The matrix of labels by predictions, and what is computed from it: intersections over unions.
#include "keras/confusion_metrics.h"
#include "keras/metric_rule.h"
#include "lockstep/base/call_site.h"
#include "ops/array/lookup.h"

namespace lockstep::keras {
namespace {

// What a batch adds to a matrix [classes, classes] of labels by predictions, of all replicas. Where the label
// is ignore_class the pair does not count; any other number that is no class is an Error.
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

}  // namespace

void enter_confusion_matrices(Registry<Metric>& registry) {
  enter_metric<ConfusionMatrixMetric, ConfusionMatrixSettings>(registry);
  enter_metric<IoUMetric, IoUSettings>(registry);
  enter_metric<IoUMetric, MeanIoUSettings>(registry);
  enter_metric<IoUMetric, BinaryIoUSettings>(registry);
  enter_metric<IoUMetric, OneHotIoUSettings>(registry);
  enter_metric<IoUMetric, OneHotMeanIoUSettings>(registry);
}

namespace metrics {

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

}  // namespace metrics
}  // namespace lockstep::keras
