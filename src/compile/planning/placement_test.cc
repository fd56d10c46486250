#include "compile/planning/placement.h"

#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/graph/variable.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::traced;

const TensorSpec kRows{DType::float32, {4, 3}};
const TensorSpec kScalar{DType::float32, {}};
constexpr ReplicaTrace kReplica{.global_batch = 8, .local_batch = 4};

class Placing : public ::testing::Test {
 protected:
  // Traces `body` as a replica's program; of(i) is the place of its i-th result.
  void place(const lockstep::testing::TracedBody& body, const SpecList& parameters = {kRows},
             std::vector<bool> split = {true}) {
    graph_ = traced(parameters, body, kReplica);
    placement_ = place_nodes(graph_, split);
  }
  NodePlace of(size_t output) const {
    return placement_.nodes[static_cast<size_t>(graph_.outputs[output].node)];
  }

  Graph graph_;
  Placement placement_;
};

TEST_F(Placing, AProgramOfOneReplicaIsReplicaInvariantAndOnePhase) {
  graph_ = traced({kRows}, [](const TensorList& p) { return TensorList{reduce_sum(p[0] * 2.0)}; });
  placement_ = place_nodes(graph_, {});
  EXPECT_EQ(placement_.phases, 1);
  for (const NodePlace& place : placement_.nodes) EXPECT_EQ(place, NodePlace{});
}

TEST_F(Placing, WhatComesFromTheBatchIsPerReplica) {
  const Variable v(Tensor::full(DType::float32, {3}, 1));
  place(
      [&](const TensorList& p) {
        return TensorList{p[0], p[0] + v, reduce_sum(p[0]), v + 1.0, zeros({2}), p[1] * 2.0, p[0] * p[1]};
      },
      {kRows, kScalar}, {true, false});
  EXPECT_TRUE(of(0).per_replica);
  EXPECT_TRUE(of(1).per_replica);
  EXPECT_TRUE(of(2).per_replica);
  EXPECT_FALSE(of(3).per_replica) << "comes from a variable alone";
  EXPECT_FALSE(of(4).per_replica) << "a constant";
  EXPECT_FALSE(of(5).per_replica) << "a parameter that is not split";
  EXPECT_TRUE(of(6).per_replica);
}

TEST_F(Placing, ASumIsReplicaInvariantAndOpensAPhase) {
  place([](const TensorList& p) {
    const Tensor local = reduce_sum(p[0]);
    const Tensor sum = all_reduce_sum(local);
    const Tensor back = p[0] * sum;
    return TensorList{local, sum, back, all_reduce_sum(reduce_sum(back)), p[0] + 1.0};
  });
  EXPECT_EQ(of(0), (NodePlace{.per_replica = true, .phase = 0}));
  EXPECT_EQ(of(1), (NodePlace{.per_replica = false, .phase = 1}));
  EXPECT_EQ(of(2), (NodePlace{.per_replica = true, .phase = 1}));
  EXPECT_EQ(of(3), (NodePlace{.per_replica = false, .phase = 2}));
  EXPECT_EQ(of(4), (NodePlace{.per_replica = true, .phase = 0}));
}

TEST_F(Placing, ReplicaInvariantWorkThatNobodyWaitsForComesLast) {
  const Variable v(Tensor::full(DType::float32, {3}, 1));
  place([&](const TensorList& p) {
    const Tensor sum = all_reduce_sum(reduce_sum(p[0], {.axis = {0}}));
    const Tensor awaited = sum * 0.5;
    const Tensor rows = p[0] - awaited;
    const Tensor update = v + awaited;
    return TensorList{awaited, rows, update, all_reduce_sum(reduce_sum(rows))};
  });
  const int last = placement_.phases - 1;
  EXPECT_EQ(of(0).phase, 1);
  EXPECT_EQ(of(1).phase, 1);
  EXPECT_EQ(of(2), (NodePlace{.per_replica = false, .phase = last}));
  EXPECT_EQ(of(3), (NodePlace{.per_replica = false, .phase = 2}))
      << "the sum itself stays where its input is ready";
  EXPECT_EQ(last, 3);
}

TEST_F(Placing, NoNodeRunsBeforeWhatItReads) {
  const Variable v(Tensor::full(DType::float32, {3, 3}, 1));
  place([&](const TensorList& p) {
    Tensor x = p[0];
    TensorList all;
    for (int i = 0; i < 4; ++i) {
      const Tensor gram = all_reduce_sum(matmul(x, x, {.transpose_a = true}));
      const Tensor mixed = matmul(gram, v) * 0.1;
      all.push_back(v + gram);
      x = matmul(x, mixed);
    }
    all.push_back(x);
    return all;
  });
  for (size_t i = 0; i < graph_.nodes.size(); ++i)
    for (const Value v : graph_.nodes[i].inputs) {
      const NodePlace &reader = placement_.nodes[i], &source = placement_.nodes[static_cast<size_t>(v.node)];
      EXPECT_LE(source.phase, reader.phase);
      // A replica's value reaches replica-invariant nodes through a sum alone.
      if (graph_.nodes[i].op == &kAllReduceSum) {
        EXPECT_LT(source.phase, reader.phase);
      } else {
        EXPECT_LE(source.per_replica, reader.per_replica);
      }
    }
}

TEST_F(Placing, PhasesDoNotDependOnTheSizeOfTheSlice) {
  const auto body = [](const TensorList& p) {
    const Tensor sum = all_reduce_sum(reduce_sum(p[0], {.axis = {0}}));
    return TensorList{all_reduce_sum(reduce_sum(square(p[0] - sum)))};
  };
  const Graph large = traced({{DType::float32, {4, 3}}}, body, {.global_batch = 7, .local_batch = 4});
  const Graph small = traced({{DType::float32, {3, 3}}}, body, {.global_batch = 7, .local_batch = 3});
  EXPECT_EQ(place_nodes(large, {true}).nodes, place_nodes(small, {true}).nodes);
}

}  // namespace
}  // namespace lockstep::compile
