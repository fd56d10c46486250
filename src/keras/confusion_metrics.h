// Metrics that count right and wrong: by threshold, by class; and what is computed from such sums at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "keras/registry.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {

// Called once each, by enter_confusion_metrics().
void enter_count_metrics(Registry<Metric>& registry);
void enter_curve_metrics(Registry<Metric>& registry);
void enter_f_scores(Registry<Metric>& registry);
void enter_confusion_matrices(Registry<Metric>& registry);
void enter_r2_score(Registry<Metric>& registry);

constexpr double kEpsilon = 1e-7;       // Keras'
constexpr double kNeverChosen = -1e10;  // below every score

inline Tensor constant(const std::vector<double>& values, DType dtype) {
  return cast(Tensor::from(values, {static_cast<int64_t>(values.size())}), dtype);
}

inline Tensor flat(const Tensor& x) { return reshape(x, {-1}); }

// Labels, predictions and weights, one element each.
struct Flat {
  Tensor labels;  // 0 or 1
  Tensor predictions;
  Tensor weights;  // undefined: 1 each
};
// Of the `k` highest scores alone, and of one class, where they are given.
Flat flattened(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight, DType dtype,
               const std::optional<int64_t>& k, const std::optional<int64_t>& class_id);

}  // namespace lockstep::keras
