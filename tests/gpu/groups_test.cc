// Elementwise launches that are made as one on a GPU: the same bits as one by one, and honest profiles.
#include <cstdlib>

#include "gpu/gpu.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/keras/model.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/observe/kernel_profile.h"
#include "lockstep/ops/random.h"
#include "models/models.h"

namespace lockstep::testing {
namespace {

struct Training {
  std::vector<std::vector<float>> results;  // losses, then weights
  std::vector<observe::KernelTime> profile;
};

class GpuGroups : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    setenv("LOCKSTEP_WHOLE_STEP_FUSION", "0", 1);
  }
  void TearDown() override {
    unsetenv("LOCKSTEP_WHOLE_STEP_FUSION");
    unsetenv("LOCKSTEP_GROUP_LAUNCHES");
  }

  static Training train(bool grouped, keras::Model (*make)(), const keras::optimizers::Optimizer& optimizer,
                        const Tensor& inputs, const Tensor& labels, const char* policy) {
    setenv("LOCKSTEP_GROUP_LAUNCHES", grouped ? "1" : "0", 1);
    const DeviceScope scope(gpu());
    keras::mixed_precision::set_global_policy(policy);
    set_random_seed(5);
    const keras::Model model = make();
    keras::mixed_precision::set_global_policy("float32");
    const auto loss_of = keras::losses::SparseCategoricalCrossentropy({.from_logits = true});
    auto step = function([&](const Tensor& x, const Tensor& y) {
      GradientTape tape;
      const Tensor loss = loss_of(y, model(x, {.training = true}));
      const std::vector<Variable> weights = model.trainable_weights();
      optimizer.apply_gradients(tape.gradient(loss, weights), weights);
      return loss;
    });
    const Tensor x = inputs.to(gpu()), y = labels.to(gpu());
    Training run;
    for (int i = 0; i < 6; ++i) {
      if (i == 5) observe::start_tracing();  // by then steps are recorded graphs
      run.results.push_back(step(x, y).to_vector<float>());
    }
    observe::stop_tracing();
    run.profile = observe::kernel_profile(observe::take_trace());
    for (const Variable& weight : model.weights()) run.results.push_back(weight.value().to_vector<float>());
    return run;
  }

  static double sum(const Training& run, double observe::KernelTime::*what) {
    double total = 0;
    for (const auto& kernel : run.profile) total += kernel.*what;
    return total;
  }
  static int64_t calls(const Training& run) {
    int64_t total = 0;
    for (const auto& kernel : run.profile) total += kernel.calls;
    return total;
  }

  static void expect_same_bits(keras::Model (*make)(),
                               const std::function<keras::optimizers::Optimizer()>& optimizer,
                               const Tensor& x, const Tensor& y, const char* policy) {
    SCOPED_TRACE(policy);
    const Training alone = train(false, make, optimizer(), x, y, policy);
    const Training grouped = train(true, make, optimizer(), x, y, policy);
    EXPECT_EQ(alone.results, grouped.results);
    EXPECT_LT(calls(grouped), calls(alone));
    // A group's line counts what all of it moves and computes.
    EXPECT_EQ(sum(alone, &observe::KernelTime::bytes), sum(grouped, &observe::KernelTime::bytes));
    EXPECT_EQ(sum(alone, &observe::KernelTime::flops), sum(grouped, &observe::KernelTime::flops));
    const auto is_group = [](const observe::KernelTime& kernel) {
      return kernel.name.find(")*") != std::string::npos;
    };
    EXPECT_GT(std::count_if(grouped.profile.begin(), grouped.profile.end(), is_group), 0);
    EXPECT_EQ(std::count_if(alone.profile.begin(), alone.profile.end(), is_group), 0);
  }
};

// Sizes that no vector divides, and others.
keras::Model uneven() {
  std::vector<keras::Layer> layers;
  for (const int64_t units : {64, 37, 128, 5, 48, 10})
    layers.push_back(layers.empty() ? keras::layers::Dense(units, {.activation = "relu", .input_shape = {31}})
                                    : keras::layers::Dense(units, {.activation = "relu"}));
  return keras::Sequential(layers);
}

TEST_F(GpuGroups, UpdatesHaveTheSameBitsAsOneByOne) {
  const Tensor x = models::random_inputs({24, 31}, 1), y = models::random_labels(24, 10, 2);
  for (const char* policy : {"float32", "mixed_bfloat16", "mixed_float16"}) {
    expect_same_bits(
        uneven, [] { return keras::optimizers::Adam(); }, x, y, policy);
    expect_same_bits(
        uneven, [] { return keras::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}); }, x, y,
        policy);
  }
}

TEST_F(GpuGroups, NetworksHaveTheSameBitsAsOneByOneLong) {
  expect_same_bits([] { return keras::applications::gpt_tiny(); },
                   [] { return keras::optimizers::AdamW({.learning_rate = 1e-3}); },
                   models::random_tokens({8, 64}, 256, 1), models::random_tokens({8, 64}, 256, 2),
                   "mixed_bfloat16");
  expect_same_bits([] { return keras::applications::resnet18({.width = 16}); },
                   [] { return keras::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}); },
                   models::random_inputs({16, 32, 32, 3}, 1), models::random_labels(16, 10, 2),
                   "mixed_bfloat16");
}

}  // namespace
}  // namespace lockstep::testing
