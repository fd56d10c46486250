// Small networks of images and sequences that a GPU runs as one kernel, one block per example, against the
// same networks launched step by step.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "gpu/gpu.h"
#include "gpu/outcome.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/random.h"
#include "models/models.h"

namespace lockstep::testing {
namespace {

namespace applications = keras::applications;
namespace layers = keras::layers;
using keras::KerasTensor;
using keras::KerasTensorList;

class Examples : public Gpu {
 protected:
  void TearDown() override { unsetenv("LOCKSTEP_WHOLE_STEP_FUSION"); }
  static void join(bool on) { setenv("LOCKSTEP_WHOLE_STEP_FUSION", on ? "1" : "0", 1); }
};

struct Case {
  const char* name;
  std::function<keras::Model()> make;
  Shape input;  // of an example
  int64_t batch = 32;
};

// Windows that overlap, have holes, reach beyond the image, and leave some of it out.
keras::Model odd_windows() {
  const KerasTensor input = keras::Input({13, 11, 3});
  KerasTensor x = layers::Conv2D(5, 3, {.strides = 2, .padding = "same", .activation = "tanh"})(input);
  x = layers::MaxPooling2D({.pool_size = 3, .strides = 2, .padding = "same"})(x);
  x = layers::Conv2D(9, 2, {.padding = "same", .dilation_rate = 2, .use_bias = false})(x);
  x = layers::LayerNormalization()(x);
  x = layers::Conv2D(4, 1, {.activation = "relu"})(x);
  return {input, layers::Dense(10)(layers::Flatten()(x))};
}

// Tokens that see those before them.
keras::Model causal() {
  const KerasTensor input = keras::Input({19, 24});
  KerasTensor x = layers::LayerNormalization()(input);
  x = layers::Add()(
      KerasTensorList{x, layers::MultiHeadAttention(3, 8)(KerasTensorList{x, x}, {.use_causal_mask = true})});
  x = layers::Dense(40, {.activation = "gelu"})(layers::LayerNormalization()(x));
  return {input, layers::Dense(10)(layers::GlobalAveragePooling1D()(x))};
}

std::vector<Case> cases() {
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
      {"causal", causal, {19, 24}, 17},
  };
}

Outcome train(Device& device, const Case& c, int steps, float first_pixel = 0.5F) {
  const DeviceScope scope(device);
  set_random_seed(3);
  const keras::Model model = c.make();
  // Not Adam: it divides rounding by rounding where a gradient is 0.
  model.compile({.optimizer = keras::optimizers::SGD({.learning_rate = 0.5}),
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    Dims dims{c.batch};
    for (const int64_t size : c.input) dims.push_back(size);
    std::vector<float> x = models::random_inputs(Shape(dims), static_cast<uint64_t>(i)).to_vector<float>();
    x[0] = first_pixel;
    const keras::Logs logs = model.train_on_batch(keras::Batch{
        {Tensor::from(x, Shape(dims))}, {models::random_labels(c.batch, 10, static_cast<uint64_t>(i))}, {}});
    outcome.losses.push_back(logs.find("loss").value());
  }
  for (const Variable& variable : model.weights())
    outcome.weights.push_back(variable.value().to_vector<float>());
  return outcome;
}

TEST_F(Examples, EqualStepsOneByOne) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    join(false);
    const Outcome apart = train(gpu(), c, 3);
    join(true);
    const Outcome joined = train(gpu(), c, 3);
    ASSERT_EQ(joined.weights.size(), apart.weights.size());
    EXPECT_NE(joined.weights, apart.weights) << "sums have another order, if it was joined";
    for (size_t i = 0; i < apart.losses.size(); ++i) EXPECT_NEAR(joined.losses[i], apart.losses[i], 1e-4);
    for (size_t t = 0; t < apart.weights.size(); ++t) {
      double scale = 1e-2, worst = 0;
      for (size_t i = 0; i < apart.weights[t].size(); ++i) {
        scale = std::max(scale, std::abs(static_cast<double>(apart.weights[t][i])));
        worst = std::max(worst, std::abs(static_cast<double>(apart.weights[t][i]) - joined.weights[t][i]));
      }
      EXPECT_LE(worst, 2e-4 * scale) << "tensor " << t;
    }
    // The same bits every time.
    const Outcome again = train(gpu(), c, 3);
    EXPECT_EQ(joined.losses, again.losses);
    EXPECT_EQ(joined.weights, again.weights);
  }
}

TEST_F(Examples, NaNAndInfinityGoWhereTheyGoOneByOne) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Case& c : cases()) {
    if (c.batch > 40) continue;
    for (const float pixel : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
      SCOPED_TRACE(c.name + std::string(" of ") + std::to_string(pixel));
      join(false);
      const Outcome apart = train(gpu(), c, 1, pixel);
      join(true);
      const Outcome joined = train(gpu(), c, 1, pixel);
      EXPECT_EQ(std::isnan(apart.losses[0]), std::isnan(joined.losses[0]));
      for (size_t t = 0; t < apart.weights.size(); ++t)
        for (size_t i = 0; i < apart.weights[t].size(); ++i)
          ASSERT_TRUE(std::isnan(apart.weights[t][i]) == std::isnan(joined.weights[t][i]) &&
                      std::isinf(apart.weights[t][i]) == std::isinf(joined.weights[t][i]))
              << "element " << i << " of tensor " << t << " is " << joined.weights[t][i] << ", one by one "
              << apart.weights[t][i];
    }
  }
}

TEST_F(Examples, SeveralStepsPerLaunchAreTheSameSteps) {
  const DeviceScope scope(gpu());
  const auto fitted = [&](int steps_per_execution) {
    set_random_seed(3);
    const keras::Model model = applications::lenet();
    model.compile({.optimizer = "adam",
                   .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .steps_per_execution = steps_per_execution});
    const keras::Data data(models::random_inputs({200, 28, 28, 1}, 5).to(gpu()),
                           models::random_labels(200, 10, 5).to(gpu()));
    Outcome outcome;
    outcome.losses = model.fit(data, {.batch_size = 32, .epochs = 2, .verbose = 0})["loss"];
    for (const Variable& variable : model.weights())
      outcome.weights.push_back(variable.value().to_vector<float>());
    return outcome;
  };
  const Outcome one = fitted(1), many = fitted(4);
  EXPECT_EQ(one.losses, many.losses);
  EXPECT_EQ(one.weights, many.weights);
}

}  // namespace
}  // namespace lockstep::testing
