#include "keras/confusion_metrics.h"

#include "keras/metric_rule.h"
#include "lockstep/ops/sort.h"

namespace lockstep::keras {
namespace {

void check_class_id(const std::optional<int64_t>& class_id, const Tensor& predictions) {
  require(!class_id || (predictions.rank() > 1 && *class_id >= 0 && *class_id < predictions.shape()[-1]),
          ErrorCode::invalid_argument, std::source_location::current(), "class_id ", class_id.value_or(0),
          " is no class of predictions of shape ", predictions.shape());
}

}  // namespace

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

void enter_confusion_metrics(Registry<Metric>& registry) {
  enter_count_metrics(registry);
  enter_curve_metrics(registry);
  enter_f_scores(registry);
  enter_confusion_matrices(registry);
  enter_r2_score(registry);
}

}  // namespace lockstep::keras
