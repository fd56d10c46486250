// What all optimizers can be told, whatever their rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error_of_test.h"
#include "lockstep/base/error.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::optimizers {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor floats(const Floats& values) { return Tensor::from(values, {static_cast<int64_t>(values.size())}); }
Floats read(const Variable& variable) { return variable.value().to_vector<float>(); }
int64_t count(const Variable& variable) { return variable.value().item<int64_t>(); }

// Every optimizer, by name.
const char* const kNames[] = {"sgd",     "adam",     "adamw", "adamax", "nadam", "rmsprop",
                              "adagrad", "adadelta", "lion",  "lamb",   "ftrl",  "adafactor"};

Optimizer named(const std::string& name, Json settings) {
  settings.set("learning_rate", 0.1);
  return Optimizer::deserialize(Json::object({{"class_name", name}, {"config", std::move(settings)}}));
}

struct Trained {
  std::vector<Floats> weights;
  std::vector<Floats> state;
};

// Ten steps of a matrix and a vector.
Trained train(const Optimizer& optimizer, bool compiled) {
  const Variable a(Tensor::from(Floats{1, -2, 3, 0.5, 0.25, -1}, {2, 3}), {.name = "a"});
  const Variable b(floats({0.5, -0.5, 2}), {.name = "b"});
  const auto body = [&](const Tensor& x, const Tensor& y) {
    optimizer.apply_gradients(TensorList{optimizer.scale_loss(x), optimizer.scale_loss(y)}, {a, b});
  };
  auto step = function(body);
  for (int t = 1; t <= 10; ++t) {
    Floats x, y;
    for (int i = 0; i < 6; ++i) x.push_back(std::sin(1.3f * static_cast<float>(t + i)));
    for (int i = 0; i < 3; ++i) y.push_back(std::cos(1.7f * static_cast<float>(t * i)));
    if (compiled)
      step(Tensor::from(x, {2, 3}), floats(y));
    else
      body(Tensor::from(x, {2, 3}), floats(y));
  }
  Trained run{{read(a), read(b)}, {}};
  for (const Variable& variable : optimizer.variables())
    if (variable.dtype() == DType::float32) run.state.push_back(read(variable));
  return run;
}

class NamedOptimizers : public ::testing::TestWithParam<const char*> {};

void expect_same(const Trained& one, const Trained& other, float bound) {
  for (const auto member : {&Trained::weights, &Trained::state})
    for (size_t i = 0; i < (one.*member).size(); ++i)
      for (size_t k = 0; k < (one.*member)[i].size(); ++k)
        EXPECT_NEAR((one.*member)[i][k], (other.*member)[i][k], bound) << i << ", " << k;
}

TEST_P(NamedOptimizers, EagerIsCompiledWithEveryOption) {
  const Json all = Json::object({{"weight_decay", 0.01},
                                 {"clipnorm", 0.9},
                                 {"use_ema", true},
                                 {"ema_overwrite_frequency", 2},
                                 {"loss_scale_factor", 8.0},
                                 {"gradient_accumulation_steps", 3}});
  for (const Json& settings : {Json::object(), all})
    expect_same(train(named(GetParam(), settings), false), train(named(GetParam(), settings), true), 1e-5f);
}

TEST_P(NamedOptimizers, ScalingTheLossChangesNothing) {
  const Trained plain = train(named(GetParam(), Json::object()), true);
  expect_same(plain, train(named(GetParam(), Json::object({{"loss_scale_factor", 1024.0}})), true), 1e-6f);
  const Trained dynamic = train(LossScaleOptimizer(named(GetParam(), Json::object())), true);
  EXPECT_EQ(dynamic.weights, plain.weights);
}

