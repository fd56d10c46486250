// Optimizers and schedules against what Keras computed (testdata/record_optimizers.py).
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/json.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/optimizers.h"

namespace lockstep::keras::optimizers {
namespace {

using Doubles = std::vector<double>;

const Json& recorded() {
  static const Json json =
      Json::read_file(std::string(LOCKSTEP_SOURCE_DIR) + "/src/keras/optimizers/testdata/optimizers.json");
  return json;
}

Doubles doubles(const Json& json) {
  Doubles values;
  for (const Json& item : json.items()) values.push_back(item.as_double());
  return values;
}

std::vector<std::string> names(const std::string& kind) {
  std::vector<std::string> all;
  for (const auto& [name, value] : recorded().at(kind).members()) all.push_back(name);
  return all;
}

Shape shape_at(size_t i) {
  Shape shape;
  for (const Json& size : recorded().at("shapes").at(i).items()) shape.push_back(size.as_int());
  return shape;
}

Tensor tensor(const Json& values, size_t i) {
  const Doubles numbers = doubles(values);
  return Tensor::from(std::vector<float>(numbers.begin(), numbers.end()), shape_at(i));
}

// In the norm of all of them: a variable of its own may be close to zero.
void expect_near_in_norm(const std::vector<Variable>& variables, const Json& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < variables.size(); ++i) {
    const std::vector<float> actual = variables[i].value().to_vector<float>();
    const Doubles expected = doubles(wanted.at(i));
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t k = 0; k < expected.size(); ++k) {
      difference += std::pow(actual[k] - expected[k], 2);
      norm += std::pow(expected[k], 2);
    }
  }
  EXPECT_LE(std::sqrt(difference), 1e-6 * std::sqrt(norm));
}

class RecordedOptimizers : public ::testing::TestWithParam<std::string> {
 protected:
  static void train(bool compiled) {
    SCOPED_TRACE(compiled ? "compiled" : "eager");
    const Json& record = recorded().at("optimizers").at(GetParam());
    const Optimizer optimizer = Optimizer::deserialize(record.at("config"));
    std::vector<Variable> variables;
    for (size_t i = 0; i < 3; ++i)
      variables.emplace_back(tensor(recorded().at("start").at(i), i),
                             VariableOptions{.name = "v" + std::to_string(i)});
    const auto body = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
      TensorList gradients;
      for (const Tensor& g : {a, b, c}) gradients.push_back(optimizer.scale_loss(g));
      optimizer.apply_gradients(gradients, variables);
    };
    auto step = function(body);
    for (const Json& gradients : recorded().at("gradients").items()) {
      const Tensor a = tensor(gradients.at(0), 0), b = tensor(gradients.at(1), 1),
                   c = tensor(gradients.at(2), 2);
      if (compiled)
        step(a, b, c);
      else
        body(a, b, c);
    }
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), record.at("updates").as_int());
    expect_near_in_norm(variables, record.at("weights"));
    if (const Json* averages = record.find("averages")) {
      optimizer.finalize_variable_values(variables);
      expect_near_in_norm(variables, *averages);
    }
    if (compiled) {
      EXPECT_EQ(step.traces(), 1);
    }
  }
};

TEST_P(RecordedOptimizers, ComputeWhatKerasDoes) {
  train(false);
  train(true);
}

TEST_P(RecordedOptimizers, AreWrittenAsKerasDoes) {
  const Json& config = recorded().at("optimizers").at(GetParam()).at("config");
  EXPECT_EQ(Optimizer::deserialize(config).serialize().dump(), config.dump());
}

INSTANTIATE_TEST_SUITE_P(All, RecordedOptimizers, ::testing::ValuesIn(names("optimizers")),
                         [](const auto& info) { return info.param; });

class RecordedSchedules : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordedSchedules, ComputeWhatKerasDoes) {
  const Json& record = recorded().at("schedules").at(GetParam());
  const LearningRateSchedule schedule = LearningRateSchedule::deserialize(record.at("config"));
  auto compiled = function([&](const Tensor& step) { return schedule(step); });
  const Doubles rates = doubles(record.at("rates"));
  for (size_t i = 0; i < rates.size(); ++i) {
    const Tensor step = Tensor::scalar(static_cast<int64_t>(i));
    EXPECT_NEAR(schedule(step).item<double>(), rates[i], 1e-6 * rates[0]) << "step " << i;
    EXPECT_NEAR(compiled(step).item<double>(), rates[i], 1e-6 * rates[0]) << "step " << i;
  }
}

TEST_P(RecordedSchedules, AreWrittenAsKerasDoes) {
  const Json& config = recorded().at("schedules").at(GetParam()).at("config");
  EXPECT_EQ(LearningRateSchedule::deserialize(config).serialize().dump(), config.dump());
}

INSTANTIATE_TEST_SUITE_P(All, RecordedSchedules, ::testing::ValuesIn(names("schedules")),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::keras::optimizers
