// What recurrent layers, wrappers and image layers promise beyond the harness and the recorded runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "graph/emit.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::vector<float> floats(const Tensor& tensor) { return tensor.to_vector<float>(); }

void expect_same(const Tensor& got, const Tensor& want, float tolerance = 1e-6f) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_THAT(floats(got), Pointwise(FloatNear(tolerance), floats(want)));
}

Tensor noise(const Shape& shape, uint64_t seed = 1) {
  const random::Generator generator(seed);
  return random::normal(shape, {.generator = &generator});
}

Tensor steps(const Tensor& x, int64_t from, int64_t count) { return slice(x, {0, from, 0}, {-1, count, -1}); }

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// --- recurrent layers --------------------------------------------------------------------------------------

TEST(Recurrent, StatefulLayersGoOnWhereTheyStopped) {
  const Layer whole = layers::GRU(3), parts = layers::GRU(3, {.stateful = true});
  const Tensor x = noise({2, 6, 4});
  const Tensor want = whole(x);
  parts.build({2, 3, 4});
  parts.set_weights(whole.get_weights());
  const Tensor first = parts(steps(x, 0, 3));
  expect_same(parts(steps(x, 3, 3)), want);
  layers::reset_states(parts);
  expect_same(parts(steps(x, 0, 3)), first);
  EXPECT_EQ(parts.weights().size(), 3u);  // states are none
  EXPECT_THAT(message_of([&] { parts(noise({3, 3, 4})); }), HasSubstr("built for 2 examples, received 3"));
  EXPECT_THAT(message_of([&] {
                layers::GRU(3, {.stateful = true})(Input({3, 4}));
              }),
              HasSubstr("batch size must be known"));
}

TEST(Recurrent, StatesAreResultsAndStarts) {
  const Layer layer = layers::LSTM(3, {.return_sequences = true, .return_state = true});
  const Tensor x = noise({2, 6, 4});
  const TensorList whole = layer.apply(TensorList{x});
  ASSERT_EQ(whole.size(), 3u);
  const TensorList first = layer.apply(TensorList{steps(x, 0, 4)});
  const TensorList rest = layer.apply(TensorList{steps(x, 4, 2)}, {.initial_state = {first[1], first[2]}});
  expect_same(rest[0], steps(whole[0], 4, 2));
  expect_same(rest[2], whole[2]);
  EXPECT_THAT(message_of([&] { layer.apply(TensorList{x}, {.initial_state = {first[1]}}); }),
              HasSubstr("has 2 states; initial_state has 1"));
}

TEST(Recurrent, BackwardsAndUnrolledAreTheSameSteps) {
  const Tensor x = noise({2, 5, 3});
  const Layer ahead = layers::LSTM(4, {.return_sequences = true});
  const Tensor want = ahead(reverse(x, {1}));
  for (const bool unroll : {false, true}) {
    const Layer back = layers::LSTM(4, {.return_sequences = true, .go_backwards = true, .unroll = unroll});
    back.build({-1, 5, 3});
    back.set_weights(ahead.get_weights());
    expect_same(back(x), want);
  }
}

// --- all steps as one op -----------------------------------------------------------------------------------

struct RecurrentCase {
  const char* name;
  std::function<Layer(bool backwards, bool unroll)> make;
};
template <class Options, class Make>
std::function<Layer(bool, bool)> recurrent(Make make, Options options) {
  return [=](bool backwards, bool unroll) {
    Options changed = options;
    changed.return_sequences = changed.return_state = true;
    changed.go_backwards = backwards, changed.unroll = unroll;
    return make(5, changed);
  };
}
std::vector<RecurrentCase> recurrent_cases() {
  const auto where = std::source_location::current();
  return {{"SimpleRNN",
           recurrent([=](int64_t units,
                         const layers::SimpleRNNOptions& o) { return layers::SimpleRNN(units, o, where); },
                     layers::SimpleRNNOptions{})},
          {"LSTM", recurrent([=](int64_t units,
                                 const layers::LSTMOptions& o) { return layers::LSTM(units, o, where); },
                             layers::LSTMOptions{})},
          {"GRU",
           recurrent([=](int64_t units, const layers::GRUOptions& o) { return layers::GRU(units, o, where); },
                     layers::GRUOptions{})},
          {"GRU without bias",
           recurrent([=](int64_t units, const layers::GRUOptions& o) { return layers::GRU(units, o, where); },
                     layers::GRUOptions{.use_bias = false})}};
}