TEST_P(NamedOptimizers, AccumulatedEqualGradientsAreOneUpdate) {
  const auto weights = [&](const Json& settings, int steps) {
    const Optimizer optimizer = named(GetParam(), settings);
    const Variable w(Tensor::from(Floats{1, -2, 3, 4}, {2, 2}));
    auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
    for (int t = 0; t < steps; ++t) {
      const Floats before = read(w);
      step(Tensor::from(Floats{0.5, 0.25, -2, 1}, {2, 2}));
      if (settings.contains("gradient_accumulation_steps") && (t + 1) % 4 != 0) {
        EXPECT_EQ(read(w), before);
      }
    }
    EXPECT_EQ(step.traces(), 1);
    EXPECT_EQ(count(optimizer.iterations()), 3);
    return read(w);
  };
  EXPECT_EQ(weights(Json::object({{"gradient_accumulation_steps", 4}}), 12), weights(Json::object(), 3));
}

TEST_P(NamedOptimizers, SixteenBitWeightsFollowFloat32) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const auto weights = [&](DType kept) {
      const Optimizer optimizer = named(GetParam(), Json::object());
      const Variable w(cast(Tensor::from(Floats{1, -2, 3, 4}, {2, 2}), kept));
      const Tensor g = cast(Tensor::from(Floats{0.5, 0.25, -2, 1}, {2, 2}), kept);
      auto step = function([&](const Tensor& x) { optimizer.apply_gradients(TensorList{x}, {w}); });
      for (int t = 0; t < 3; ++t) step(g);
      for (const Variable& slot : optimizer.variables())
        if (slot.shape() == w.shape()) {
          EXPECT_EQ(slot.dtype(), kept) << slot.name();
        }
      return cast(w.value(), DType::float32).to_vector<float>();
    };
    const Floats exact = weights(DType::float32), rounded = weights(dtype);
    const float unit = dtype == DType::bfloat16 ? 0.008f : 0.001f;
    for (size_t i = 0; i < exact.size(); ++i)
      EXPECT_NEAR(rounded[i], exact[i], 6 * unit * std::abs(exact[i])) << name(dtype) << i;
  }
}

TEST_P(NamedOptimizers, SlotsAreThereBeforeTheFirstStepAndNamedAfterTheVariable) {
  const Optimizer optimizer =
      named(GetParam(), Json::object({{"use_ema", true}, {"gradient_accumulation_steps", 2}}));
  const Variable a(Tensor::full(DType::float32, {2, 3}, 1), {.name = "dense/kernel"});
  const Variable b(Tensor::full(DType::float32, {3}, 1), {.name = "dense/kernel"});  // alas
  const Variable c(Tensor::full(DType::float32, {4}, 1), {.name = "dense/kernel"});
  optimizer.build({a, b, c});
  const std::vector<Variable> built = optimizer.variables();
  std::set<std::string> names;
  for (const Variable& variable : built) names.insert(variable.name());
  EXPECT_EQ(names.size(), built.size());
  EXPECT_TRUE(names.contains("iteration"));
  EXPECT_TRUE(names.contains("learning_rate"));
  for (const char* end : {"", "_1", "_2"})
    EXPECT_TRUE(names.contains(std::string("dense/kernel/average") + end));
  auto step = function([&](const Tensor& x) {
    optimizer.apply_gradients(TensorList{a * reduce_sum(x), b * reduce_sum(x)}, {a, b});
  });
  step(floats({1, 2}));
  EXPECT_EQ(optimizer.variables().size(), built.size());
}

TEST_P(NamedOptimizers, IsWrittenAndReadAgain) {
  const Optimizer optimizer(GetParam());
  const Json json = optimizer.serialize();
  EXPECT_EQ(json.at("module").as_string(), "keras.optimizers");
  EXPECT_EQ(Optimizer::deserialize(json).serialize(), json);
  Json misspelt = json;
  misspelt["config"].set("learning_rat", 0.5);
  EXPECT_THAT(error_of([&] { Optimizer::deserialize(misspelt); }).message(),
              AllOf(HasSubstr("learning_rat"), HasSubstr("did you mean \"learning_rate\"?")));
}

INSTANTIATE_TEST_SUITE_P(All, NamedOptimizers, ::testing::ValuesIn(kNames),
                         [](const auto& info) { return std::string(info.param); });

// --- names -------------------------------------------------------------------------------------------------

