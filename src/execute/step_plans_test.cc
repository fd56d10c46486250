#include "execute/step_plans.h"

#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::traced;

class StepPlansTest : public ::testing::Test {
 protected:
  // The sums over replicas of a slice's columns, each with a variable added.
  Plan plan_of(int64_t rows, const std::vector<Variable>& order) const {
    PlanOptions options;
    options.split_parameters = {true};
    options.local_batch = rows;
    return compile::make_plan(
        traced({{DType::float32, {rows, 2}}},
               [&](const TensorList& x) {
                 TensorList sums;
                 for (const Variable& variable : order)
                   sums.push_back(all_reduce_sum(reduce_sum(x[0] + variable.value(), {0})));
                 return sums;
               },
               {.global_batch = 2 * rows, .local_batch = rows}),
        options);
  }

  const Variable a_{Tensor::from<float>({1, 2}, {2})}, b_{Tensor::from<float>({3, 4}, {2})};
};

TEST_F(StepPlansTest, FindsThePlanOfASlice) {
  std::vector<Plan> plans;
  plans.push_back(plan_of(3, {a_}));
  plans.push_back(plan_of(2, {a_}));
  const StepPlans step(std::move(plans), {3, 2});
  EXPECT_EQ(step.size(), 2U);
  EXPECT_EQ(step.of({.begin = 0, .size = 3}), 0U);
  EXPECT_EQ(step.of({.begin = 3, .size = 2}), 1U);
  EXPECT_EQ(error_of([&] { (void)step.of({.begin = 0, .size = 5}); }).code(), ErrorCode::internal);
}

TEST_F(StepPlansTest, FindsAVariableThatAnotherPlanMetInAnotherPlace) {
  std::vector<Plan> plans;
  plans.push_back(plan_of(3, {a_, b_}));
  plans.push_back(plan_of(2, {b_, a_}));
  plans.push_back(plan_of(1, {b_}));
  const StepPlans step(std::move(plans), {3, 2, 1});
  for (size_t p = 0; p < 2; ++p)
    for (size_t v = 0; v < 2; ++v) {
      const auto there = static_cast<size_t>(step.variable(p, v));
      EXPECT_EQ(step[p].variables[there].id(), step.first().variables[v].id());
    }
  EXPECT_NE(step.variable(1, 0), step.variable(0, 0));
  const bool a_first = step.first().variables[0].id() == a_.id();
  EXPECT_EQ(step.variable(2, a_first ? 0 : 1), -1) << "the third plan does not know it";
}

TEST_F(StepPlansTest, RefusesSumsThatDependOnTheSizeOfTheSlice) {
  std::vector<Plan> plans;
  plans.push_back(plan_of(3, {a_, b_}));
  plans.push_back(plan_of(2, {a_, b_}));
  plans.push_back(plan_of(1, {a_}));
  const StepPlans step(std::move(plans), {3, 2, 1});
  const auto& sums = step.first().collectives;
  ASSERT_EQ(sums.size(), 2U);
  for (const compile::Collective& sum : sums) EXPECT_EQ(step.twin(1, sum).sequence, sum.sequence);
  const Error error = error_of([&] { (void)step.twin(2, sums[1]); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_NE(std::string(error.what()).find("must not depend on the batch size"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::execute
