// Connectionist temporal classification (Graves et al., 2006).
#include "keras/weighing.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/keras/losses.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::losses {
namespace {

// The logarithm of a probability that is as good as 0, and yet a number to compute with.
constexpr double kImpossible = -1e5;

// log(exp(a) + exp(b)). The larger of the two is only there for the digits: its gradient cancels.
Tensor either(const Tensor& a, const Tensor& b) {
  const Tensor larger = stop_gradient(maximum(a, b));
  return larger + log(exp(a - larger) + exp(b - larger));
}

// `x` with `more` added, as probabilities, to all but its first column.
Tensor with_later(const Tensor& x, const Tensor& more) {
  const Tensor first = slice(x, {0, 0}, {-1, 1}), later = slice(x, {0, 1}, {-1, -1});
  return concat(TensorList{first, either(later, more)}, 1);
}

// 1 in the columns from `length` on: (examples, columns).
Tensor from_length(const Tensor& length, int64_t columns) {
  return expand_dims(cast(length, DType::int32), 1) <= expand_dims(range(static_cast<double>(columns)), 0);
}

}  // namespace

// The labels are states in a row, each with a blank before it, and one blank behind the last. `blank[n]` is
// the logarithm of the probability of all ways so far that end in the blank before label n, `label[n]` of
// those that end in label n.
Tensor ctc(const TensorArg& given_labels, const TensorArg& given_logits, const CTCOptions& options) {
  const std::source_location here = given_labels.where();
  const CallSite site(here);
  const Tensor &labels = given_labels.tensor("ctc"), &logits = given_logits.tensor("ctc");
  require(labels.rank() == 2 && logits.rank() == 3 && labels.shape()[0] == logits.shape()[0],
          ErrorCode::shape_mismatch, here,
          "CTC takes labels (examples, length) and logits (examples, time, classes), received ",
          labels.shape(), " and ", logits.shape());
  const int64_t examples = labels.shape()[0], length = labels.shape()[1];
  const int64_t time = logits.shape()[1], classes = logits.shape()[2];
  require(time > 0 && length > 0 && options.mask_index >= 0 && options.mask_index < classes,
          ErrorCode::invalid_argument, here, "CTC needs a step, a label and mask_index in [0, ", classes,
          "), received logits ", logits.shape(), ", labels ", labels.shape(), " and mask_index ",
          options.mask_index);
  const DType dtype = value_dtype(logits.dtype());
  const Tensor padding = equal(labels, options.mask_index);
  const Tensor label_length = options.label_length.defined()
                                  ? options.label_length
                                  : reduce_sum(cast(logical_not(padding), DType::int32), {.axis = {1}});

  const Tensor scores = transpose(log_softmax(cast(logits, dtype)), {1, 0, 2});  // (time, examples, classes)
  const Tensor blanks = slice(scores, {0, 0, options.mask_index}, {-1, -1, 1});
  // (time, examples, length): what each label scores at each step.
  const Tensor spelled = transpose(gather(transpose(scores, {1, 0, 2}), labels, 2, 1), {1, 0, 2});

  // Where the next label is the same again, a blank must come between.
  const Tensor next = slice(labels, {0, 1}, {-1, -1}), last = slice(labels, {0, length - 1}, {-1, 1});
  const Tensor repeats = concat(TensorList{cast(equal(slice(labels, {0, 0}, {-1, length - 1}), next), dtype),
                                           zeros_like(cast(last, dtype))},
                                1);
  const Tensor unless_repeated = repeats * kImpossible, only_repeated = (1.0 - repeats) * kImpossible;

  TensorList elems = {spelled, blanks};
  if (options.logit_length.defined())
    elems.push_back(expand_dims(transpose(from_length(options.logit_length, time)), -1));
  const auto step = [&](std::span<const Tensor> carry, std::span<const Tensor> x) {
    const Tensor &blank = carry[0], &label = carry[1];
    const Tensor before = with_later(blank, label + unless_repeated);
    const Tensor here_before = slice(before, {0, 0}, {-1, length});
    ScanResult result{
        {with_later(before + x[1], label + x[1] + only_repeated), either(here_before + x[0], label + x[0])},
        {}};
    for (size_t i = 0; i < carry.size() && x.size() > 2; ++i)
      result.carry[i] = where(x[2], carry[i], result.carry[i]);
    return result;
  };
  const Tensor nothing = Tensor::full(dtype, {examples, length}, kImpossible);
  const ScanResult ways =
      scan(step, TensorList{concat(TensorList{Tensor::full(dtype, {examples, 1}, 0), nothing}, 1), nothing},
           std::move(elems));
  const Tensor ends = with_later(ways.carry[0], ways.carry[1]);
  return -reduce_sum(ends * one_hot(cast(label_length, DType::int32), length + 1, dtype), {.axis = {1}});
}

}  // namespace lockstep::keras::losses
