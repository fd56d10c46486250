// Recurrent layers: a cell that is given one step of a sequence after another, and layers around layers.
//
// Inputs are (batch, time, features). The result is that of the last step, (batch, units); with
// return_sequences that of every step, (batch, time, units), in the order in which they were made. With
// return_state the states after the last step follow as further results (call apply()).
// CallOptions::initial_state gives the states before the first step, else they are 0.
//
// A step that the mask leaves out keeps the state; its result is the one before it, or 0 with
// zero_output_for_mask. go_backwards takes the last step first. stateful keeps the states from call to call
// (the batch size must be known when the layer is built) until reset_states(). unroll writes every step into
// a traced function: faster for very short sequences, the same numbers.
//
// All throw Error(invalid_argument) for arguments out of range when they are made, and Error(shape_mismatch)
// for inputs of a wrong rank when they are built or called.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/activations.h"
#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/convolutional.h"

namespace lockstep::keras::layers {

struct SimpleRNNOptions {
  keras::Activation activation = "tanh";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;            // of the inputs, the same at every step
  double recurrent_dropout = 0;  // of the state, the same at every step
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  std::optional<int64_t> seed = {};
  bool zero_output_for_mask = false;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// h = activation(x kernel + h recurrent_kernel + bias)
Layer SimpleRNN(int64_t units, const SimpleRNNOptions& options = {},
                std::source_location where = std::source_location::current());

struct LSTMOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  bool unit_forget_bias = true;  // the bias of the forget gate starts at 1
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;            // of the inputs, the same at every step
  double recurrent_dropout = 0;  // of the state, the same at every step
  std::optional<int64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  bool zero_output_for_mask = false;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Gates in the order input, forget, carry, output; states h, c.
Layer LSTM(int64_t units, const LSTMOptions& options = {},
           std::source_location where = std::source_location::current());

struct GRUOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;            // of the inputs, the same at every step
  double recurrent_dropout = 0;  // of the state, the same at every step
  std::optional<int64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  bool reset_after = true;  // the reset gate acts on the product with the recurrent kernel, not on the state
  bool zero_output_for_mask = false;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Gates in the order update, reset, candidate.
Layer GRU(int64_t units, const GRUOptions& options = {},
          std::source_location where = std::source_location::current());

struct ConvLSTMOptions {
  Sizes strides = 1;
  Padding padding = Padding::valid;
  DataFormat data_format = DataFormat::channels_last;
  Sizes dilation_rate = 1;
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  bool unit_forget_bias = true;  // the bias of the forget gate starts at 1
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;            // of the inputs, the same at every step
  double recurrent_dropout = 0;  // of the state, the same at every step
  std::optional<int64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  bool zero_output_for_mask = false;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// LSTMs over sequences of sequences, images or volumes (batch, time, ..., channels): their products are
// convolutions, that of the state with padding "same". Results and states are (batch, ..., filters). The
// sizes must be known.
Layer ConvLSTM1D(int64_t filters, const Sizes& kernel_size, const ConvLSTMOptions& options = {},
                 std::source_location where = std::source_location::current());
Layer ConvLSTM2D(int64_t filters, const Sizes& kernel_size, const ConvLSTMOptions& options = {},
                 std::source_location where = std::source_location::current());
Layer ConvLSTM3D(int64_t filters, const Sizes& kernel_size, const ConvLSTMOptions& options = {},
                 std::source_location where = std::source_location::current());

// --- cells -------------------------------------------------------------------------------------------------
// One step: apply({x}, {.initial_state = states}) of x (batch, features) gives the result and the new states.

struct SimpleRNNCellOptions {
  keras::Activation activation = "tanh";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;            // of the inputs, the same at every step
  double recurrent_dropout = 0;  // of the state, the same at every step
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
};
Layer SimpleRNNCell(int64_t units, const SimpleRNNCellOptions& options = {},
                    std::source_location where = std::source_location::current());

struct LSTMCellOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  bool unit_forget_bias = true;  // the bias of the forget gate starts at 1
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;            // of the inputs, the same at every step
  double recurrent_dropout = 0;  // of the state, the same at every step
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
};
Layer LSTMCell(int64_t units, const LSTMCellOptions& options = {},
               std::source_location where = std::source_location::current());

struct GRUCellOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer recurrent_initializer = "orthogonal";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;            // of the inputs, the same at every step
  double recurrent_dropout = 0;  // of the state, the same at every step
  bool reset_after = true;  // the reset gate acts on the product with the recurrent kernel, not on the state
  std::optional<int64_t> seed = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
};
Layer GRUCell(int64_t units, const GRUCellOptions& options = {},
              std::source_location where = std::source_location::current());

struct StackedRNNCellsOptions {
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
};
// Each cell is given the result of the one before it. States are those of all cells, one after another.
Layer StackedRNNCells(const std::vector<Layer>& cells, const StackedRNNCellsOptions& options = {},
                      std::source_location where = std::source_location::current());

struct RNNOptions {
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool unroll = false;
  bool zero_output_for_mask = false;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// A sequence through one of the cells above.
Layer RNN(const Layer& cell, const RNNOptions& options = {},
          std::source_location where = std::source_location::current());
Layer RNN(const std::vector<Layer>& cells, const RNNOptions& options = {},
          std::source_location where = std::source_location::current());

// States of stateful layers, in `layer` and inside of it, become 0.
void reset_states(const Layer& layer, std::source_location where = std::source_location::current());

// --- layers around layers ----------------------------------------------------------------------------------

// `merge_mode` says how the two directions come together; nullopt: they are two results.
struct BidirectionalOptions {
  std::optional<std::string> merge_mode = "concat";  // "concat", "sum", "mul", "ave", nullopt
  Layer backward_layer = {};                         // undefined: `layer` again, the other way
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// A recurrent layer and its mirror image, made anew from the configuration of `layer`.
Layer Bidirectional(const Layer& layer, const BidirectionalOptions& options = {},
                    std::source_location where = std::source_location::current());

struct TimeDistributedOptions {
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// `layer` on every step of (batch, time, ...).
Layer TimeDistributed(const Layer& layer, const TimeDistributedOptions& options = {},
                      std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
