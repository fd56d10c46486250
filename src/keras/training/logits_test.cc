#include "keras/training/logits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/log.h"
#include "lockstep/keras/layers.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MistakenLogits : public ::testing::Test {
 protected:
  MistakenLogits()
      : previous_(set_log_sink([this](const LogMessage& m) { messages_.emplace_back(m.text); })) {}
  ~MistakenLogits() override { set_log_sink(previous_); }

  // What training a step of the model says.
  std::vector<std::string> said(const Model& model, const Loss& loss, const Tensor& y) {
    messages_.clear();
    model.compile({.optimizer = "sgd", .loss = loss});
    model.train_on_batch({{Tensor::full(DType::float32, {2, 4}, 0.5)}, {y}, {}});
    return messages_;
  }

  // Names of their own: the same words are said once.
  static Model ends_in(const std::string& name, const char* activation) {
    return Sequential({layers::Dense(3, {.activation = activation, .name = name, .input_shape = {4}})});
  }

  const Tensor classes_ = Tensor::from<int32_t>({0, 2}, {2});
  const Tensor bits_ = Tensor::full(DType::float32, {2, 3}, 1);

 private:
  std::vector<std::string> messages_;
  LogSink previous_;
};

TEST_F(MistakenLogits, ForALossOfProbabilitiesAreWarnedOfOnce) {
  const Model model = ends_in("bare", "linear");
  EXPECT_THAT(said(model, "sparse_categorical_crossentropy", classes_),
              ElementsAre(AllOf(HasSubstr("takes probabilities, but layer \"bare\" gives logits"),
                                HasSubstr("from_logits = true"), HasSubstr("softmax"))));
  EXPECT_THAT(said(model, "sparse_categorical_crossentropy", classes_), IsEmpty());
  EXPECT_THAT(said(ends_in("bare_bits", "linear"), "binary_crossentropy", bits_),
              ElementsAre(HasSubstr("activation = \"sigmoid\" in the layer")));
}

TEST_F(MistakenLogits, ActivationsThatWouldBeAppliedTwiceAreWarnedOf) {
  const Loss loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  EXPECT_THAT(
      said(ends_in("twice", "softmax"), loss, classes_),
      ElementsAre(AllOf(HasSubstr("layer \"twice\" gives probabilities"), HasSubstr("applied twice"))));
  const KerasTensor x = Input({4});
  const Model functional(x, layers::Softmax({.name = "last"})(layers::Dense(3)(x)));
  EXPECT_THAT(said(functional, loss, classes_), ElementsAre(HasSubstr("layer \"last\"")));
  // The model inside says it.
  const KerasTensor outer = Input({4});
  const Model nested(outer, ends_in("inner", "softmax")(outer));
  EXPECT_THAT(said(nested, loss, classes_), ElementsAre(HasSubstr("layer \"inner\"")));
}

TEST_F(MistakenLogits, WhatFitsIsNotSpokenOf) {
  EXPECT_THAT(said(ends_in("a", "softmax"), "sparse_categorical_crossentropy", classes_), IsEmpty());
  EXPECT_THAT(
      said(ends_in("b", "linear"), losses::SparseCategoricalCrossentropy({.from_logits = true}), classes_),
      IsEmpty());
  EXPECT_THAT(said(ends_in("c", "linear"), "mse", bits_), IsEmpty());
  EXPECT_THAT(said(ends_in("d", "tanh"), "binary_crossentropy", bits_), IsEmpty());
}

}  // namespace
}  // namespace lockstep::keras