TEST(OptimizerNames, CaseDoesNotMatter) {
  for (const char* name : {"rmsprop", "RMSprop", "RMSPROP", "rm_sprop"})
    EXPECT_EQ(Optimizer(name).serialize().at("class_name").as_string(), "RMSprop") << name;
  const Error error = error_of([] { Optimizer("adamm"); });
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("\"adamm\""), HasSubstr("did you mean \"adam\"?")));
}

TEST(OptimizerNames, DefaultToTheClassName) {
  EXPECT_EQ(SGD().name(), "sgd");
  EXPECT_EQ(AdamW({.name = "mine"}).name(), "mine");
  EXPECT_EQ(LossScaleOptimizer(SGD()).name(), "loss_scale_optimizer");
}

TEST(OptimizerSettings, ThatCannotBeAreRefused) {
  const std::pair<std::function<void()>, const char*> cases[] = {
      {[] { SGD({.clipnorm = 1, .clipvalue = 1}); }, "at most one of clipnorm"},
      {[] { SGD({.clipnorm = -1}); }, "clipnorm must be positive"},
      {[] { SGD({.gradient_accumulation_steps = 1}); }, "at least 2"},
      {[] { SGD({.use_ema = true, .ema_momentum = 1.5}); }, "ema_momentum"},
      {[] { SGD({.use_ema = true, .ema_overwrite_frequency = 0}); }, "ema_overwrite_frequency"},
      {[] { SGD({.loss_scale_factor = 0}); }, "loss_scale_factor"},
      {[] { SGD({.momentum = 2}); }, "momentum must be from 0 to 1"},
      {[] { AdamW({.weight_decay = {}}); }, "weight_decay"},
      {[] { Lion({.beta_1 = 0}); }, "beta_1"},
      {[] { Ftrl({.learning_rate_power = 1}); }, "learning_rate_power"},
      {[] { LossScaleOptimizer(SGD({.loss_scale_factor = 2})); }, "scales the loss itself"},
      {[] { LossScaleOptimizer(LossScaleOptimizer(SGD())); }, "scales the loss itself"},
      {[] { LossScaleOptimizer(SGD(), {.dynamic_growth_steps = 0}); }, "dynamic_growth_steps"},
      {[] { schedules::ExponentialDecay(1, 0, 1); }, "decay_steps must be positive"},
      {[] {
         schedules::PiecewiseConstantDecay({1, 2}, {1, 2});
       },
       "one value more than boundaries"},
      {[] {
         schedules::PiecewiseConstantDecay({2, 1}, {1, 2, 3});
       },
       "boundaries must rise"},
  };
  for (const auto& [make, message] : cases) {
    const Error error = error_of(make);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.message(), HasSubstr(message));
    EXPECT_THAT(error.where().file_name(), HasSubstr("options_test.cc"));
  }
}

// --- the learning rate -------------------------------------------------------------------------------------

TEST(OptimizerRate, AssignedItChangesCompiledStepsAndWhatIsWritten) {
  const Optimizer optimizer = SGD({.learning_rate = 0.5});
  const Variable w(floats({1}));
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  step(floats({1}));
  EXPECT_EQ(read(w), Floats{0.5});
  EXPECT_EQ(optimizer.current_learning_rate(), 0.5);
  optimizer.set_learning_rate(0.25);
  step(floats({1}));
  EXPECT_EQ(read(w), Floats{0.25});
  EXPECT_EQ(step.traces(), 1);
  EXPECT_EQ(optimizer.current_learning_rate(), 0.25);
  EXPECT_EQ(optimizer.serialize().at("config").at("learning_rate").as_double(), 0.25);
  EXPECT_FALSE(optimizer.schedule().defined());
}

TEST(OptimizerRate, ScheduledItIsComputedInTheCompiledStep) {
  const Optimizer optimizer =
      SGD({.learning_rate = schedules::PiecewiseConstantDecay({0, 1}, {1, 0.5, 0.25})});
  const Variable w(floats({0}));
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  Floats moved;
  for (const double rate : {1.0, 0.5, 0.25, 0.25}) {
    EXPECT_EQ(optimizer.current_learning_rate(), rate);
    const float before = read(w)[0];
    step(floats({1}));
    EXPECT_EQ(before - read(w)[0], rate);
  }
  EXPECT_EQ(step.traces(), 1);
  EXPECT_TRUE(optimizer.schedule().defined());
  EXPECT_EQ(optimizer.variables().size(), 1u);
  EXPECT_THAT(error_of([&] { optimizer.learning_rate(); }).message(), HasSubstr("follows a schedule"));
}

