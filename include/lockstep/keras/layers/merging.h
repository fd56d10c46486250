// Layers of several inputs: layer({a, b, c}).
//
// Inputs of lower rank get dimensions of size 1 behind the batch; sizes of 1 broadcast. Where every input has
// a mask the result has one that is true where any is.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/core.h"

namespace lockstep::keras::layers {

Layer Add(const LayerOptions& options = {}, std::source_location where = std::source_location::current());
Layer Subtract(const LayerOptions& options = {},
               std::source_location where = std::source_location::current());  // two inputs
Layer Average(const LayerOptions& options = {}, std::source_location where = std::source_location::current());
// What one input masks is taken from the others.
Layer Multiply(const LayerOptions& options = {},
               std::source_location where = std::source_location::current());
Layer Maximum(const LayerOptions& options = {}, std::source_location where = std::source_location::current());
Layer Minimum(const LayerOptions& options = {}, std::source_location where = std::source_location::current());

struct ConcatenateOptions {
  int64_t axis = -1;
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
Layer Concatenate(const ConcatenateOptions& options = {},
                  std::source_location where = std::source_location::current());

struct DotOptions {
  bool normalize = false;  // along the axes, before the product: cosine similarity
  Regularizer activity_regularizer = {};
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// The product of two inputs, example by example, summed over one axis of each: Dot(1), Dot({1, 2}).
Layer Dot(const Axes& axes, const DotOptions& options = {},
          std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
