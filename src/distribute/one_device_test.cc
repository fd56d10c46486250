// Never one device in silence.
#include "distribute/one_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distribute/eight_cpus_test.h"
#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/log.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::distribute {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names;

// What is logged while it lives.
class Lines {
 public:
  Lines() : previous_(set_log_sink([this](const LogMessage& m) { texts_.emplace_back(m.text); })) {}
  ~Lines() { set_log_sink(previous_); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  LogSink previous_;
};

keras::Model linear(const char* name = "linear") {
  return keras::Sequential({keras::layers::Dense(1, {.input_shape = {3}})}, {.name = name});
}

void compile(const keras::Model& model) { model.compile({.optimizer = "sgd", .loss = "mse"}); }

void fit(const keras::Model& model) {
  const random::Generator generator(7);
  const Tensor x = random::normal({16, 3}, {.generator = &generator});
  model.fit({x, reduce_sum(x, {.axis = {1}, .keepdims = true})}, {.batch_size = 8, .verbose = 0});
}

// A step of a loop by hand, on all rows.
void step(const keras::Model& model, const keras::optimizers::Optimizer& optimizer) {
  const random::Generator generator(7);
  const Tensor x = random::normal({8, 3}, {.generator = &generator});
  GradientTape tape;
  const Tensor loss = reduce_mean(square(model(x)));
  optimizer.apply_gradients(tape.gradient(loss, model.trainable_weights()), model.trainable_weights());
}

// The same, without an optimizer.
void descend(const keras::Model& model, const Tensor& x) {
  GradientTape tape;
  const Tensor loss = reduce_mean(square(model(x)));
  const std::vector<Variable> weights = model.trainable_weights();
  const TensorList gradients = tape.gradient(loss, weights);
  for (size_t i = 0; i < weights.size(); ++i) weights[i].assign_sub(gradients[i] * 0.1);
}

Tensor rows() { return Tensor::full(DType::float32, {8, 3}, 1); }

TEST(OneDevice, AnotherModelThanTheOneOfTheScopeTrainsAfterALineThatSaysSo) {
  const MirroredStrategy strategy(names(2));
  {
    const auto scope = strategy.scope();
    linear();
  }
  const keras::Model other = linear("other");
  compile(other);
  const Lines lines;
  fit(other);
  fit(other);
  EXPECT_THAT(lines.texts(),
              ElementsAre(AllOf(HasSubstr("variable \"other/dense"), HasSubstr("one_device_test.cc"),
                                HasSubstr("is trained on one device"),
                                HasSubstr("MirroredStrategy on /CPU:0, /CPU:1"),
                                HasSubstr("strategy.adopt(model)"), HasSubstr("OneDeviceStrategy"))));
}

TEST(OneDevice, OneDeviceThatIsMeantNeedsNoLine) {
  const MirroredStrategy strategy(names(2));
  const OneDeviceStrategy one("/CPU:0");
  {
    const auto scope = strategy.scope();
    linear();
  }
  keras::Model baseline;
  {
    const auto scope = one.scope();
    baseline = linear();
    compile(baseline);
  }
  const Lines lines;
  fit(baseline);
  step(baseline, keras::optimizers::SGD());
  EXPECT_THAT(lines.texts(), IsEmpty());
}

TEST(OneDevice, OnlyTheOptimizerOfTheScopeIsAnError) {
  const MirroredStrategy strategy(names(2));
  const keras::Model model = linear();
  keras::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    optimizer = keras::optimizers::SGD();
  }
  model.compile({.optimizer = optimizer, .loss = "mse"});
  EXPECT_THAT(error_of([&] { fit(model); }).message(),
              AllOf(HasSubstr("fit: model \"linear\" would train on one device"),
                    HasSubstr("its optimizer was made in the scope of MirroredStrategy on /CPU:0, /CPU:1"),
                    HasSubstr("strategy.adopt(model)")));
  // In a loop, too; where another model was made in the scope, it is the update that finds out.
  EXPECT_THAT(error_of([&] { step(model, optimizer); }).message(),
              HasSubstr("gradient: would use one device"));
  {
    const auto scope = strategy.scope();
    linear();
  }
  EXPECT_THAT(error_of([&] { step(model, optimizer); }).message(),
              AllOf(HasSubstr("apply_gradients: variable \"linear/dense"),
                    HasSubstr("its optimizer was made in the scope")));
  strategy.adopt(model);
  fit(model);
}

TEST(OneDevice, CompilingAloneInTheScopeIsAnError) {
  const MirroredStrategy strategy(names(2));
  const keras::Model model = linear();
  {
    const auto scope = strategy.scope();
    compile(model);
  }
  EXPECT_THAT(error_of([&] { fit(model); }).message(), HasSubstr("its optimizer was made in the scope"));
}

TEST(OneDevice, AModelOfTheScopeIsNotUpdatedOutsideOfRun) {
  const MirroredStrategy strategy(names(2));
  keras::Model model;
  keras::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = linear();
    optimizer = keras::optimizers::SGD();
  }
  const auto expected =
      AllOf(HasSubstr("apply_gradients: would train on one device"), HasSubstr("outside of strategy.run()"),
            HasSubstr("variable \"linear/dense"), HasSubstr("MirroredStrategy on /CPU:0, /CPU:1"),
            HasSubstr("strategy.distribute_dataset(dataset)"));
  const Lines lines;
  EXPECT_THAT(error_of([&] { step(model, optimizer); }).message(), expected);
  EXPECT_THAT(lines.texts(), IsEmpty()) << "the error says it all";
  auto compiled = function([&](const Tensor& x) {
    step(model, optimizer);
    return x;
  });
  EXPECT_THAT(error_of([&] { compiled(rows()); }).message(), expected);
}

