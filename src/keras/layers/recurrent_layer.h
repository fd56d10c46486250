// The layer around a recurrent cell: it runs the cell over the steps of a sequence.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/active_recorders.h"
#include "graph/emit.h"
#include "keras/layers/recurrent_cell.h"
#include "keras/layers/registry.h"
#include "lockstep/base/error.h"
#include "lockstep/compile/control_flow.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {

struct SequenceRun {
  Tensor mask = {};  // (time, batch, 1, ...), of the states' rank and one
  bool training = false;
  bool all_steps = false;
  bool backwards = false;
  bool unroll = false;
};

// The cell's results of all steps (time, batch, ...), at least where asked for, and the states after the last
// step.
struct SequenceResult {
  Tensor steps;
  TensorList states;
};

inline SequenceResult run_sequence(const RecurrentCell& cell, const Tensor& sequence, TensorList states,
                                   const SequenceRun& o) {
  const RecurrentCell::Run run = cell.begin(sequence, o.training);
  // The op's second derivative is written out step by step: tapes in tapes take the loop, which stays one.
  if (run.whole && !o.unroll && active_recorders() < 2) {
    RecurrenceOptions options{.reverse = o.backwards};
    if (o.mask.defined())
      options.mask = broadcast_to(reshape(o.mask, o.mask.shape().first(2)), run.inputs.shape().first(2));
    RecurrenceResult result = run.whole(states, options);
    return {std::move(result.steps), std::move(result.last)};
  }
  TensorList elems = {run.inputs};
  if (o.mask.defined()) elems.push_back(o.mask);
  const auto body = [&](std::span<const Tensor> carry, std::span<const Tensor> x) {
    ScanResult result{run.step(x[0], carry), {}};
    for (size_t i = 0; i < carry.size() && o.mask.defined(); ++i)
      result.carry[i] = where(x[1], result.carry[i], carry[i]);
    if (o.all_steps) result.ys = {result.carry[0]};
    return result;
  };
  if (!o.unroll) {
    ScanResult result = scan(body, std::move(states), std::move(elems), {.reverse = o.backwards});
    return {o.all_steps ? result.ys[0] : Tensor(), std::move(result.carry)};
  }
  std::vector<TensorList> slices;
  for (const Tensor& elem : elems) slices.push_back(unstack(elem));
  const size_t length = slices[0].size();
  TensorList steps(length);
  for (size_t i = 0; i < length; ++i) {
    const size_t at = o.backwards ? length - 1 - i : i;
    TensorList x;
    for (const TensorList& slice : slices) x.push_back(slice[at]);
    states = body(states, x).carry;
    steps[at] = states[0];
  }
  return {o.all_steps ? stack(steps) : Tensor(), std::move(states)};
}

class KeepsStates {
 public:
  virtual ~KeepsStates() = default;
  virtual void reset_states() const = 0;
};

// States beside the sequence are no inputs here.
inline void require_one_input(const LayerBase& layer, const TensorList& inputs) {
  require(inputs.size() == 1, ErrorCode::invalid_argument, layer.where(), layer.class_name(), " \"",
          layer.name(), "\" takes one sequence, received ", inputs.size(),
          " inputs; states to begin with are said by initial_state");
}

template <class Settings>
class RecurrentLayer : public ConfiguredLayer<Settings>, public KeepsStates {
 public:
  RecurrentLayer(const char* class_name, Settings settings)
      : ConfiguredLayer<Settings>(class_name, std::move(settings)) {}

  void build(const Shape& input) override {
    require_sequence(input);
    Shape step = input;
    step.erase(1);
    cell_.build(step, this->where());
    if (!options().stateful) return;
    require(input[0] > 0, ErrorCode::invalid_argument, this->where(), this->class_name(), " \"", this->name(),
            "\" is stateful: the batch size must be known when it is built, received shape ", input,
            "; give Input a batch_size");
    for (const RecurrentCell* cell : cells_)
      for (Shape shape : cell->state_shapes()) {
        shape.insert(0, input[0]);
        states_.emplace_back(Tensor::full(this->variable_dtype(), shape, 0),
                             VariableOptions{.name = this->path() + "/rnn_state", .trainable = false});
        this->track_state(states_.back());
      }
  }

