// What fit says of a loss that is not finite.
#include "keras/training/non_finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/log.h"
#include "lockstep/data/dataset.h"
#include "lockstep/keras/layers.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class NonFinite : public ::testing::Test {
 protected:
  NonFinite()
      : previous_(set_log_sink([this](const LogMessage& message) { told.emplace_back(message.text); })) {}
  ~NonFinite() override { set_log_sink(previous_); }

  // Elements 0.01, 0.02, ...; the one at `place` is `value`.
  static Tensor examples(int64_t n, int64_t width, int64_t place = -1, float value = 0) {
    std::vector<float> values(static_cast<size_t>(n * width));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i % 100 + 1);
    if (place >= 0) values[static_cast<size_t>(place)] = value;
    return Tensor::from(values, {n, width});
  }
  static Model network(double learning_rate = 0.01) {
    const Sequential model({layers::Dense(4, {.activation = "relu", .name = "first", .input_shape = {3}}),
                            layers::Dense(1, {.name = "second"})});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = learning_rate}), .loss = "mse"});
    return model;
  }

  std::vector<std::string> told;

 private:
  LogSink previous_;
};

TEST_F(NonFinite, TheFirstElementIsFound) {
  EXPECT_FALSE(find_non_finite(examples(4, 3)));
  EXPECT_FALSE(find_non_finite(Tensor::from<int32_t>({1, 2}, {2})));
  EXPECT_FALSE(find_non_finite(Tensor()));
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, -kInf, kNaN}, {2, 3});
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    const auto found = find_non_finite(cast(x, dtype));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->index, (Dims{1, 1}));
    EXPECT_EQ(found->value, -kInf);
    EXPECT_EQ(found->count, 2);
  }
}

TEST_F(NonFinite, FiniteTrainingIsSilent) {
  network().fit(examples(32, 3), examples(32, 1), {.batch_size = 8, .epochs = 3, .verbose = 0});
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(NonFinite, NaNInTheDataIsNamed) {
  const Model model = network();
  // Example 21 is in the sixth batch of four.
  model.fit(examples(32, 3, 21 * 3 + 2, kNaN), examples(32, 1),
            {.batch_size = 4, .epochs = 3, .verbose = 0, .shuffle = false});
  ASSERT_EQ(told.size(), 1U);  // once a fit
  EXPECT_THAT(told[0], AllOf(HasSubstr("the loss is nan since step 6 of this epoch"),
                             HasSubstr("the data is not finite"), HasSubstr("input"),
                             HasSubstr("float32(32, 3)"), HasSubstr("nan in example 21, element (2)"),
                             HasSubstr("1 of 96 is not finite"), HasSubstr("TerminateOnNaN"),
                             HasSubstr("enable_check_numerics"), Not(HasSubstr("diverged"))));
  // And it reaches the weights of a network that ends in ReLUs instead of turning into 0 there.
  EXPECT_TRUE(find_non_finite(model.get_weights()[0]));
}

TEST_F(NonFinite, InfinityInLabelsIsNamed) {
  network().fit(examples(32, 3), examples(32, 1, 9, kInf), {.batch_size = 4, .verbose = 0, .shuffle = false});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], AllOf(HasSubstr("since step 3 of this epoch"), HasSubstr("labels"),
                             HasSubstr("inf in example 9, element (0)")));
}

TEST_F(NonFinite, DatasetsAreReadAnew) {
  const auto data =
      data::Dataset::from_tensor_slices({examples(32, 3, 5 * 3, kNaN), examples(32, 1)}).batch(4);
  network().fit(data, {.verbose = 0});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], AllOf(HasSubstr("since step 2 of this epoch"), HasSubstr("the data is not finite"),
                             HasSubstr("nan in example 1, element (0)"), HasSubstr("(batch 2)")));
}

TEST_F(NonFinite, DivergenceIsToldApart) {
  const Model model = network(1e20);
  model.fit(examples(64, 3), examples(64, 1), {.batch_size = 4, .verbose = 0, .shuffle = false});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], AllOf(HasSubstr("the data is finite, training diverged"), HasSubstr("weight \""),
                             HasSubstr("Lower the learning rate (now 1e+20)"), HasSubstr("clipnorm"),
                             Not(HasSubstr("the data is not finite"))));
}

TEST_F(NonFinite, ALayerIsNamedWhereTheWeightsAreFinite) {
  const Model model = network(0.0);
  model.weights()[0].assign(Tensor::full(DType::float32, {3, 4}, 1e30));
  const Batch last{{Tensor::full(DType::float32, {2, 3}, 1e10)}, {examples(2, 1)}, {}};
  const Data data(last.x, last.y);
  const NonFiniteVerdict verdict = explain({.model = model.model_base(),
                                            .data = *data.source(),
                                            .loss = kInf,
                                            .step = 1,
                                            .taken = 1,
                                            .batch_size = 2,
                                            .last = last,
                                            .learning_rate = 0.5});
  EXPECT_EQ(verdict.cause, NonFiniteVerdict::Cause::layer);
  EXPECT_THAT(verdict.text, AllOf(HasSubstr("the loss is inf since step 1"), HasSubstr("layer \"first\""),
                                  HasSubstr("inf in example 0, element (0)")));
}

TEST_F(NonFinite, ALossAloneIsSaid) {
  const Sequential model({layers::Dense(1, {.kernel_initializer = "zeros", .input_shape = {3}})});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.0}),
                 .loss = Loss([](const Tensor& y, const Tensor& prediction) {
                   return log(y * 0.0) + prediction * 0.0;
                 })});
  model.fit(examples(8, 3), examples(8, 1), {.batch_size = 4, .verbose = 0});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], AllOf(HasSubstr("the loss is -inf since step 1"), HasSubstr("the loss itself")));
}

TEST_F(NonFinite, EveryFitSaysIt) {
  const Model model = network();
  for (int i = 0; i < 2; ++i)
    model.fit(examples(8, 3, 0, kNaN), examples(8, 1), {.batch_size = 4, .verbose = 0});
  EXPECT_EQ(told.size(), 2U);
}

TEST_F(NonFinite, ValidationIsNotTraining) {
  network().fit(examples(8, 3), examples(8, 1),
                {.batch_size = 4,
                 .epochs = 2,
                 .verbose = 0,
                 .validation_data = Data(examples(8, 3, 0, kNaN), examples(8, 1))});
  EXPECT_THAT(told, IsEmpty());
}

}  // namespace
}  // namespace lockstep::keras
