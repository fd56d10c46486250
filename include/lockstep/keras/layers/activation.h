// Activation functions with settings or weights, as layers.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/one_or_many.h"

namespace lockstep::keras::layers {

struct ReLUOptions {
  std::optional<double> max_value = {};  // nullopt: no limit
  double negative_slope = 0;
  double threshold = 0;  // below it: negative_slope * (x - threshold)
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer ReLU(const ReLUOptions& options = {}, std::source_location where = std::source_location::current());

struct LeakyReLUOptions {
  double negative_slope = 0.3;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer LeakyReLU(const LeakyReLUOptions& options = {},
                std::source_location where = std::source_location::current());

struct PReLUOptions {
  Initializer alpha_initializer = "zeros";
  Regularizer alpha_regularizer = {};
  Constraint alpha_constraint = {};
  Axes shared_axes = {};  // dimensions, the batch being 0, that share one slope
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// x above 0, alpha * x below: the slopes are learned.
Layer PReLU(const PReLUOptions& options = {}, std::source_location where = std::source_location::current());

struct ELUOptions {
  double alpha = 1;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer ELU(const ELUOptions& options = {}, std::source_location where = std::source_location::current());

struct SoftmaxOptions {
  Axes axis = -1;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// A mask, which must broadcast to the input, says what takes part; the rest gets 0.
Layer Softmax(const SoftmaxOptions& options = {},
              std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
