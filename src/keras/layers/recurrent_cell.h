// What recurrent layers ask of a cell.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lockstep/keras/layer.h"
#include "ops/nn/recurrence.h"

namespace lockstep::keras::layers {

class RecurrentCell {
 public:
  virtual ~RecurrentCell() = default;

  // Without the batch, of a cell that is built. The first state is the cell's result too.
  virtual std::vector<Shape> state_shapes() const = 0;
  // Dimensions of one step, the batch included.
  virtual int step_rank() const { return 2; }

  // One run over a sequence: `inputs` (time, batch, ...) is what the steps take of it; `step` gives the new
  // states.
  struct Run {
    Tensor inputs;
    std::function<TensorList(const Tensor& input, std::span<const Tensor> states)> step;
    // All steps as one op, which is much faster: where the cell's settings are those that it knows, else
    // empty.
    std::function<RecurrenceResult(const TensorList& states, const RecurrenceOptions& options)> whole = {};
  };
  // `sequence` is (time, batch, features), or has more dimensions where a step has. Weights are read, dropout
  // drawn and products with the inputs made here, once for all steps.
  virtual Run begin(const Tensor& sequence, bool training) const = 0;
};

// A cell, or those of StackedRNNCells in their order. Throws Error(invalid_argument) naming `user` for other
// layers.
std::vector<const RecurrentCell*> cells_of(const Layer& layer, const char* user);

// `given`, or zeros where none are given, each of its shape and the batch before it.
TensorList starting_states(const LayerBase& layer, const TensorList& given, const std::vector<Shape>& shapes,
                           int64_t batch, DType dtype);

}  // namespace lockstep::keras::layers
