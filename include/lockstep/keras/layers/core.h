// Layers that every model needs: dense, activations, dropout, shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/keras/activations.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras::layers {

struct DenseOptions {
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// activation(x kernel + bias), over the last dimension.
Layer Dense(int64_t units, const DenseOptions& options = {});

}  // namespace lockstep::keras::layers
