// Metrics: statistics that are gathered over the batches of an epoch.
//
// Their state are variables that are updated inside the compiled step; every example weighs the same over
// batches and replicas. A Metric is a handle: copies share the state, which belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/graph/variable.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

class MetricBase;

class Metric {
 public:
  Metric() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  // "accuracy" and "crossentropy" are resolved by the shapes of the first labels and predictions.
  Metric(const char* name, std::source_location where = std::source_location::current());
  Metric(const std::string& name, std::source_location where = std::source_location::current());
  Metric(std::shared_ptr<MetricBase> base) : base_(std::move(base)) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return base_ != nullptr; }
  const std::string& name(std::source_location where = std::source_location::current()) const;
  // Works eagerly and traced; inside replicas the state stays the same on each. The mask that y_pred carries
  // is honoured. A metric of one value, such as Mean, takes (values) or (values, sample_weight).
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {},
                    std::source_location where = std::source_location::current()) const;
  void update_state(const Tensor& values, std::source_location where = std::source_location::current()) const;
  // A scalar mostly; 0 before the first update.
  Tensor result(std::source_location where = std::source_location::current()) const;
  void reset_state(std::source_location where = std::source_location::current()) const;
  std::vector<Variable> variables(std::source_location where = std::source_location::current()) const;

  Json serialize() const;
  static Metric deserialize(const Json& json, std::source_location where = std::source_location::current());
  const std::shared_ptr<MetricBase>& base() const { return base_; }

 private:
  MetricBase& checked(std::source_location where) const;

  std::shared_ptr<MetricBase> base_;
};

// What a metric is: derive from it to write one.
class MetricBase {
 public:
  explicit MetricBase(std::string name) : name_(std::move(name)) {}
  virtual ~MetricBase() = default;

  // Adds a batch to the state. What is summed over the batch must be summed over the replicas too
  // (all_reduce_sum) before it is assigned.
  virtual void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) = 0;
  virtual Tensor result() const = 0;  // a scalar mostly
  // What files call it; empty: it is written as its name alone.
  virtual std::string class_name() const = 0;
  virtual Json config() const;  // name and dtype; add your own
  // Whether it is updated with values rather than with labels and predictions; they come as y_pred.
  virtual bool takes_values() const { return false; }
  // Default: every variable becomes zero.
  virtual void reset();
  // Called before the first update, outside of any trace; only the shapes of labels and predictions (no
  // labels for a metric of one value) may be looked at. The place for add_variable().
  virtual void build(const Tensor& y_true, const Tensor& y_pred);

  // The variables of Keras' metric of this class, by name, where the state is kept in another form. Default:
  // none.
  virtual std::vector<std::pair<std::string, Tensor>> keras_state() const { return {}; }

  const std::string& name() const { return name_; }
  const std::vector<Variable>& variables() const { return variables_; }
  bool built() const { return built_; }
  void ensure_built(const Tensor& y_true, const Tensor& y_pred);
  // What it counts and sums in: float64 where the first predictions were, else float32.
  DType dtype() const { return dtype_; }

 protected:
  // Zero, of dtype().
  Variable add_variable(const std::string& name, const Shape& shape = {});
  Variable add_variable(const std::string& name, const Tensor& initial);
  void set_name(std::string name) { name_ = std::move(name); }

 private:
  std::string name_;
  std::vector<Variable> variables_;
  DType dtype_ = DType::float32;
  bool built_ = false;
};

// Keras' metrics, with its defaults. An empty name stands for the metric's own: "mean_squared_error", ...
namespace metrics {

struct MetricOptions {
  std::string name = {};
};

// --- of values ---------------------------------------------------------------------------------------------

// Values are one per example. Inside a replica a scalar counts as a mean over the replica's examples.
Metric Mean(const MetricOptions& options = {});
Metric Sum(const MetricOptions& options = {});

// --- means over examples -----------------------------------------------------------------------------------

struct MeanMetricWrapperOptions {
  std::string name = "mean_metric_wrapper";
};
// The mean of what a function of labels and predictions gives per example.
Metric MeanMetricWrapper(std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)> f,
                         const MeanMetricWrapperOptions& options = {},
                         std::source_location where = std::source_location::current());

