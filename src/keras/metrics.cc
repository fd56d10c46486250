#include "lockstep/keras/metrics.h"

#include "graph/emit.h"
#include "keras/metric_rule.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/losses.h"
#include "lockstep/ops/sort.h"
#include "ops/array/lookup.h"

namespace lockstep::keras {

// --- MetricBase --------------------------------------------------------------------------------------------

Json MetricBase::config() const {
  return Json::object({{"name", name_}, {"dtype", std::string(lockstep::name(dtype_))}});
}

void MetricBase::reset() {
  for (const Variable& variable : variables_) variable.assign(zeros_like(variable));
}

void MetricBase::build(const Tensor&, const Tensor&) {}

void MetricBase::ensure_built(const Tensor& y_true, const Tensor& y_pred) {
  if (built_) return;
  const TracePause pause;
  dtype_ = value_dtype(y_pred.dtype());
  build(y_true, y_pred);
  built_ = true;
}

Variable MetricBase::add_variable(const std::string& name, const Shape& shape) {
  const TracePause pause;
  return add_variable(name, zeros(shape, dtype_));
}

Variable MetricBase::add_variable(const std::string& name, const Tensor& initial) {
  const TracePause pause;
  return variables_.emplace_back(initial, VariableOptions{.name = name_ + "/" + name, .trainable = false});
}

namespace {

// --- means -------------------------------------------------------------------------------------------------

// A replica's part of the batch; 1 outside of replicas.
double replica_share() {
  const ReplicaTrace* replica = ReplicaTrace::current();
  return replica ? replica->share() : 1;
}

// The weighted mean of values. Every example weighs the same, whatever the number of its values.
class MeanBase : public MetricBase {
 public:
  using MetricBase::MetricBase;
  void build(const Tensor&, const Tensor&) override {
    state_ = add_variable("total_and_count", {2});
    total_ = cast(Tensor::from<float>({1, 0}, {2}), dtype());
    count_ = cast(Tensor::from<float>({0, 1}, {2}), dtype());
  }
  Tensor result() const override { return divide_no_nan(element(0), element(1)); }
  std::vector<std::pair<std::string, Tensor>> keras_state() const override {
    if (!built()) return {};
    return {{"total", element(0)}, {"count", element(1)}};
  }

 protected:
  // `weights` are of dtype(). Sum and count are one variable, so that a step pays for one update, and
  // replicas for one exchange.
  void add(const Tensor& unweighted, const Tensor& weights) {
    const Tensor values = cast(unweighted, dtype());
    const Tensor weighted = product(values, weights);
    if (values.rank() == 0) {
      const double share = replica_share();
      const Tensor count = weights.defined() ? count_ * weights : count_;
      state_.assign_add(all_reduce_sum((total_ * weighted + count) * share));
      return;
    }
    const auto examples = static_cast<double>(global_batch_size(values));
    const double each = examples > 0 ? static_cast<double>(global_size(values)) / examples : 1;
    const Tensor total = total_ * (reduce_sum(weighted) * (1 / each));
    if (weights.defined()) {
      const Tensor count = count_ * (local_sum(weights, values.shape()) * (1 / each));
      state_.assign_add(all_reduce_sum(total + count));
    } else {
      state_.assign_add(all_reduce_sum(total) + count_ * examples);
    }
  }

 private:
  Tensor element(int64_t i) const { return reshape(slice(state_.value(), {i}, {1}), {}); }

  Variable state_;
  Tensor total_, count_;  // unit vectors
};

// The mean of what Settings::values() gives for each example, or of a loss.
template <class Settings>
class MeanOver final : public SettingsMetric<Settings, MeanBase> {
 public:
  explicit MeanOver(const Settings& settings) : SettingsMetric<Settings, MeanBase>(settings) {
    if constexpr (requires { settings.loss(); }) loss_ = settings.loss();
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const bool class_numbers = loss_.defined() ? loss_.rule().takes_class_numbers() : requires {
      Settings::kClassNumbers;
    };
    const auto [labels, predictions] = prepared(y_true, y_pred, sample_weight, class_numbers);
    Tensor values;
    if constexpr (requires { this->settings_.loss(); })
      values = loss_.rule().losses(labels, predictions);
    else
      values = this->settings_.values(labels, predictions);
    // Keras leaves out what a loss ignores only where there are weights; else it counts as 0.
    if (!sample_weight.defined()) values.impl()->mask.reset();
    this->add(values, merged_weights(sample_weight, y_pred, values, this->dtype()));
  }
  Tensor result() const override {
    if constexpr (requires { this->settings_.finish(Tensor()); })
      return this->settings_.finish(MeanBase::result());
    return MeanBase::result();
  }