TEST(OneDevice, ALoopWithoutRunAndWithoutOptimizerIsSaidOnce) {
  const MirroredStrategy strategy(names(2));
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = linear();
  }
  const auto expected =
      AllOf(HasSubstr("training runs on one device: "), HasSubstr("one_device_test.cc"),
            HasSubstr("MirroredStrategy on /CPU:0, /CPU:1"), HasSubstr("strategy.run(step, batch)"));
  {
    const Lines lines;
    descend(model, rows());
    EXPECT_THAT(lines.texts(), IsEmpty()) << "one gradient is no loop";
    for (int i = 0; i < 3; ++i) descend(model, rows());
    EXPECT_THAT(lines.texts(), ElementsAre(expected));
  }
  // A step that is compiled takes its gradients once.
  const MirroredStrategy second(names(2));
  second.adopt(model);
  auto compiled = function([&](const Tensor& x) {
    descend(model, x);
    return x;
  });
  const Lines lines;
  for (int i = 0; i < 3; ++i) compiled(rows());
  EXPECT_THAT(lines.texts(), ElementsAre(expected));
  // And inside of run() there is nothing to say.
  const MirroredStrategy third(names(2));
  third.adopt(model);
  const Lines none;
  for (int i = 0; i < 3; ++i)
    third.run(
        [&](const Tensor& x) {
          GradientTape tape;
          const Tensor loss = reduce_mean(square(model(x)));
          const std::vector<Variable> weights = model.trainable_weights();
          keras::optimizers::SGD().apply_gradients(tape.gradient(loss, weights), weights);
        },
        third.distribute(rows()));
  EXPECT_THAT(none.texts(), IsEmpty());
}

TEST(OneDevice, AModelWhoseStrategyIsGoneIsSaidToTrainOnOneDevice) {
  keras::Model model;
  {
    const MirroredStrategy strategy(names(2));
    const auto scope = strategy.scope();
    model = linear();
  }
  const Lines lines;
  for (int i = 0; i < 2; ++i) descend(model, rows());
  EXPECT_THAT(lines.texts(), ElementsAre(HasSubstr("keep a copy of the strategy, which is gone")));
}

TEST(OneDevice, ALoopByHandBesideAForgottenStrategyIsAnError) {
  const MirroredStrategy strategy(names(2));
  const keras::Model model = linear();
  const auto expected =
      AllOf(HasSubstr("gradient: would use one device, while MirroredStrategy on /CPU:0, /CPU:1"),
            HasSubstr("nothing that can be trained was made in its scope"));
  EXPECT_THAT(error_of([&] { step(model, keras::optimizers::SGD()); }).message(), expected);
  EXPECT_THAT(error_of([&] { descend(model, rows()); }).message(), expected);
  // What cannot be trained does not count.
  {
    const auto scope = strategy.scope();
    const Variable steps(0.0F, {.name = "steps", .trainable = false});
  }
  EXPECT_THAT(error_of([&] { descend(model, rows()); }).message(), expected);
  // Gradients of tensors train nothing.
  GradientTape tape;
  const Tensor x = rows();
  tape.watch(x);
  EXPECT_TRUE(tape.gradient(reduce_sum(square(x)), x).defined());
}

TEST(OneDevice, ALayerWithoutWeightsYetCountsAsMadeInTheScope) {
  const MirroredStrategy strategy(names(2));
  keras::Model later;
  {
    const auto scope = strategy.scope();
    later = keras::Sequential({keras::layers::Dense(1)});
  }
  const keras::Model other = linear();
  compile(other);
  const Lines lines;
  fit(other);
  EXPECT_THAT(lines.texts(), ElementsAre(HasSubstr("is trained on one device")));
}

TEST(OneDevice, RunningEagerlyUnderAStrategyIsAnError) {
  const MirroredStrategy strategy(names(2));
  keras::Model model;
  {
    const auto scope = strategy.scope();
    model = linear();
    model.compile({.optimizer = "sgd", .loss = "mse", .run_eagerly = true});
  }
  EXPECT_THAT(error_of([&] { fit(model); }).message(),
              AllOf(HasSubstr("run_eagerly"), HasSubstr("MirroredStrategy on /CPU:0, /CPU:1")));
}

// Said once per process.
TEST(OneDeviceOwnProcess, DevicesThatNoStrategyUsesAreNamed) {
  const keras::Model model = linear();
  compile(model);
  const Lines lines;
  fit(model);
  step(model, keras::optimizers::SGD());
  EXPECT_THAT(lines.texts(),
              ElementsAre(AllOf(HasSubstr("training runs on /CPU:0, and /CPU:1, "),
                                HasSubstr("/CPU:7 stay idle"), HasSubstr("MirroredStrategy"))));
}

TEST(OneDeviceOwnProcess, AProgramThatPlacesItsModelItselfKnowsWhatItDoes) {
  keras::Model there, split;
  {
    const auto scope = device("/CPU:1");
    there = linear();
  }
  compile(there);
  const Lines lines;
  fit(there);
  {
    const auto scope = device("/CPU:0");
    descend(linear(), rows());
  }
  EXPECT_THAT(lines.texts(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::distribute
