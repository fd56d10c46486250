#include "compile/planning/spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::traced;
using lockstep::testing::TracedBody;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a function of one sliced argument, four rows of two columns in a replica, means on two replicas.
struct Replicated {
  explicit Replicated(const TracedBody& body)
      : graph(traced({{DType::float32, {4, 2}}}, body, {.global_batch = 8, .local_batch = 4})),
        placement(place_nodes(graph, {true})) {}

  std::vector<Spread> spreads(bool allows_blocks) const {
    return spreads_of_outputs(graph, placement, 4, allows_blocks);
  }
  void check(bool replicated = true) const { check_updates(graph, placement, replicated); }

  const Graph graph;
  const Placement placement;
};

TEST(SpreadOfOutputs, FollowsFromWhatDiffersAndFromTheRows) {
  const Variable w(Tensor::from<float>({1, 2}, {2}));
  const Replicated step([&](const TensorList& x) {
    return TensorList{x[0] * 2.0, reduce_sum(x[0], {0}), all_reduce_sum(reduce_sum(x[0])), w.value() * 2.0};
  });
  EXPECT_THAT(step.spreads(true), ElementsAre(Spread::rows, Spread::blocks, Spread::same, Spread::same));
}

TEST(SpreadOfOutputs, RefusesBlocksThatNobodyAskedFor) {
  const Replicated step([](const TensorList& x) { return TensorList{reduce_sum(x[0], {0})}; });
  const Error error = error_of([&] { (void)step.spreads(false); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.what(), HasSubstr("all_reduce_sum(value)"));
}

TEST(CheckUpdates, RefusesValuesThatDifferForVariablesThatReplicasShare) {
  const Variable total(Tensor::from<float>({0}, {}));
  Replicated([&](const TensorList& x) {
    total.assign(all_reduce_sum(reduce_sum(x[0])));
    return TensorList{};
  }).check();
  const Replicated differs([&](const TensorList& x) {
    total.assign(reduce_sum(x[0]));
    return TensorList{};
  });
  const Error error = error_of([&] { differs.check(); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.what(), HasSubstr("differs between replicas"));
}

TEST(CheckUpdates, RefusesValuesThatAreTheSameForVariablesWithAPartInEveryReplica) {
  const Variable parts(Tensor::from<float>({0}, {}), {.per_replica = true});
  Replicated([&](const TensorList& x) {
    parts.assign_add(reduce_sum(x[0]));
    return TensorList{};
  }).check();
  const Replicated same([&](const TensorList& x) {
    parts.assign(all_reduce_sum(reduce_sum(x[0])));
    return TensorList{};
  });
  const Error error = error_of([&] { same.check(); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.what(), HasSubstr("keeps a part in every replica"));
  EXPECT_NO_THROW(same.check(false)) << "without replicas it is a variable as any other";
}

}  // namespace
}  // namespace lockstep::compile