 private:
  Loss loss_;
};

// --- accuracies --------------------------------------------------------------------------------------------

Tensor matches(const Tensor& a, const Tensor& b) { return cast(equal(a, b), DType::float32); }

// Labels as class numbers of the predictions' shape without its last dimension.
Tensor sparse_labels(const char* metric, const Tensor& labels, const Tensor& predictions) {
  const Tensor numbers = whole_numbers(without_width(labels, predictions, -1));
  require(predictions.rank() > 0 && numbers.shape() == predictions.shape().drop_last(1),
          ErrorCode::shape_mismatch, std::source_location::current(), metric, ": class numbers of shape ",
          labels.shape(), " do not fit predictions of shape ", predictions.shape());
  return numbers;
}

void check_shapes(const char* metric, const Tensor& y_true, const Tensor& y_pred) {
  require(y_true.shape() == y_pred.shape(), ErrorCode::shape_mismatch, std::source_location::current(),
          metric, ": labels of shape ", y_true.shape(), " do not fit predictions of shape ", y_pred.shape());
}

struct AccuracySettings : metrics::MetricOptions {
  static constexpr const char* kName = "Accuracy";
  void visit(auto&) {}
  Tensor values(const Tensor& y, const Tensor& p) const {
    check_shapes(kName, y, p);
    return matches(y, p);
  }
};

struct BinaryAccuracySettings : metrics::BinaryAccuracyOptions {
  static constexpr const char* kName = "BinaryAccuracy";
  void visit(auto& v) { v("threshold", threshold, kFinite); }
  Tensor values(const Tensor& y, const Tensor& p) const {
    check_shapes(kName, y, p);
    return matches(y, cast(p > threshold, y.dtype()));
  }
};

struct CategoricalAccuracySettings : metrics::MetricOptions {
  static constexpr const char* kName = "CategoricalAccuracy";
  void visit(auto&) {}
  Tensor values(const Tensor& y, const Tensor& p) const {
    check_shapes(kName, y, p);
    return matches(argmax(y), argmax(p));
  }
};

struct SparseCategoricalAccuracySettings : metrics::MetricOptions {
  static constexpr const char* kName = "SparseCategoricalAccuracy";
  static constexpr bool kClassNumbers = true;
  void visit(auto&) {}
  Tensor values(const Tensor& y, const Tensor& p) const {
    return matches(sparse_labels(kName, y, p), argmax(p));
  }
};

Tensor among_top_k(const Tensor& labels, const Tensor& scores, int64_t k) {
  const Tensor found =
      in_top_k(reshape(labels, {-1}), reshape(scores, {labels.size(), scores.shape()[-1]}), k);
  return cast(reshape(found, labels.shape()), DType::float32);
}

struct TopKCategoricalAccuracySettings : metrics::TopKOptions {
  static constexpr const char* kName = "TopKCategoricalAccuracy";
  void visit(auto& v) { v("k", k, kPositive); }
  Tensor values(const Tensor& y, const Tensor& p) const {
    check_shapes(kName, y, p);
    return among_top_k(argmax(y), p, k);
  }
};

struct SparseTopKCategoricalAccuracySettings : metrics::SparseTopKOptions {
  static constexpr const char* kName = "SparseTopKCategoricalAccuracy";
  static constexpr bool kClassNumbers = true;
  void visit(auto& v) {
    v("k", k, kPositive);
    v("from_sorted_ids", from_sorted_ids);
  }
  Tensor values(const Tensor& y, const Tensor& p) const {
    const Tensor labels = sparse_labels(kName, y, p);
    if (!from_sorted_ids) return among_top_k(labels, p, k);
    Dims size = Dims::filled(p.rank(), -1);
    size[-1] = std::min(k, p.shape()[-1]);
    const Tensor first = cast(slice(p, Dims::filled(p.rank(), 0), size), labels.dtype());
    return cast(reduce_any(equal(expand_dims(labels, -1), first), {.axis = {-1}}), DType::float32);
  }
};

struct RootMeanSquaredErrorSettings : metrics::MetricOptions {
  static constexpr const char* kName = "RootMeanSquaredError";
  void visit(auto&) {}
  Tensor values(const Tensor& y, const Tensor& p) const {
    check_shapes(kName, y, p);
    return square(p - y);
  }
  Tensor finish(const Tensor& mean) const { return sqrt(mean); }
};

// Along an axis, each example's own.
Tensor centred(const Tensor& x, int axis) { return x - reduce_mean(x, {.axis = {axis}, .keepdims = true}); }
Tensor variance(const Tensor& x, int axis) {
  return reduce_mean(square(centred(x, axis)), {.axis = {axis}, .keepdims = true});
}

struct PearsonCorrelationSettings : metrics::AxisOptions {
  static constexpr const char* kName = "PearsonCorrelation";
  void visit(auto& v) { v("axis", axis, kFinite); }
  Tensor values(const Tensor& y, const Tensor& p) const {
    check_shapes(kName, y, p);
    const auto standard = [&](const Tensor& x) { return centred(x, axis) / sqrt(variance(x, axis)); };
    return reduce_mean(standard(y) * standard(p), {.axis = {axis}});
  }
};

struct ConcordanceCorrelationSettings : metrics::AxisOptions {
  static constexpr const char* kName = "ConcordanceCorrelation";
  void visit(auto& v) { v("axis", axis, kFinite); }
  Tensor values(const Tensor& y, const Tensor& p) const {
    check_shapes(kName, y, p);
    const auto mean = [&](const Tensor& x) { return reduce_mean(x, {.axis = {axis}, .keepdims = true}); };
    const Tensor scale = variance(y, axis) + variance(p, axis) + square(mean(y) - mean(p));
    return reduce_mean((y - mean(p)) * (p - mean(p)) * 2.0 / (scale + 1e-7), {.axis = {axis}});
  }
};

// --- means of losses ---------------------------------------------------------------------------------------

struct NamedLoss {
  const char* name;
  const char* own_name;
  Loss (*make)(const losses::LossOptions&);
};
constexpr NamedLoss kMeanSquaredError{"MeanSquaredError", "mean_squared_error", losses::MeanSquaredError};
constexpr NamedLoss kMeanAbsoluteError{"MeanAbsoluteError", "mean_absolute_error", losses::MeanAbsoluteError};
constexpr NamedLoss kMeanAbsolutePercentageError{
    "MeanAbsolutePercentageError", "mean_absolute_percentage_error", losses::MeanAbsolutePercentageError};
constexpr NamedLoss kMeanSquaredLogarithmicError{
    "MeanSquaredLogarithmicError", "mean_squared_logarithmic_error", losses::MeanSquaredLogarithmicError};
constexpr NamedLoss kLogCoshError{"LogCoshError", "logcosh", losses::LogCosh};
constexpr NamedLoss kKLDivergence{"KLDivergence", "kl_divergence", losses::KLDivergence};
constexpr NamedLoss kPoisson{"Poisson", "poisson", losses::Poisson};
constexpr NamedLoss kHinge{"Hinge", "hinge", losses::Hinge};
constexpr NamedLoss kSquaredHinge{"SquaredHinge", "squared_hinge", losses::SquaredHinge};
constexpr NamedLoss kCategoricalHinge{"CategoricalHinge", "categorical_hinge", losses::CategoricalHinge};

template <const NamedLoss& kNamed>
struct OfLoss : metrics::MetricOptions {
  static constexpr const char* kName = kNamed.name;
  static constexpr const char* kOwnName = kNamed.own_name;
  void visit(auto&) {}
  Loss loss() const { return kNamed.make({}); }
};

struct CosineSimilaritySettings : metrics::AxisOptions {
  static constexpr const char* kName = "CosineSimilarity";
  void visit(auto& v) { v("axis", axis, kFinite); }
  Loss loss() const { return losses::CosineSimilarity({.axis = axis}); }
  Tensor finish(const Tensor& mean) const { return -mean; }
};

struct BinaryCrossentropySettings : metrics::BinaryCrossentropyOptions {
  static constexpr const char* kName = "BinaryCrossentropy";
  void visit(auto& v) {
    v("from_logits", from_logits);
    v("label_smoothing", label_smoothing, kShare);
  }
  Loss loss() const {
    return losses::BinaryCrossentropy({.from_logits = from_logits, .label_smoothing = label_smoothing});
  }
};

struct CategoricalCrossentropySettings : metrics::CategoricalCrossentropyOptions {
  static constexpr const char* kName = "CategoricalCrossentropy";
  void visit(auto& v) {
    v("from_logits", from_logits);
    v("label_smoothing", label_smoothing, kShare);
    v("axis", axis, kFinite);
  }
  Loss loss() const {
    return losses::CategoricalCrossentropy(
        {.from_logits = from_logits, .label_smoothing = label_smoothing, .axis = axis});
  }
};

struct SparseCategoricalCrossentropySettings : metrics::SparseCategoricalCrossentropyOptions {
  static constexpr const char* kName = "SparseCategoricalCrossentropy";
  void visit(auto& v) {
    v("from_logits", from_logits);
    v("ignore_class", ignore_class, kFinite);
    v("axis", axis, kFinite);
  }
  Loss loss() const {
    return losses::SparseCategoricalCrossentropy(
        {.from_logits = from_logits, .ignore_class = ignore_class, .axis = axis});
  }
};

// --- others ------------------------------------------------------------------------------------------------

// "accuracy" or "crossentropy": which one the shapes say.
class ByShape final : public MeanBase {
 public:
  ByShape(std::string name, bool accuracy) : MeanBase(std::move(name)), accuracy_(accuracy) {}
  std::string class_name() const override { return {}; }
  void build(const Tensor& y_true, const Tensor& y_pred) override {
    MeanBase::build(y_true, y_pred);
    kind_ = label_kind(y_true.shape(), y_pred.shape());
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const auto [labels, predictions] = prepared(y_true, y_pred, sample_weight, kind_ == LabelKind::sparse);
    const Tensor per_example = values(labels, predictions);
    add(per_example, merged_weights(sample_weight, y_pred, per_example, dtype()));
  }

