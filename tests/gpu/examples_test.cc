// Small networks of images and sequences that a GPU runs as one kernel, one block per example, against the
// same networks launched step by step.
#include <cmath>
#include <cstdlib>
#include <limits>

#include "gpu/gpu.h"
#include "gpu/outcome.h"
#include "gpu/small_nets.h"

namespace lockstep::testing {
namespace {

class Examples : public Gpu {
 protected:
  void TearDown() override { unsetenv("LOCKSTEP_WHOLE_STEP_FUSION"); }
  static void join(bool on) { setenv("LOCKSTEP_WHOLE_STEP_FUSION", on ? "1" : "0", 1); }
};

Outcome train(Device& device, const ExampleNet& c, int steps, float first_pixel = 0.5F) {
  const DeviceScope scope(device);
  const keras::Model model = made(c);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    std::vector<float> x = models::random_inputs(batch_shape(c), static_cast<uint64_t>(i)).to_vector<float>();
    x[0] = first_pixel;
    const keras::Logs logs =
        model.train_on_batch(keras::Batch{{Tensor::from(x, batch_shape(c))},
                                          {models::random_labels(c.batch, 10, static_cast<uint64_t>(i))},
                                          {}});
    outcome.losses.push_back(logs.find("loss").value());
  }
  for (const Variable& variable : model.weights())
    outcome.weights.push_back(variable.value().to_vector<float>());
  return outcome;
}

TEST_F(Examples, EqualStepsOneByOne) {
  for (const ExampleNet& c : example_nets()) {
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
  for (const ExampleNet& c : example_nets()) {
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
    const keras::Model model = keras::applications::lenet();
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
