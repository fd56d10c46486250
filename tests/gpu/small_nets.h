// Networks whose steps a GPU may run as one kernel: for tests on GPUs, and for those of what is written for
// them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/random.h"
#include "models/models.h"

namespace lockstep::testing {

// --- of vectors --------------------------------------------------------------------------------------------

struct Net {
  std::vector<int64_t> hidden = {128};
  int64_t inputs = 784;
  int64_t batch = 32;
  bool bias = true;
  bool probabilities = false;
  std::string optimizer = "adam";
  std::string activation = "relu";
  double dropout = 0;
  bool joins = true;  // one kernel is made of its step
};

inline std::vector<Net> small_nets() {
  return {
      {},
      {.batch = 1},
      {.batch = 100, .optimizer = "sgd"},
      {.batch = 1024},
      {.hidden = {129}, .inputs = 785, .batch = 601},
      {.hidden = {256}, .batch = 512, .optimizer = "sgd", .activation = "tanh"},
      {.hidden = {65}, .inputs = 77, .batch = 100, .optimizer = "adamw"},
      {.hidden = {64, 33}, .batch = 128, .bias = false, .probabilities = true, .joins = false},
      {.hidden = {256, 100, 33}, .inputs = 301, .batch = 33, .optimizer = "rmsprop", .activation = "gelu"},
      {.hidden = {}, .batch = 32, .probabilities = true, .optimizer = "sgd", .joins = false},
      {.hidden = {300}, .inputs = 64, .batch = 1000, .activation = "tanh"},
      {.batch = 32, .dropout = 0.3, .joins = false},
  };
}

inline keras::optimizers::Optimizer optimizer_of(const std::string& name) {
  if (name == "sgd") return keras::optimizers::SGD();
  if (name == "rmsprop") return keras::optimizers::RMSprop();
  if (name == "adamw") return keras::optimizers::AdamW();
  return keras::optimizers::Adam();
}

inline keras::Sequential made(const Net& net, int steps_per_execution = 1) {
  set_random_seed(3);
  std::vector<keras::Layer> layers{keras::layers::Flatten({.input_shape = {net.inputs}})};
  for (const int64_t units : net.hidden) {
    layers.push_back(keras::layers::Dense(units, {.activation = net.activation, .use_bias = net.bias}));
    if (net.dropout > 0) layers.push_back(keras::layers::Dropout(net.dropout));
  }
  layers.push_back(net.probabilities ? keras::layers::Dense(10, {.activation = "softmax"})
                                     : keras::layers::Dense(10));
  keras::Sequential model(layers);
  model.compile({.optimizer = optimizer_of(net.optimizer),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = !net.probabilities}),
                 .metrics = {"accuracy"},
                 .steps_per_execution = steps_per_execution});
  return model;
}

// --- of images and sequences: one block for each example ---------------------------------------------------

struct ExampleNet {
  const char* name;
  std::function<keras::Model()> make;
  Shape input;  // of an example
  int64_t batch = 32;
};

// Windows that overlap, have holes, reach beyond the image, and leave some of it out.
inline keras::Model odd_windows() {
  namespace layers = keras::layers;
  const keras::KerasTensor input = keras::Input({13, 11, 3});
  keras::KerasTensor x = layers::Conv2D(5, 3, {.strides = 2, .padding = "same", .activation = "tanh"})(input);
  x = layers::MaxPooling2D({.pool_size = 3, .strides = 2, .padding = "same"})(x);
  x = layers::Conv2D(9, 2, {.padding = "same", .dilation_rate = 2, .use_bias = false})(x);
  x = layers::LayerNormalization()(x);
  x = layers::Conv2D(4, 1, {.activation = "relu"})(x);
  return {input, layers::Dense(10)(layers::Flatten()(x))};
}

// Tokens that see those before them.
inline keras::Model causal_net() {
  namespace layers = keras::layers;
  using keras::KerasTensorList;
  const keras::KerasTensor input = keras::Input({19, 24});
  keras::KerasTensor x = layers::LayerNormalization()(input);
  x = layers::Add()(
      KerasTensorList{x, layers::MultiHeadAttention(3, 8)(KerasTensorList{x, x}, {.use_causal_mask = true})});
  x = layers::Dense(40, {.activation = "gelu"})(layers::LayerNormalization()(x));
  return {input, layers::Dense(10)(layers::GlobalAveragePooling1D()(x))};
}

inline std::vector<ExampleNet> example_nets() {
  namespace applications = keras::applications;
  const Shape digit{28, 28, 1};
  return {
      {"lenet", [] { return applications::lenet(); }, digit, 128},
      {"lenet of few", [] { return applications::lenet(); }, digit, 5},
      {"lenet of many", [] { return applications::lenet(); }, digit, 200},
      {"vit_tiny", [] { return applications::vit_tiny(); }, digit, 128},
      {"vit_tiny of some", [] { return applications::vit_tiny(); }, digit, 33},
      {"vit of small patches",
       [] {
         return applications::vit_tiny({.patch_size = 4, .dim = 40, .depth = 1, .heads = 2, .mlp_dim = 72});
       },
       digit},
      {"odd windows", odd_windows, {13, 11, 3}, 21},
      {"causal", causal_net, {19, 24}, 17},
  };
}

inline keras::Model made(const ExampleNet& net) {
  set_random_seed(3);
  const keras::Model model = net.make();
  // Not Adam: it divides rounding by rounding where a gradient is 0.
  model.compile({.optimizer = keras::optimizers::SGD({.learning_rate = 0.5}),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}
inline Shape batch_shape(const ExampleNet& net) {
  Dims dims{net.batch};
  for (const int64_t size : net.input) dims.push_back(size);
  return Shape(dims);
}

}  // namespace lockstep::testing
