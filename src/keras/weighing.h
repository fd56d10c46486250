// How labels, predictions, masks and weights are brought together: what losses and metrics share.
#pragma once

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {

// Undefined where it has none.
inline Tensor carried_mask(const Tensor& tensor) { return Tensor(tensor.impl()->mask); }

// The dtype in which losses and metrics are computed for predictions of `dtype`.
inline DType value_dtype(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

// A last dimension of 1 is added to what has rank 1, or else taken from the other, where ranks differ by one.
// `keep_positions`: predictions keep theirs, because a mask or weights speak of every position.
inline void match_ranks(Tensor& y_true, Tensor& y_pred, bool keep_positions = false) {
  if (y_true.rank() == y_pred.rank() + 1 && y_true.shape()[-1] == 1) {
    if (y_pred.rank() == 1)
      y_pred = expand_dims(y_pred, -1);
    else
      y_true = squeeze(y_true, {-1});
  } else if (y_pred.rank() == y_true.rank() + 1 && y_pred.shape()[-1] == 1) {
    if (y_true.rank() == 1 || keep_positions)
      y_true = expand_dims(y_true, -1);
    else
      y_pred = squeeze(y_pred, {-1});
  }
}

// Labels and predictions as formulas take them.
struct Examples {
  Tensor labels;
  Tensor predictions;
};

// Predictions in value_dtype(), labels brought to their rank and dtype; class numbers come as they are.
inline Examples prepared(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight,
                         bool class_numbers) {
  const DType dtype = value_dtype(y_pred.dtype());
  Examples all{y_true, y_pred.dtype() == dtype ? y_pred : cast(y_pred, dtype)};
  if (class_numbers) return all;
  match_ranks(
      all.labels, all.predictions,
      carried_mask(y_pred).defined() || (sample_weight.defined() && sample_weight.rank() == y_true.rank()));
  if (all.labels.dtype() != dtype) all.labels = cast(all.labels, dtype);
  return all;
}

// `weights` (or a mask) with the rank of `target`, to which they broadcast: missing dimensions are the last.
inline Tensor aligned(const Tensor& weights, const Shape& target, DType dtype, const char* what) {
  Tensor w = weights.dtype() == dtype ? weights : cast(weights, dtype);
  if (w.rank() == target.rank() + 1 && w.shape()[-1] == 1) w = squeeze(w, {-1});
  Shape shape = w.shape();
  while (shape.rank() < target.rank()) shape.push_back(1);
  bool fits = shape.rank() == target.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) fits = shape[i] == target[i] || shape[i] == 1;
  require(fits, ErrorCode::shape_mismatch, std::source_location::current(), what, " of shape ",
          weights.shape(), " do not fit values of shape ", target,
          ": they must be one per example, or broadcast to that shape");
  return shape == w.shape() ? w : reshape(w, shape);
}

// Labels of the predictions' rank lose their dimension of 1 at `axis`.
inline Tensor without_width(const Tensor& labels, const Tensor& predictions, int axis) {
  if (labels.rank() != predictions.rank() || labels.rank() == 0) return labels;
  const int at = normalize_axis(axis, labels.rank(), "labels");
  return labels.shape()[at] == 1 ? squeeze(labels, {at}) : labels;
}

// What "accuracy" and "crossentropy" mean for labels and predictions of these shapes.
enum class LabelKind { binary, sparse, categorical };
inline LabelKind label_kind(const Shape& y_true, const Shape& y_pred) {
  if (y_pred.rank() == 0 || y_pred[-1] == 1) return LabelKind::binary;
  const bool sparse = y_true.rank() < y_pred.rank() || y_true[-1] == 1;
  return sparse ? LabelKind::sparse : LabelKind::categorical;
}

// The product of those that are defined; undefined where none is.
inline Tensor product(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return a * b;
}

// Sample weights times the masks that predictions and `values` carry, aligned with the shape of `values`
// (losses or metric values); undefined where there are neither. Without `dtype` they get that of `values`.
inline Tensor merged_weights(const Tensor& sample_weight, const Tensor& y_pred, const Tensor& values,
                             std::optional<DType> dtype = {}) {
  const auto fit = [&](const Tensor& w, const char* what) {
    return w.defined() ? aligned(w, values.shape(), dtype.value_or(values.dtype()), what) : w;
  };
  const Tensor masks = product(fit(carried_mask(y_pred), "masks"), fit(carried_mask(values), "masks"));
  return product(fit(sample_weight, "sample weights"), masks);
}

// The sum of weights as if they were broadcast to `target`, in this replica.
inline Tensor local_sum(const Tensor& weights, const Shape& target) {
  Shape rows = weights.shape();
  double times = 1;
  for (int i = 1; i < target.rank(); ++i)
    if (rows[i] != target[i]) times *= static_cast<double>(target[i]);
  rows[0] = target[0];
  const Tensor sum = reduce_sum(rows == weights.shape() ? weights : broadcast_to(weights, rows));
  return times == 1 ? sum : sum * times;
}

}  // namespace lockstep::keras
