// Settings that recurrent layers and their cells share.
#pragma once

#include <cstdint>

#include "keras/range.h"

namespace lockstep::keras::layers {

template <class Options>
void visit_gates(auto& v, Options& o) {
  v("activation", o.activation);
  if constexpr (requires { o.recurrent_activation; }) v("recurrent_activation", o.recurrent_activation);
  v("use_bias", o.use_bias);
  v("kernel_initializer", o.kernel_initializer);
  v("recurrent_initializer", o.recurrent_initializer);
  v("bias_initializer", o.bias_initializer);
  if constexpr (requires { o.unit_forget_bias; }) v("unit_forget_bias", o.unit_forget_bias);
  v("kernel_regularizer", o.kernel_regularizer);
  v("recurrent_regularizer", o.recurrent_regularizer);
  v("bias_regularizer", o.bias_regularizer);
  v("kernel_constraint", o.kernel_constraint);
  v("recurrent_constraint", o.recurrent_constraint);
  v("bias_constraint", o.bias_constraint);
  v("dropout", o.dropout, kBelowOne);
  v("recurrent_dropout", o.recurrent_dropout, kBelowOne);
  if constexpr (requires { o.reset_after; }) v("reset_after", o.reset_after);
  v("seed", o.seed, kAnything);
  // Older files say how Keras is to compute; it does not change what.
  if constexpr (requires { v.ignore("implementation"); }) v.ignore("implementation");
}

template <class Options>
void visit_cell(auto& v, int64_t& units, Options& o) {
  v("units", units, kPositive);
  visit_gates(v, o);
}

template <class Options>
void visit_sequence(auto& v, Options& o) {
  v("return_sequences", o.return_sequences);
  v("return_state", o.return_state);
  v("go_backwards", o.go_backwards);
  v("stateful", o.stateful);
  v("unroll", o.unroll);
  v("zero_output_for_mask", o.zero_output_for_mask);
}

// The part of a layer's options that is its cell's.
template <class CellOptions, class Options>
CellOptions cell_options(const Options& o, const char* name) {
  CellOptions cell;
  cell.activation = o.activation;
  if constexpr (requires { o.recurrent_activation; }) cell.recurrent_activation = o.recurrent_activation;
  cell.use_bias = o.use_bias;
  cell.kernel_initializer = o.kernel_initializer;
  cell.recurrent_initializer = o.recurrent_initializer;
  cell.bias_initializer = o.bias_initializer;
  if constexpr (requires { o.unit_forget_bias; }) cell.unit_forget_bias = o.unit_forget_bias;
  cell.kernel_regularizer = o.kernel_regularizer;
  cell.recurrent_regularizer = o.recurrent_regularizer;
  cell.bias_regularizer = o.bias_regularizer;
  cell.kernel_constraint = o.kernel_constraint;
  cell.recurrent_constraint = o.recurrent_constraint;
  cell.bias_constraint = o.bias_constraint;
  cell.dropout = o.dropout;
  cell.recurrent_dropout = o.recurrent_dropout;
  if constexpr (requires { o.reset_after; }) cell.reset_after = o.reset_after;
  cell.seed = o.seed;
  cell.name = name;
  cell.dtype = o.dtype;
  return cell;
}

}  // namespace lockstep::keras::layers
