// Programs that nothing is wrong with, of which no verdict may say otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "programs.h"

namespace lockstep::testing {
namespace {

using distribute::MirroredStrategy;
using distribute::OneDeviceStrategy;
using observe::RunSummary;
namespace applications = keras::applications;

struct Healthy {
  const char* name;
  std::function<RunSummary()> run;
};

RunSummary fit(const keras::Model& model, const Shape& shape, keras::FitOptions options, int64_t count = 0) {
  const Examples some = examples(count > 0 ? count : 6 * options.batch_size, shape);
  options.verbose = 0;
  return model.fit({some.x, some.y}, options).time;
}

data::Dataset batches(int64_t count, int64_t batch_size, int64_t inputs = 512) {
  const Examples some = examples(count * batch_size, {inputs});
  return data::Dataset::from_tensor_slices({some.x, some.y}).batch(batch_size, {.drop_remainder = true});
}

RunSummary fit_under(const distribute::Strategy& strategy, const std::function<RunSummary()>& run) {
  const auto scope = strategy.scope();
  return run();
}

// A step with a tape and an optimizer, for loops by hand.
class Training {
 public:
  Training() : model_(dense()), weights_(model_.trainable_weights()) {}
  Tensor operator()(const Tensor& x, const Tensor& y) const {
    GradientTape tape;
    const Tensor loss = loss_(y, model_(x, {.training = true}));
    optimizer_.apply_gradients(tape.gradient(loss, weights_), weights_);
    return loss;
  }

