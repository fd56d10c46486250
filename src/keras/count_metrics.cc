// Counts of right and wrong at a few thresholds, and their shares.
#include <vector>

#include "keras/confusion_metrics.h"
#include "keras/metric_rule.h"
#include "lockstep/base/call_site.h"

namespace lockstep::keras {
namespace {

Tensor first_element(const Tensor& x) { return reshape(slice(x, {0}, {1}), {}); }

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

}  // namespace

void enter_count_metrics(Registry<Metric>& registry) {
  enter_metric<CountMetric, CountSettings<kTruePositives>>(registry);
  enter_metric<CountMetric, CountSettings<kTrueNegatives>>(registry);
  enter_metric<CountMetric, CountSettings<kFalsePositives>>(registry);
  enter_metric<CountMetric, CountSettings<kFalseNegatives>>(registry);
  enter_metric<ShareMetric, PrecisionSettings>(registry);
  enter_metric<ShareMetric, RecallSettings>(registry);
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

}  // namespace metrics
}  // namespace lockstep::keras