TEST(OptimizerRate, MayBeAFunctionOfTheStep) {
  const Optimizer optimizer =
      SGD({.learning_rate = [](const Tensor& step) { return 1.0 / (1.0 + cast(step, DType::float32)); }});
  const Variable w(floats({0}));
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  for (int i = 0; i < 3; ++i) step(floats({6}));
  EXPECT_EQ(read(w), Floats{-11});
  EXPECT_THAT(error_of([&] { optimizer.serialize(); }).message(), HasSubstr("register_schedule"));
  EXPECT_THAT(error_of([&] {
                SGD({.learning_rate = [](const Tensor& step) {
                  return step;
                }}).apply_gradients(TensorList{w.value()}, {w});
              }).message(),
              HasSubstr("floating-point scalar"));
}

// --- decay, constraints, averages --------------------------------------------------------------------------

TEST(OptimizerDecay, LeavesOutWhatIsExcluded) {
  for (const bool by_word : {true, false}) {
    const Optimizer optimizer = SGD({.learning_rate = 0.5, .weight_decay = 0.5});
    if (by_word)
      optimizer.exclude_from_weight_decay({"gamma", "bias"});
    else
      optimizer.exclude_from_weight_decay([](const Variable& v) { return v.name() == "dense/bias"; });
    const Variable kernel(floats({4}), {.name = "dense/kernel"}), bias(floats({4}), {.name = "dense/bias"});
    optimizer.apply_gradients(TensorList{floats({0}), floats({0})}, {kernel, bias});
    EXPECT_EQ(read(kernel), Floats{3});
    EXPECT_EQ(read(bias), Floats{4});
  }
}

TEST(OptimizerConstraint, IsAppliedAfterTheUpdate) {
  const Optimizer optimizer = SGD({.learning_rate = 1});
  const Variable w(floats({1, 1}), {.constraint = [](const Tensor& x) { return maximum(x, 0.0); }});
  auto step = function([&](const Tensor& g) { optimizer.apply_gradients(TensorList{g}, {w}); });
  step(floats({0.5, 3}));
  EXPECT_EQ(read(w), (Floats{0.5, 0}));
}

TEST(OptimizerAverages, TakeTheVariablesPlaceAtTheEnd) {
  const Optimizer optimizer = SGD({.learning_rate = 1, .use_ema = true, .ema_momentum = 0.5});
  const Variable w(floats({0})), still(floats({7}));
  for (int i = 0; i < 3; ++i) optimizer.apply_gradients(TensorList{floats({-2}), Tensor()}, {w, still});
  EXPECT_EQ(read(w), Floats{6});
  optimizer.finalize_variable_values({w, still});
  EXPECT_EQ(read(w), Floats{4.5});  // ((2 + 4) / 2 + 6) / 2
  EXPECT_EQ(read(still), Floats{7});
  const Variable other(floats({0}), {.name = "other"});
  EXPECT_THAT(error_of([&] { optimizer.finalize_variable_values({other}); }).message(),
              HasSubstr("\"other\""));
  SGD().finalize_variable_values({other});
}

// --- loss scaling ------------------------------------------------------------------------------------------