Metric Accuracy(const MetricOptions& options = {});  // equal elements
struct BinaryAccuracyOptions {
  std::string name = {};
  double threshold = 0.5;
};
Metric BinaryAccuracy(const BinaryAccuracyOptions& options = {},
                      std::source_location where = std::source_location::current());
Metric CategoricalAccuracy(const MetricOptions& options = {});
Metric SparseCategoricalAccuracy(const MetricOptions& options = {});
struct TopKOptions {
  int64_t k = 5;
  std::string name = {};
};
Metric TopKCategoricalAccuracy(const TopKOptions& options = {},
                               std::source_location where = std::source_location::current());
struct SparseTopKOptions {
  int64_t k = 5;
  std::string name = {};
  bool from_sorted_ids = false;  // predictions are class numbers, the most probable first
};
Metric SparseTopKCategoricalAccuracy(const SparseTopKOptions& options = {},
                                     std::source_location where = std::source_location::current());

Metric MeanSquaredError(const MetricOptions& options = {});
Metric RootMeanSquaredError(const MetricOptions& options = {});
Metric MeanAbsoluteError(const MetricOptions& options = {});
Metric MeanAbsolutePercentageError(const MetricOptions& options = {});
Metric MeanSquaredLogarithmicError(const MetricOptions& options = {});
Metric LogCoshError(const MetricOptions& options = {});
Metric KLDivergence(const MetricOptions& options = {});
Metric Poisson(const MetricOptions& options = {});
Metric Hinge(const MetricOptions& options = {});
Metric SquaredHinge(const MetricOptions& options = {});
Metric CategoricalHinge(const MetricOptions& options = {});
struct AxisOptions {
  std::string name = {};
  int axis = -1;
};
// 1 where they point the same way.
Metric CosineSimilarity(const AxisOptions& options = {},
                        std::source_location where = std::source_location::current());
Metric PearsonCorrelation(const AxisOptions& options = {},
                          std::source_location where = std::source_location::current());
Metric ConcordanceCorrelation(const AxisOptions& options = {},
                              std::source_location where = std::source_location::current());
struct BinaryCrossentropyOptions {
  std::string name = {};
  bool from_logits = false;
  double label_smoothing = 0;
};
Metric BinaryCrossentropy(const BinaryCrossentropyOptions& options = {},
                          std::source_location where = std::source_location::current());
struct CategoricalCrossentropyOptions {
  std::string name = {};
  bool from_logits = false;
  double label_smoothing = 0;
  int axis = -1;
};
Metric CategoricalCrossentropy(const CategoricalCrossentropyOptions& options = {},
                               std::source_location where = std::source_location::current());
struct SparseCategoricalCrossentropyOptions {
  std::string name = {};
  bool from_logits = false;
  std::optional<int64_t> ignore_class = {};  // examples with this label count as 0
  int axis = -1;
};
Metric SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {},
                                     std::source_location where = std::source_location::current());

// --- counts of right and wrong -----------------------------------------------------------------------------

struct ThresholdOptions {
  std::vector<double> thresholds = {};  // empty: 0.5; several give a result each
  std::string name = {};
};
Metric TruePositives(const ThresholdOptions& options = {},
                     std::source_location where = std::source_location::current());
Metric TrueNegatives(const ThresholdOptions& options = {},
                     std::source_location where = std::source_location::current());
Metric FalsePositives(const ThresholdOptions& options = {},
                      std::source_location where = std::source_location::current());
Metric FalseNegatives(const ThresholdOptions& options = {},
                      std::source_location where = std::source_location::current());

struct PrecisionOptions {
  std::vector<double> thresholds = {};
  std::optional<int64_t> top_k = {};     // the k largest of an example count as predicted
  std::optional<int64_t> class_id = {};  // looks at this class only
  std::string name = {};
};
Metric Precision(const PrecisionOptions& options = {},
                 std::source_location where = std::source_location::current());
Metric Recall(const PrecisionOptions& options = {},
              std::source_location where = std::source_location::current());