// Results, and the gradients of a sum of their squares with respect to x and the weights.
TensorList run_and_differentiate(const Layer& layer, const Tensor& x, const Tensor& mask) {
  GradientTape tape({.persistent = true});
  tape.watch(x);
  TensorList all = layer.apply(TensorList{x}, {.mask = mask});
  Tensor sum;
  for (const Tensor& result : all) {
    const Tensor term = reduce_sum(square(result + 0.3));
    sum = sum.defined() ? sum + term : term;
  }
  all.push_back(tape.gradient(sum, x));
  for (const Variable& weight : layer.trainable_variables()) all.push_back(tape.gradient(sum, weight));
  return all;
}

TEST(Recurrent, OneOpIsTheSameAsItsSteps) {
  const Tensor x = noise({3, 6, 4});
  const Tensor mask = Tensor::from(std::vector<bool>{true, true, false, true, false, true, false, true, true,
                                                     true, true, false, true, true, true, true, true, true},
                                   {3, 6});
  for (const auto& [name, make] : recurrent_cases())
    for (const bool backwards : {false, true})
      for (const Tensor& seen : {Tensor(), mask}) {
        SCOPED_TRACE(std::string(name) + (backwards ? ", backwards" : "") +
                     (seen.defined() ? ", masked" : ""));
        const Layer whole = make(backwards, false), steps = make(backwards, true);
        for (const Layer& layer : {whole, steps}) layer.build({-1, 6, 4});
        steps.set_weights(whole.get_weights());
        const TensorList got = run_and_differentiate(whole, x, seen),
                         want = run_and_differentiate(steps, x, seen);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], want[i], 2e-5f);
      }
}

// d sum(g g) / dx for g = d sum(y y) / dx. `late`: the outer tape begins behind the layer.
Tensor second_derivative(const Layer& layer, const Tensor& x, bool late) {
  std::optional<GradientTape> outer;
  if (!late) outer.emplace().watch(x);
  GradientTape inner;
  inner.watch(x);
  const Tensor y = layer.apply(TensorList{x})[0];
  const Tensor loss = reduce_sum(y * y);
  if (late) outer.emplace().watch(y);
  const Tensor g = inner.gradient(loss, x);
  return outer->gradient(reduce_sum(g * g), late ? y : x);
}

TEST(Recurrent, SecondDerivativesAreThoseOfTheSteps) {
  const Tensor x = noise({2, 4, 3});
  for (const auto& [name, make] : recurrent_cases())
    for (const bool late : {false, true}) {
      SCOPED_TRACE(std::string(name) + (late ? ", outer tape behind the layer" : ""));
      const Layer whole = make(false, false), steps = make(false, true);
      for (const Layer& layer : {whole, steps}) layer.build({-1, 4, 3});
      steps.set_weights(whole.get_weights());
      expect_same(second_derivative(whole, x, late), second_derivative(steps, x, late), 1e-4f);
    }
}

class OpNames final : public Recorder {
 public:
  OpNames() { push_recorder(this); }
  ~OpNames() override { remove_recorder(this); }
  void record(const OpDef& op, const Attrs&, std::span<const Tensor>, std::span<const Tensor>) override {
    names.insert(std::string(op.name));
  }
  void read(const Variable&, const Tensor&) override {}
  std::set<std::string> names;
};

TEST(Recurrent, OneOpWhereTheSettingsAllowIt) {
  const auto one_op = [](const Layer& layer, bool training = false) {
    const Tensor x = noise({2, 3, 4});
    layer.build({-1, 3, 4});
    const OpNames seen;
    layer(x, {.training = training});
    return seen.names.contains("recurrence");
  };
  EXPECT_TRUE(one_op(layers::LSTM(3)));
  EXPECT_TRUE(one_op(layers::LSTM(3, {.dropout = 0.5}), true));
  EXPECT_TRUE(one_op(layers::GRU(3, {.recurrent_dropout = 0.5})));
  EXPECT_TRUE(one_op(layers::SimpleRNN(3)));
  EXPECT_TRUE(one_op(layers::RNN({layers::LSTMCell(4), layers::GRUCell(2)})));
  EXPECT_FALSE(one_op(layers::GRU(3, {.recurrent_dropout = 0.5}), true));
  EXPECT_FALSE(one_op(layers::GRU(3, {.reset_after = false})));
  EXPECT_FALSE(one_op(layers::LSTM(3, {.activation = "relu"})));
  EXPECT_FALSE(one_op(layers::LSTM(3, {.recurrent_activation = "hard_sigmoid"})));
  EXPECT_FALSE(one_op(layers::LSTM(3, {.unroll = true})));
  EXPECT_FALSE(one_op(layers::LSTM(3, {.activation = [](const Tensor& v) { return tanh(v); }})));
  const OpNames outer;
  EXPECT_FALSE(one_op(layers::LSTM(3)));
}