 private:
  Tensor values(const Tensor& y, const Tensor& p) const {
    if (!accuracy_) return Loss("crossentropy").rule().losses(y, p);
    switch (kind_) {
      case LabelKind::binary: return BinaryAccuracySettings().values(y, p);
      case LabelKind::sparse: return SparseCategoricalAccuracySettings().values(y, p);
      case LabelKind::categorical: break;
    }
    return CategoricalAccuracySettings().values(y, p);
  }

  bool accuracy_;
  LabelKind kind_ = LabelKind::categorical;
};

std::shared_ptr<MetricBase> by_shape(const std::string& name) {
  const bool accuracy = name == "accuracy" || name == "acc";
  if (!accuracy && name != "crossentropy" && name != "ce") return nullptr;
  return std::make_shared<ByShape>(name, accuracy);
}

class MeanOfFunction final : public MeanBase {
 public:
  MeanOfFunction(LossFunction f, std::string name) : MeanBase(std::move(name)), f_(std::move(f)) {}
  std::string class_name() const override { return "function"; }
  Json config() const override {
    require(metric_registry().contains(name()), ErrorCode::unsupported, std::source_location::current(),
            "the metric \"", name(),
            "\" is a function, which files know by its name alone; make that known by "
            "metrics::register_metric()");
    return name();
  }
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) override {
    const auto [labels, predictions] = prepared(y_true, y_pred, sample_weight, false);
    const Tensor values = f_(labels, predictions);
    add(values, merged_weights(sample_weight, y_pred, values, dtype()));
  }