TEST(LossScale, SkipsWhatIsNotFiniteAndGrows) {
  for (const bool compiled : {false, true}) {
    SCOPED_TRACE(compiled);
    const Optimizer optimizer =
        LossScaleOptimizer(Adam({.learning_rate = 0.1}), {.initial_scale = 8, .dynamic_growth_steps = 2});
    const Variable a(floats({1, 2})), b(floats({3}));
    optimizer.build({a, b});
    const auto body = [&](const Tensor& x, const Tensor& y) {
      optimizer.apply_gradients(TensorList{x, y}, {a, b});
    };
    auto function_step = function(body);
    const auto step = [&](const Floats& x, const Floats& y) {
      if (compiled)
        function_step(floats(x), floats(y));
      else
        body(floats(x), floats(y));
    };
    const Variable counter = optimizer.variables()[0], scale = optimizer.variables()[1];
    EXPECT_EQ(counter.name(), "step_counter");
    EXPECT_EQ(scale.name(), "dynamic_scale");
    EXPECT_EQ(optimizer.scale_loss(floats({3})).to_vector<float>(), Floats{24});
    const auto state = [&] {
      std::vector<Floats> all = {read(a), read(b)};
      for (const Variable& variable : optimizer.variables())
        if (variable.shape() == a.shape() || variable.shape() == b.shape()) all.push_back(read(variable));
      return all;
    };
    step({8, 8}, {8});
    EXPECT_EQ(count(counter), 1);
    for (const auto& [x, y] :
         {std::pair(Floats{1, kInfinity}, Floats{1}), std::pair(Floats{1, 1}, Floats{kNaN}),
          std::pair(Floats{-kInfinity, 1}, Floats{1})}) {
      const auto before = state();
      const float old_scale = scale.value().item<float>();
      step(x, y);
      EXPECT_EQ(state(), before);
      EXPECT_EQ(scale.value().item<float>(), old_scale / 2);
      EXPECT_EQ(count(counter), 0);
      EXPECT_EQ(count(optimizer.iterations()), 1);
    }
    step({1, 1}, {1});
    step({1, 1}, {1});
    EXPECT_EQ(scale.value().item<float>(), 2);
    EXPECT_EQ(count(counter), 0);
    EXPECT_EQ(count(optimizer.iterations()), 3);
    if (compiled) {
      EXPECT_EQ(function_step.traces(), 1);
    }
  }
}

TEST(LossScale, NeverBecomesInfinite) {
  const Optimizer optimizer =
      LossScaleOptimizer(SGD(), {.initial_scale = 0x1p126, .dynamic_growth_steps = 1});
  const Variable w(floats({1}));
  for (int i = 0; i < 4; ++i) optimizer.apply_gradients(TensorList{floats({0})}, {w});
  EXPECT_EQ(optimizer.variables()[1].value().item<float>(), 0x1p127f);
}

TEST(LossScale, IsOfTheInnerOptimizer) {
  const Optimizer inner = SGD({.learning_rate = 0.5, .use_ema = true});
  const Optimizer outer = LossScaleOptimizer(inner);
  EXPECT_EQ(outer.learning_rate().id(), inner.learning_rate().id());
  EXPECT_EQ(outer.iterations().id(), inner.iterations().id());
  EXPECT_EQ(outer.current_learning_rate(), 0.5);
  EXPECT_EQ(outer.variables().size(), inner.variables().size() + 2);
  EXPECT_EQ(Optimizer::deserialize(outer.serialize()).serialize(), outer.serialize());
}

// --- an optimizer of one's own -----------------------------------------------------------------------------

class SignDescent final : public Optimizer::Rule {
 public:
  std::string class_name() const override { return "SignDescent"; }
  TensorList update(const Tensor& w, std::span<const Tensor>, const Tensor& gradient,
                    std::span<const Tensor> scalars, std::source_location) const override {
    return {w - sign(gradient) * scalars[0]};
  }
};

TEST(OwnOptimizer, HasWhatAllHave) {
  register_optimizer("SignDescent", [](const Json& config) {
    return Optimizer(
        std::make_shared<SignDescent>(),
        {.learning_rate = config.contains("learning_rate") ? config.at("learning_rate").as_double() : 1,
         .clipvalue = 1});
  });
  for (const Optimizer& optimizer :
       {Optimizer("signdescent"), Optimizer::deserialize(Optimizer("SignDescent").serialize())}) {
    const Variable w(floats({1, 2}));
    optimizer.apply_gradients(TensorList{floats({5, -5})}, {w});
    EXPECT_EQ(read(w), (Floats{0, 3}));
  }
}

}  // namespace
}  // namespace lockstep::keras::optimizers