TEST(Recurrent, MaskedStepsKeepTheState) {
  const Layer layer = layers::SimpleRNN(3, {.return_sequences = true});
  const Layer zeros = layers::SimpleRNN(3, {.return_sequences = true, .zero_output_for_mask = true});
  const Tensor x = noise({1, 4, 2});
  zeros.build({-1, 4, 2});
  const Tensor mask = Tensor::from(std::vector<bool>{true, false, true, false}, {1, 4});
  const Tensor seen = concat(TensorList{steps(x, 0, 1), steps(x, 2, 1)}, 1);
  const Tensor want = layer(seen), got = layer(x, {.mask = mask});
  zeros.set_weights(layer.get_weights());
  const Tensor with_zeros = zeros(x, {.mask = mask});
  expect_same(steps(got, 0, 1), steps(want, 0, 1));
  expect_same(steps(got, 1, 1), steps(want, 0, 1));
  expect_same(steps(got, 2, 1), steps(want, 1, 1));
  expect_same(steps(got, 3, 1), steps(want, 1, 1));
  expect_same(steps(with_zeros, 2, 1), steps(want, 1, 1));
  EXPECT_THAT(floats(steps(with_zeros, 1, 1)), Each(0.f));
  EXPECT_THAT(floats(steps(with_zeros, 3, 1)), Each(0.f));
  EXPECT_TRUE(mask_of(got).defined());
}

TEST(Recurrent, StackedCellsAreLayersOnLayers) {
  const Tensor x = noise({2, 5, 3});
  const Layer first = layers::LSTM(4, {.return_sequences = true}), second = layers::GRU(2);
  const Tensor want = second(first(x));
  const Layer stack = layers::RNN({layers::LSTMCell(4), layers::GRUCell(2)});
  stack.build({-1, 5, 3});
  TensorList weights = first.get_weights();
  for (const Tensor& weight : second.get_weights()) weights.push_back(weight);
  stack.set_weights(weights);
  expect_same(stack(x), want);
  EXPECT_THAT(message_of([] { layers::RNN(layers::Dense(2)); }), HasSubstr("received Dense"));
}

TEST(Recurrent, DropoutIsTheSameAtEveryStep) {
  const Layer layer = layers::SimpleRNN(8, {.activation = "linear",
                                            .use_bias = false,
                                            .recurrent_initializer = "zeros",
                                            .dropout = 0.5,
                                            .return_sequences = true,
                                            .seed = 4});
  const Tensor step = noise({3, 1, 6});
  const Tensor y = layer(concat(TensorList{step, step, step}, 1), {.training = true});
  expect_same(steps(y, 1, 1), steps(y, 0, 1));
  expect_same(steps(y, 2, 1), steps(y, 0, 1));
  EXPECT_NE(floats(steps(y, 0, 1)), floats(steps(layer(step), 0, 1)));
}

