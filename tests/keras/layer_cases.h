// One use of a layer as data. The harness (layer_harness_test.cc) runs every check on every case, so a new
// layer needs a row in the table of layer_cases.cc:
//
//   {.name = "dense", .make = [] { return Dense(3); }, .inputs = {x({4})}, .weights = {"kernel", "bias"}},
#pragma once

#include <functional>
#include <set>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/keras/layer.h"

namespace lockstep::keras::testing {

struct LayerInput {
  Shape shape;                   // without the batch
  DType dtype = DType::float32;  // floating-point inputs follow the policy that is tested
  int64_t below = 5;             // integers are in [0, below)
};

struct LayerCase {
  std::string name;             // of its tests: letters, digits and underscores
  std::function<Layer()> make;  // without a name and a dtype: the harness sets the global policy
  std::vector<LayerInput> inputs;
  std::vector<std::string> weights = {};  // Keras' names in Keras' order, behind the layer's own path
  CallOptions call = {};
  std::function<Tensor()> mask = {};  // of the first input; made by the tests, not with the table
  // Results in training are random: derivatives are taken outside of training only.
  bool random = false;
  // No gradient flows to inputs, as for indices and bins.
  bool differentiable = true;
  // Dtype of the results where it is not the compute dtype.
  std::optional<DType> result = {};
  std::source_location where = std::source_location::current();
};

const std::vector<LayerCase>& layer_cases();

// Registered class names that are no layers to call on tensors, or cannot be read from files.
const std::set<std::string>& classes_without_cases();

}  // namespace lockstep::keras::testing