 private:
  LossFunction f_;
};

struct MeanSettings : metrics::MetricOptions {
  static constexpr const char* kName = "Mean";
  void visit(auto&) {}
};

template <class Settings>
class MeanOfValues final : public SettingsMetric<Settings, MeanBase> {
 public:
  using SettingsMetric<Settings, MeanBase>::SettingsMetric;
  bool takes_values() const override { return true; }
  void update(const Tensor&, const Tensor& values, const Tensor& sample_weight) override {
    const Tensor converted = cast(values, this->dtype());
    this->add(converted, merged_weights(sample_weight, values, converted));
  }
};

struct SumSettings : metrics::MetricOptions {
  static constexpr const char* kName = "Sum";
  void visit(auto&) {}
};

template <class Settings>
class SumOfValues final : public SettingsMetric<Settings> {
 public:
  using SettingsMetric<Settings>::SettingsMetric;
  bool takes_values() const override { return true; }
  void build(const Tensor&, const Tensor&) override { total_ = this->add_variable("total"); }
  void update(const Tensor&, const Tensor& values, const Tensor& sample_weight) override {
    const Tensor converted = cast(values, this->dtype());
    const Tensor weighted = product(converted, merged_weights(sample_weight, values, converted));
    total_.assign_add(all_reduce_sum(values.rank() == 0 ? weighted * replica_share() : reduce_sum(weighted)));
  }
  Tensor result() const override { return total_.value(); }