 private:
  keras::Model model_;
  std::vector<Variable> weights_;
  keras::Loss loss_ = keras::losses::SparseCategoricalCrossentropy({.from_logits = true});
  keras::optimizers::Optimizer optimizer_ = keras::optimizers::SGD({.learning_rate = 1e-4});
};

RunSummary loop_over_run(bool distributes) {
  const MirroredStrategy strategy(kTwoDevices, {.report = false});
  const auto scope = strategy.scope();
  const Training train;
  const auto step = [&](const Tensor& x, const Tensor& y) { return train(x, y); };
  if (distributes)
    for (const auto& batch : strategy.distribute_dataset(batches(10, 512).prefetch()))
      strategy.run(step, batch[0], batch[1]);
  else
    for (int i = 0; i < 10; ++i) {
      static const Examples some = examples(512, {512});
      strategy.run(step, strategy.distribute(some.x), strategy.distribute(some.y));
    }
  return strategy.summary();
}

RunSummary loop_over_function(const data::Dataset& dataset) {
  const Training train;
  auto step = function([&](const Tensor& x, const Tensor& y) { return train(x, y); });
  double total = 0;
  for (const data::Element& batch : dataset)
    total += step(batch[0].tensor(), batch[1].tensor()).item<float>();
  EXPECT_TRUE(std::isfinite(total));
  return step.report().summary;
}

RunSummary split_over_devices() {
  const Tensor x = random::normal({256, 256}), w = random::normal({256, 256});
  auto step = function([&](const Tensor& in) {
    Tensor y = in;
    for (const std::string& name : kTwoDevices) {
      const DeviceScope there = device(name);
      for (int i = 0; i < 6; ++i) y = tanh(matmul(y, w) * 0.01);
    }
    return reduce_sum(y);
  });
  for (int i = 0; i < 10; ++i) step(x);
  return step.report().summary;
}

const std::vector<Healthy>& programs() {
  static const auto* all = new std::vector<Healthy>{
      {"Mlp", [] { return fit(compiled(dense()), {512}, {.batch_size = 64}); }},
      {"MlpWithDropout",
       [] {
         return fit(compiled(applications::mlp({.hidden = {512}, .dropout = 0.2})), {784},
                    {.batch_size = 64});
       }},
      {"Lenet",
       [] {
         return fit(compiled(applications::lenet()), {28, 28, 1}, {.batch_size = 32});
       }},
      {"Resnet18",
       [] {
         return fit(compiled(applications::resnet18({.input_shape = {16, 16, 3}, .width = 16})), {16, 16, 3},
                    {.batch_size = 8});
       }},
      {"VisionTransformer",
       [] {
         return fit(compiled(applications::vit_tiny()), {28, 28, 1}, {.batch_size = 32});
       }},
      {"Gpt",
       [] {
         const keras::Model model = compiled(applications::gpt_tiny());
         const Tensor x = random::uniform({96, 64}, {.minval = 0, .maxval = 255, .dtype = DType::int32});
         return model.fit({x, x}, {.batch_size = 16, .verbose = 0}).time;
       }},
      {"Lstm",
       [] {
         return fit(compiled(keras::Sequential(
                        {keras::layers::Input({24, 64}), keras::layers::LSTM(96), keras::layers::Dense(10)})),
                    {24, 64}, {.batch_size = 32});
       }},
      {"Convolutions",
       [] {
         return fit(compiled(keras::Sequential(
                        {keras::layers::Input({24, 24, 3}),
                         keras::layers::Conv2D(32, 3, {.activation = "relu"}), keras::layers::Conv2D(32, 3),
                         keras::layers::GlobalAveragePooling2D(), keras::layers::Dense(10)})),
                    {24, 24, 3}, {.batch_size = 16});
       }},
      {"PartialLastBatch",
       [] { return fit(compiled(dense()), {512}, {.batch_size = 64, .epochs = 2}, 6 * 64 + 7); }},
      {"Validation",
       [] { return fit(compiled(dense()), {512}, {.batch_size = 64, .validation_split = 0.25}, 8 * 64); }},
      {"StepsPerExecution",
       [] {
         keras::Model model = dense();
         model.compile({.loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                        .steps_per_execution = 4});
         return fit(model, {512}, {.batch_size = 64}, 8 * 64);
       }},
      {"Dataset", [] { return compiled(dense()).fit(batches(8, 64), {.verbose = 0}).time; }},
      {"DatasetWithMap",
       [] {
         return compiled(dense())
             .fit(batches(8, 64)
                      .map([](const Tensor& x, const Tensor& y) { return data::Element(x * 2.0, y); })
                      .prefetch(),
                  {.verbose = 0})
             .time;
       }},
      {"MirroredArrays",
       [] {
         return fit_under(MirroredStrategy(kTwoDevices, {.report = false}),
                          [] { return fit(compiled(dense()), {512}, {.batch_size = 512}); });
       }},
      {"MirroredDataset",
       [] {
         return fit_under(MirroredStrategy(kTwoDevices, {.report = false}), [] {
           return compiled(dense()).fit(batches(8, 512).prefetch(), {.verbose = 0}).time;
         });
       }},
      {"OneDevice",
       [] {
         return fit_under(OneDeviceStrategy("/CPU:1", {.report = false}),
                          [] { return fit(compiled(dense()), {512}, {.batch_size = 64}); });
       }},
      {"Reproducible",
       [] {
         return fit_under(MirroredStrategy(kTwoDevices, {.reproducible = true, .report = false}),
                          [] { return fit(compiled(dense(256)), {512}, {.batch_size = 512}); });
       }},
      {"LoopOverRun", [] { return loop_over_run(false); }},
      {"LoopOverDistributedDataset", [] { return loop_over_run(true); }},
      {"LoopOverFunction", [] { return loop_over_function(batches(10, 64)); }},
      {"LoopOverFunctionAndPrefetch",
       [] { return loop_over_function(batches(10, 64).shuffle(4).prefetch()); }},
      {"SplitOverDevices", [] { return split_over_devices(); }},
  };
  return *all;
}

class HealthyPrograms : public ::testing::TestWithParam<size_t> {};

TEST_P(HealthyPrograms, HaveNoVerdict) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer slows down what threads share more than the rest";
#endif
  const Healthy& program = programs()[GetParam()];
  // What other programs take from this machine for a moment is not this program's.
  constexpr int kAttempts = 4;
  std::string said;
  for (int i = 0; i < kAttempts; ++i) {
    const RunSummary time = program.run();
    ASSERT_GT(observe::steps(time), observe::kMinSteps);
    const observe::RunReport report = observe::report_on(time);
    if (report.verdicts.empty()) {
      EXPECT_THAT(observe::to_text(report), ::testing::HasSubstr("  healthy: "));
      return;
    }
    said += observe::to_text(report);
  }
  FAIL() << said;
}

INSTANTIATE_TEST_SUITE_P(All, HealthyPrograms, ::testing::Range<size_t>(0, programs().size()),
                         [](const auto& info) { return programs()[info.param].name; });

}  // namespace
}  // namespace lockstep::testing