TEST(Recurrent, ForgetGatesStartOpen) {
  const Layer layer = layers::LSTM(2);
  layer.build({-1, 3, 1});
  EXPECT_THAT(floats(layer.get_weights()[2]), ::testing::ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
}

// --- layers around layers ----------------------------------------------------------------------------------

TEST(Bidirectional, TakesOneLayerOfEachDirection) {
  EXPECT_THAT(message_of([] { layers::Bidirectional(layers::Dense(2)); }), HasSubstr("Dense has no setting"));
  EXPECT_THAT(message_of([] { layers::Bidirectional(layers::GRU(2), {.backward_layer = layers::GRU(2)}); }),
              HasSubstr("must go backwards"));
  EXPECT_THAT(message_of([] { layers::Bidirectional(layers::GRU(2), {.merge_mode = "max"}); }),
              HasSubstr("received \"max\""));
}

TEST(Bidirectional, LooksFromBothEnds) {
  const Layer layer = layers::Bidirectional(layers::SimpleRNN(2, {.return_sequences = true}));
  const Tensor x = noise({1, 3, 2});
  const Tensor y = layer(x);
  const Layer ahead = layers::SimpleRNN(2, {.return_sequences = true});
  ahead.build({-1, 3, 2});
  const TensorList weights = layer.get_weights();
  ahead.set_weights({weights[0], weights[1], weights[2]});
  expect_same(slice(y, {0, 0, 0}, {-1, -1, 2}), ahead(x));
  ahead.set_weights({weights[3], weights[4], weights[5]});
  expect_same(slice(y, {0, 0, 2}, {-1, -1, 2}), reverse(ahead(reverse(x, {1})), {1}));
}

TEST(TimeDistributed, StepsAreBatchesToStatistics) {
  const Layer layer = layers::TimeDistributed(layers::BatchNormalization({.momentum = 0.5, .epsilon = 0}));
  const Tensor x = Tensor::from({1.f, 10.f, 3.f, 30.f}, {2, 2, 1});
  const Tensor y = layer(x, {.training = true});
  EXPECT_THAT(floats(y), Pointwise(FloatNear(1e-4f), std::vector<float>{-1, -1, 1, 1}));
  // 0 -> 1 -> 10.5: the means of both steps, one after the other.
  EXPECT_FLOAT_EQ(layer.get_weights()[2].item<float>(), 10.5f);
}

// --- images ------------------------------------------------------------------------------------------------

Tensor picture() {  // 0 1 2 / 3 4 5
  return reshape(range(6, DType::float32), {1, 2, 3, 1});
}
Tensor pictures(int64_t count) { return broadcast_to(picture(), {count, 2, 3, 1}); }

std::set<std::vector<float>> variants(const Tensor& images) {
  std::set<std::vector<float>> found;
  for (const Tensor& image : unstack(images)) found.insert(floats(image));
  return found;
}

// As in Keras, a call that says nothing changes images, for they are changed in data pipelines too, where
// nobody says it.
TEST(RandomImages, AreStillOutsideOfTrainingAlone) {
  const Tensor x = pictures(12);
  for (const Layer& layer :
       {layers::RandomFlip(), layers::RandomRotation(0.5), layers::RandomTranslation(0.5, 0.5),
        layers::RandomZoom(0.5), layers::RandomContrast(0.5), layers::RandomBrightness(0.5),
        layers::RandomShear(0.5, 0.5), layers::RandomPerspective(1.0), layers::RandomErasing(1.0)}) {
    EXPECT_EQ(floats(layer(x, {.training = false})), floats(x)) << layer.class_name();
    EXPECT_NE(floats(layer(x)), floats(x)) << layer.class_name();
    EXPECT_NE(floats(layer(x, {.training = true})), floats(x)) << layer.class_name();
  }
}

TEST(RandomImages, EachImageHasAFateOfItsOwn) {
  const auto flipped =
      variants(layers::RandomFlip("horizontal_and_vertical", {.seed = 3})(pictures(40), {.training = true}));
  EXPECT_EQ(flipped, (std::set<std::vector<float>>{
                         {0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {3, 4, 5, 0, 1, 2}, {5, 4, 3, 2, 1, 0}}));
  const auto cropped = variants(layers::RandomCrop(1, 2, {.seed = 3})(pictures(60), {.training = true}));
  EXPECT_EQ(cropped, (std::set<std::vector<float>>{{0, 1}, {1, 2}, {3, 4}, {4, 5}}));
}

TEST(RandomImages, MoveByTheirFactors) {
  const CallOptions training{.training = true};
  // A factor of one value leaves nothing to chance.
  EXPECT_EQ(floats(layers::RandomTranslation({0.5, 0.5}, 0.0, {.fill_mode = "constant", .fill_value = 9})(
                picture(), training)),
            (std::vector<float>{9, 9, 9, 0, 1, 2}));
  const Tensor square = reshape(range(4, DType::float32), {1, 2, 2, 1});  // 0 1 / 2 3
  EXPECT_THAT(floats(layers::RandomRotation({0.25, 0.25})(square, training)),
              Pointwise(FloatNear(1e-5f), std::vector<float>{1, 3, 0, 2}));  // counter-clockwise
  EXPECT_THAT(floats(layers::RandomZoom({-0.5, -0.5})(square, training)),
              Pointwise(FloatNear(1e-5f), std::vector<float>{0.75f, 1.25f, 1.75f, 2.25f}));
  EXPECT_THAT(floats(layers::RandomBrightness({0.1, 0.1}, {.value_range = {0.0, 5.0}})(picture(), training)),
              Pointwise(FloatNear(1e-5f), std::vector<float>{0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5}));
  EXPECT_THAT(message_of([] { layers::RandomRotation(1.5); }), HasSubstr("between -1 and 1"));
  EXPECT_THAT(message_of([] { layers::RandomZoom({-1.0, 0.0}); }), HasSubstr("height_factor"));
}

TEST(Images, SizesAreKeptInProportion) {
  EXPECT_EQ(floats(layers::CenterCrop(2, 1)(picture())), (std::vector<float>{1, 4}));
  EXPECT_EQ(floats(layers::Resizing(2, 2, {.crop_to_aspect_ratio = true})(picture())),
            (std::vector<float>{0, 1, 3, 4}));
  EXPECT_EQ(layers::Resizing(4, 4, {.pad_to_aspect_ratio = true})(picture()).shape(), (Shape{1, 4, 4, 1}));
  const Tensor one = squeeze(picture(), {0});
  EXPECT_EQ(layers::Resizing(4, 6)(one).shape(), (Shape{4, 6, 1}));
  const Tensor bytes = cast(picture() * 40.0, DType::uint8);
  EXPECT_EQ(layers::Resizing(4, 6)(bytes).dtype(), DType::uint8);
}

}  // namespace
}  // namespace lockstep::keras
