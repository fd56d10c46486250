// Why a loss is not finite: found after the fact, once somebody has read it.
#pragma once

#include <optional>
#include <string>

#include "keras/training/source.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras {

// The first NaN or infinity of a floating-point tensor, in row-major order.
struct BadElement {
  Dims index;
  double value = 0;
  int64_t count = 0;  // of all that are not finite
};
std::optional<BadElement> find_non_finite(const Tensor& tensor);

struct NonFiniteLoss {
  ModelBase& model;
  const Data::Source& data;
  double loss = 0;         // as it was read
  int64_t step = 0;        // of the epoch, the first being 1, since when it is not finite
  int64_t taken = 0;       // batches of the data that were trained with
  int64_t batch_size = 0;  // of arrays
  const Batch& last;       // the last batch; empty where several steps were one launch
  bool can_run = true;     // whether the model may be run outside of its steps
  double learning_rate = 0;
};

struct NonFiniteVerdict {
  // What was the first to be not finite. A loss alone: the loss function, or layers that are others in
  // training.
  enum class Cause : uint8_t { data, weight, layer, loss } cause;
  std::string text;  // the step, the tensor, its example and element, and what to do
};

// Looks at the data, then at the weights, then at what each layer makes of the last batch. A dataset is read
// anew up to where training stands; the random generator is left as it was.
NonFiniteVerdict explain(const NonFiniteLoss& loss);

}  // namespace lockstep::keras