  TensorList call_all(const TensorList& inputs, const CallContext& context) override {
    const auto& o = options();
    require_one_input(*this, inputs);
    require_sequence(inputs[0].shape());
    const int64_t batch = inputs[0].shape()[0], time = inputs[0].shape()[1];
    require(time != 0, ErrorCode::shape_mismatch, this->where(), this->class_name(),
            " takes sequences of one step or more, received shape ", inputs[0].shape());
    const Tensor mask = time_major_mask(context.mask(), inputs[0].shape());
    const TensorList starts = first_states(context, batch);
    const DType dtype = cell_.base()->compute_dtype();

    // Cells on cells: each runs over the whole sequence before the next one does.
    SequenceResult last{time_and_batch_swapped(cast(inputs[0], dtype)), {}};
    TensorList states;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const auto own = starts.begin() + static_cast<std::ptrdiff_t>(states.size());
      last =
          run_sequence(*cells_[i], last.steps, TensorList(own, own + std::ssize(cells_[i]->state_shapes())),
                       {.mask = mask,
                        .training = context.training,
                        .all_steps = o.return_sequences || i + 1 < cells_.size(),
                        .backwards = o.go_backwards,
                        .unroll = o.unroll});
      states.insert(states.end(), last.states.begin(), last.states.end());
    }
    for (size_t i = 0; i < states_.size(); ++i) states_[i].assign(cast(states[i], states_[i].dtype()));

    TensorList results = {o.return_sequences ? all_results(last.steps, mask)
                                             : last_result(last.states[0], mask)};
    if (o.return_state) results.insert(results.end(), states.begin(), states.end());
    for (Tensor& result : results) result = cast(result, this->compute_dtype());
    return results;
  }

  TensorList compute_mask(const TensorList&, const TensorList& masks, size_t) override {
    return options().return_sequences ? TensorList{masks[0]} : TensorList();
  }
  bool supports_masking() const override { return true; }
  std::vector<std::string> stored_names() const override { return {"cell"}; }

  void reset_states() const override {
    for (const Variable& state : states_) state.assign(zeros_like(state));
  }

 protected:
  void set_cell(const Layer& cell) {
    cell_ = this->track(cell);
    cells_ = cells_of(cell, this->class_name().c_str());
  }

 private:
  const auto& options() const { return this->settings_.options; }

  static Tensor time_and_batch_swapped(const Tensor& x) {
    Dims order;
    for (int d = 0; d < x.rank(); ++d) order.push_back(d < 2 ? 1 - d : d);
    return transpose(x, order);
  }

  void require_sequence(const Shape& input) const {
    const int rank = cells_[0]->step_rank() + 1;
    require(input.rank() == rank, ErrorCode::shape_mismatch, this->where(), this->class_name(),
            rank == 3 ? " takes sequences of shape (batch, time, features)"
                      : " takes sequences (batch, time, ...) of rank " + std::to_string(rank),
            ", received ", input);
  }

  Tensor time_major_mask(const Tensor& mask, const Shape& input) const {
    if (!mask.defined()) return {};
    require(mask.rank() == 2 && mask.shape()[1] == input[1], ErrorCode::shape_mismatch, this->where(),
            this->class_name(), ": the mask of sequences ", input, " is (batch, time), received ",
            mask.shape());
    Shape shape = Dims::filled(input.rank(), 1);
    shape[0] = mask.shape()[1];
    shape[1] = mask.shape()[0];
    return reshape(transpose(cast(mask, DType::boolean)), shape);
  }

  TensorList first_states(const CallContext& context, int64_t batch) const {
    std::vector<Shape> shapes;
    for (const RecurrentCell* cell : cells_)
      for (const Shape& shape : cell->state_shapes()) shapes.push_back(shape);
    TensorList given = context.initial_state;
    if (given.empty())
      for (const Variable& state : states_) {
        require(state.shape()[0] == batch, ErrorCode::shape_mismatch, this->where(), this->class_name(),
                " \"", this->name(), "\" is stateful and was built for ", state.shape()[0],
                " examples, received ", batch);
        given.push_back(state.value());
      }
    return starting_states(*this, given, shapes, batch, cell_.base()->compute_dtype());
  }

  Tensor all_results(const Tensor& steps, const Tensor& mask) const {
    const Tensor shown =
        mask.defined() && options().zero_output_for_mask ? lockstep::where(mask, steps, 0.0) : steps;
    return time_and_batch_swapped(options().go_backwards ? reverse(shown, {0}) : shown);
  }
  Tensor last_result(const Tensor& state, const Tensor& mask) const {
    if (!mask.defined() || !options().zero_output_for_mask) return state;
    Dims begin = Dims::filled(mask.rank(), 0), size = Dims::filled(mask.rank(), -1);
    begin[0] = options().go_backwards ? 0 : mask.shape()[0] - 1;
    size[0] = 1;
    return lockstep::where(squeeze(slice(mask, begin, size), {0}), state, 0.0);
  }

  Layer cell_;
  std::vector<const RecurrentCell*> cells_;  // of cell_
  std::vector<Variable> states_;             // where stateful
};

}  // namespace lockstep::keras::layers
