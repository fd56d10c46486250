#include "programs.h"

#include <gtest/gtest.h>

namespace lockstep::testing {
namespace {

class LogicalDevices final : public ::testing::Environment {
  void SetUp() override { set_logical_cpus({.threads_of = {1, 1, 4, 4, 4, 4}}); }
};
const auto* const registered = ::testing::AddGlobalTestEnvironment(new LogicalDevices);

}  // namespace

Examples examples(int64_t count, const Shape& shape) {
  Dims dims{count};
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return {random::normal(Shape(dims)),
          random::uniform({count}, {.minval = 0, .maxval = 10, .dtype = DType::int32})};
}

keras::Model compiled(keras::Model model) {
  model.compile(
      {.optimizer = "sgd", .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  return model;
}

keras::Model dense(int64_t units, int64_t inputs) {
  return keras::applications::mlp({.input_shape = {inputs}, .hidden = {units, units}});
}

std::vector<std::string> ids(const std::vector<observe::Verdict>& verdicts) {
  std::vector<std::string> all;
  for (const observe::Verdict& verdict : verdicts) all.push_back(verdict.id);
  return all;
}

}  // namespace lockstep::testing