 private:
  Variable total_;
};

}  // namespace

Registry<Metric>& metric_registry() {
  static Registry<Metric>& all = *[] {
    static Registry<Metric> made("metric");
    enter_metric<MeanOfValues, MeanSettings>(made);
    enter_metric<SumOfValues, SumSettings>(made);
    enter_metric<MeanOver, AccuracySettings>(made);
    enter_metric<MeanOver, BinaryAccuracySettings>(made);
    enter_metric<MeanOver, CategoricalAccuracySettings>(made);
    enter_metric<MeanOver, SparseCategoricalAccuracySettings>(made);
    enter_metric<MeanOver, TopKCategoricalAccuracySettings>(made);
    enter_metric<MeanOver, SparseTopKCategoricalAccuracySettings>(made);
    enter_metric<MeanOver, OfLoss<kMeanSquaredError>>(made, {"mse", "MSE"});
    enter_metric<MeanOver, RootMeanSquaredErrorSettings>(made);
    enter_metric<MeanOver, OfLoss<kMeanAbsoluteError>>(made, {"mae", "MAE"});
    enter_metric<MeanOver, OfLoss<kMeanAbsolutePercentageError>>(made, {"mape", "MAPE"});
    enter_metric<MeanOver, OfLoss<kMeanSquaredLogarithmicError>>(made, {"msle", "MSLE"});
    enter_metric<MeanOver, OfLoss<kLogCoshError>>(made, {"logcosh"});
    enter_metric<MeanOver, OfLoss<kKLDivergence>>(made, {"kld", "KLD"});
    enter_metric<MeanOver, OfLoss<kPoisson>>(made);
    enter_metric<MeanOver, OfLoss<kHinge>>(made);
    enter_metric<MeanOver, OfLoss<kSquaredHinge>>(made);
    enter_metric<MeanOver, OfLoss<kCategoricalHinge>>(made);
    enter_metric<MeanOver, CosineSimilaritySettings>(made);
    enter_metric<MeanOver, PearsonCorrelationSettings>(made);
    enter_metric<MeanOver, ConcordanceCorrelationSettings>(made);
    enter_metric<MeanOver, BinaryCrossentropySettings>(made, {"bce", "BCE"});
    enter_metric<MeanOver, CategoricalCrossentropySettings>(made);
    enter_metric<MeanOver, SparseCategoricalCrossentropySettings>(made);
    enter_confusion_metrics(made);
    return &made;
  }();
  return all;
}
const Catalogued& known_metrics() { return metric_registry(); }

// --- Metric ------------------------------------------------------------------------------------------------

Metric::Metric(const char* name, std::source_location where) : Metric(std::string(name), where) {}

// A metric that is asked for by a name is called by that name.
Metric::Metric(const std::string& name, std::source_location where) : base_(by_shape(name)) {
  if (!base_) *this = metric_registry().make(name, Json::object({{"name", name}}), where);
}

MetricBase& Metric::checked(std::source_location where) const {
  require(defined(), ErrorCode::failed_precondition, where,
          "this Metric was default-constructed: it names no metric");
  return *base_;
}
const std::string& Metric::name(std::source_location where) const { return checked(where).name(); }

void Metric::update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                          std::source_location where) const {
  checked(where);
  const CallSite site(where);
  require(y_true.defined() && (y_pred.defined() || base_->takes_values()), ErrorCode::invalid_argument, where,
          name(), base_->takes_values() ? ": takes values" : ": takes labels and predictions");
  require(!base_->takes_values() || !sample_weight.defined(), ErrorCode::invalid_argument, where, name(),
          ": takes values and weights, received a third tensor");
  // State is not part of what a tape differentiates.
  const RecorderPause pause;
  try {
    if (base_->takes_values()) {
      base_->ensure_built({}, y_true);
      base_->update({}, y_true, y_pred);
    } else {
      base_->ensure_built(y_true, y_pred);
      base_->update(y_true, y_pred, sample_weight);
    }
  } catch (Error& error) {
    error.note("in metric " + name());
    throw;
  }
}