struct FBetaScoreOptions {
  std::optional<std::string> average = {};  // micro, macro, weighted; nullopt: a score for each class
  double beta = 1;
  std::optional<double> threshold = {};  // nullopt: the largest of an example counts as predicted
  std::string name = {};
};
Metric FBetaScore(const FBetaScoreOptions& options = {},
                  std::source_location where = std::source_location::current());
struct F1ScoreOptions {
  std::optional<std::string> average = {};
  std::optional<double> threshold = {};
  std::string name = {};
};
Metric F1Score(const F1ScoreOptions& options = {},
               std::source_location where = std::source_location::current());

struct AUCOptions {
  int64_t num_thresholds = 200;
  std::string curve = "ROC";                       // ROC, PR, PRGAIN
  std::string summation_method = "interpolation";  // interpolation, majoring, minoring
  std::string name = {};
  std::vector<double> thresholds = {};  // in place of num_thresholds; 0 and 1 are added
  bool multi_label = false;             // the mean over the areas of the labels
  std::vector<double> label_weights = {};
  bool from_logits = false;
};
Metric AUC(const AUCOptions& options = {}, std::source_location where = std::source_location::current());

struct AtOptions {
  int64_t num_thresholds = 200;
  std::optional<int64_t> class_id = {};
  std::string name = {};
};
// The best of the one among the thresholds at which the other is reached.
Metric SensitivityAtSpecificity(double specificity, const AtOptions& options = {},
                                std::source_location where = std::source_location::current());
Metric SpecificityAtSensitivity(double sensitivity, const AtOptions& options = {},
                                std::source_location where = std::source_location::current());
Metric PrecisionAtRecall(double recall, const AtOptions& options = {},
                         std::source_location where = std::source_location::current());
Metric RecallAtPrecision(double precision, const AtOptions& options = {},
                         std::source_location where = std::source_location::current());

// --- of classes --------------------------------------------------------------------------------------------

// Entry (i, j): the weight of examples of class i that were taken for class j. Labels are class numbers or of
// the predictions' shape; predictions are class numbers, or scores of each class in the last dimension.
Metric ConfusionMatrix(int64_t num_classes, const MetricOptions& options = {},
                       std::source_location where = std::source_location::current());

struct IoUOptions {
  std::string name = {};
  std::optional<int64_t> ignore_class = {};
  bool sparse_y_true = true;  // class numbers; false: scores of each class along `axis`
  bool sparse_y_pred = true;
  int axis = -1;
};
Metric IoU(int64_t num_classes, const std::vector<int64_t>& target_class_ids, const IoUOptions& options = {},
           std::source_location where = std::source_location::current());
Metric MeanIoU(int64_t num_classes, const IoUOptions& options = {},
               std::source_location where = std::source_location::current());
struct BinaryIoUOptions {
  std::vector<int64_t> target_class_ids = {0, 1};
  double threshold = 0.5;
  std::string name = {};
};
Metric BinaryIoU(const BinaryIoUOptions& options = {},
                 std::source_location where = std::source_location::current());
struct OneHotIoUOptions {
  std::string name = {};
  std::optional<int64_t> ignore_class = {};
  bool sparse_y_pred = false;
  int axis = -1;
};
Metric OneHotIoU(int64_t num_classes, const std::vector<int64_t>& target_class_ids,
                 const OneHotIoUOptions& options = {},
                 std::source_location where = std::source_location::current());
Metric OneHotMeanIoU(int64_t num_classes, const OneHotIoUOptions& options = {},
                     std::source_location where = std::source_location::current());

// --- regression --------------------------------------------------------------------------------------------

struct R2ScoreOptions {
  // uniform_average, variance_weighted_average; nullopt: a score for each output
  std::optional<std::string> class_aggregation = "uniform_average";
  int64_t num_regressors = 0;  // above 0: the adjusted score
  std::string name = {};
};
Metric R2Score(const R2ScoreOptions& options = {},
               std::source_location where = std::source_location::current());

// Makes one of your own readable from files: `make` gets what MetricBase::config() wrote.
void register_metric(const std::string& class_name, std::function<Metric(const Json& config)> make);

}  // namespace metrics

}  // namespace lockstep::keras
