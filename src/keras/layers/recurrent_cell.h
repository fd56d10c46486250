// What recurrent layers ask of a cell.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lockstep/keras/layer.h"

namespace lockstep::keras::layers {

class RecurrentCell {
 public:
  virtual ~RecurrentCell() = default;

  // The first state is the cell's result too.
  virtual Dims state_sizes() const = 0;

  // One run over a sequence: `inputs` (time, batch, n) is what the steps take of it; `step` gives the new states.
  struct Run {
    Tensor inputs;
    std::function<TensorList(const Tensor& input, std::span<const Tensor> states)> step;
  };
  // `sequence` is (time, batch, features). Weights are read, dropout drawn and products with the inputs made here,
  // once for all steps.
  virtual Run begin(const Tensor& sequence, bool training) const = 0;
};

// A cell, or those of StackedRNNCells in their order. Throws Error(invalid_argument) naming `user` for other layers.
std::vector<const RecurrentCell*> cells_of(const Layer& layer, const char* user);

// `given`, or zeros where none are given, as (batch, size) each.
TensorList starting_states(const LayerBase& layer, const TensorList& given, const Dims& sizes, int64_t batch,
                           DType dtype);

}  // namespace lockstep::keras::layers