void Metric::update_state(const Tensor& values, std::source_location where) const {
  require(defined() && base_->takes_values(), ErrorCode::invalid_argument, where,
          defined() ? name() : "a Metric that is none",
          ": takes labels and predictions, received one tensor");
  update_state(values, {}, {}, where);
}

Tensor Metric::result(std::source_location where) const {
  const CallSite site(where);
  const RecorderPause pause;
  return checked(where).built() ? base_->result() : zeros({});
}

void Metric::reset_state(std::source_location where) const {
  const RecorderPause pause;
  checked(where).reset();
}

std::vector<Variable> Metric::variables(std::source_location where) const {
  return checked(where).variables();
}

Json Metric::serialize() const {
  if (!defined()) return {};
  if (base_->class_name().empty()) return name();
  return serialized("keras.metrics", base_->class_name(), base_->config());
}

Metric Metric::deserialize(const Json& json, std::source_location where) {
  if (json.is_null()) return {};
  return json.is_string() ? Metric(json.as_string(), where) : metric_registry().make(json, where);
}

namespace metrics {

Metric Mean(const MetricOptions& options) { return make_metric<MeanOfValues>(MeanSettings{options}); }
Metric Sum(const MetricOptions& options) { return make_metric<SumOfValues>(SumSettings{options}); }
Metric MeanMetricWrapper(std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)> f,
                         const MeanMetricWrapperOptions& options, std::source_location where) {
  const CallSite site(where);
  return Metric(std::make_shared<MeanOfFunction>(std::move(f), options.name));
}
Metric Accuracy(const MetricOptions& options) { return make_metric<MeanOver>(AccuracySettings{options}); }
Metric BinaryAccuracy(const BinaryAccuracyOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(BinaryAccuracySettings{options});
}
Metric CategoricalAccuracy(const MetricOptions& options) {
  return make_metric<MeanOver>(CategoricalAccuracySettings{options});
}
Metric SparseCategoricalAccuracy(const MetricOptions& options) {
  return make_metric<MeanOver>(SparseCategoricalAccuracySettings{options});
}
Metric TopKCategoricalAccuracy(const TopKOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(TopKCategoricalAccuracySettings{options});
}
Metric SparseTopKCategoricalAccuracy(const SparseTopKOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(SparseTopKCategoricalAccuracySettings{options});
}
Metric MeanSquaredError(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kMeanSquaredError>{options});
}
Metric RootMeanSquaredError(const MetricOptions& options) {
  return make_metric<MeanOver>(RootMeanSquaredErrorSettings{options});
}
Metric MeanAbsoluteError(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kMeanAbsoluteError>{options});
}
Metric MeanAbsolutePercentageError(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kMeanAbsolutePercentageError>{options});
}
Metric MeanSquaredLogarithmicError(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kMeanSquaredLogarithmicError>{options});
}
Metric LogCoshError(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kLogCoshError>{options});
}
Metric KLDivergence(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kKLDivergence>{options});
}
Metric Poisson(const MetricOptions& options) { return make_metric<MeanOver>(OfLoss<kPoisson>{options}); }
Metric Hinge(const MetricOptions& options) { return make_metric<MeanOver>(OfLoss<kHinge>{options}); }
Metric SquaredHinge(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kSquaredHinge>{options});
}
Metric CategoricalHinge(const MetricOptions& options) {
  return make_metric<MeanOver>(OfLoss<kCategoricalHinge>{options});
}
Metric CosineSimilarity(const AxisOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(CosineSimilaritySettings{options});
}
Metric PearsonCorrelation(const AxisOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(PearsonCorrelationSettings{options});
}
Metric ConcordanceCorrelation(const AxisOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(ConcordanceCorrelationSettings{options});
}
Metric BinaryCrossentropy(const BinaryCrossentropyOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(BinaryCrossentropySettings{options});
}
Metric CategoricalCrossentropy(const CategoricalCrossentropyOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(CategoricalCrossentropySettings{options});
}
Metric SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options,
                                     std::source_location where) {
  const CallSite site(where);
  return make_metric<MeanOver>(SparseCategoricalCrossentropySettings{options});
}

void register_metric(const std::string& class_name, std::function<Metric(const Json& config)> make) {
  metric_registry().add(class_name, std::move(make));
}

}  // namespace metrics

}  // namespace lockstep::keras
