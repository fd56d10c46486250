#include "compile/planning/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/passes/transfers.h"
#include "compile/planning/schedule.h"
#include "execute/compile_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::traced;
using ::testing::ElementsAre;

const TensorSpec kSquare{DType::float32, {16, 16}};

class LoweringTest : public ::testing::Test {
 protected:
  // The plan of a function of two matrices, no pass between.
  Plan plan(const lockstep::testing::TracedBody& body, const PlanOptions& options = {}) const {
    const Graph graph = traced({kSquare, kSquare}, body, replica_);
    const Placement placement = place_nodes(graph, options.split_parameters, options.devices);
    return lower(graph, placement, options, {}, schedule(graph, placement, {}));
  }
  static std::vector<std::string> names(const Plan& plan) {
    std::vector<std::string> all;
    for (const KernelCall& call : plan.calls) all.emplace_back(call.op->name);
    return all;
  }

  ReplicaTrace replica_;
};

TEST_F(LoweringTest, SourcesAndViewsAreNoCalls) {
  const Plan lowered = plan([](const TensorList& x) { return TensorList{exp(reshape(x[0], {256})) + 1.0}; });
  EXPECT_THAT(names(lowered), ElementsAre("exp", "add"));
  const Operand& input = lowered.calls[0].inputs[0];
  EXPECT_EQ(input.space, Space::parameter);
  EXPECT_EQ(input.index, 0);
  EXPECT_EQ(lowered.calls[0].input_layouts[0].spec.shape, Shape{256}) << "as the view has it";
  EXPECT_EQ(lowered.constants.size(), 1U);
}

TEST_F(LoweringTest, ResultsAreWrittenWhereTheyBelong) {
  const Variable v(Tensor::full(DType::float32, {16, 16}, 1));
  Graph graph = traced({kSquare}, [&](const TensorList& x) { return TensorList{x[0] + v.value(), x[0]}; });
  graph.updates.push_back({v, graph.outputs[0]});
  graph.outputs.erase(graph.outputs.begin());
  const Placement placement = place_nodes(graph, {});
  const Plan lowered = lower(graph, placement, {}, {}, schedule(graph, placement, {}));
  ASSERT_EQ(lowered.calls.size(), 1U);
  EXPECT_EQ(lowered.calls[0].outputs[0].space, Space::variable);
  EXPECT_THAT(lowered.variable_updated, ElementsAre(true));
}

TEST_F(LoweringTest, KernelsThatTakeNoStridesGetACopy) {
  const Plan lowered = plan([](const TensorList& x) { return TensorList{cumsum(transpose(x[0]))}; });
  EXPECT_THAT(names(lowered), ElementsAre("identity", "cumsum")) << "the transposition is a view";
  EXPECT_FALSE(lowered.calls[0].input_layouts[0].contiguous());
  EXPECT_TRUE(lowered.calls[1].input_layouts[0].contiguous());
}

TEST_F(LoweringTest, TemporariesShareTheArenaOneAfterTheOther) {
  const Plan lowered = plan([](const TensorList& x) {
    Tensor y = x[0];
    for (int i = 0; i < 8; ++i) y = matmul(y, x[1]);
    return TensorList{y};
  });
  EXPECT_EQ(lowered.calls.size(), 8U);
  EXPECT_LE(lowered.device_arenas[0].bytes, 4 * kSquare.bytes()) << "two are alive at once, with workspaces";
  EXPECT_GE(lowered.device_arenas[0].unplanned, 7 * kSquare.bytes());
}

TEST_F(LoweringTest, ElementwiseTemporariesAreOverwritten) {
  const Plan lowered = plan([](const TensorList& x) { return TensorList{exp(tanh(sqrt(x[0])))}; });
  EXPECT_THAT(names(lowered), ElementsAre("sqrt", "tanh", "exp"));
  EXPECT_EQ(lowered.calls[1].outputs[0].offset, lowered.calls[1].inputs[0].offset);
  EXPECT_EQ(lowered.device_arenas[0].bytes, kSquare.bytes());
}

TEST_F(LoweringTest, CallsKnowTheLayerWhoseWeightsTheyWorkWith) {
  const Variable kernel(Tensor::full(DType::float32, {16, 16}, 1), {.name = "model/dense/kernel"});
  const Plan lowered = plan([&](const TensorList& x) { return TensorList{matmul(x[0], kernel.value())}; });
  ASSERT_EQ(lowered.calls.size(), 1U);
  EXPECT_EQ(lowered.calls[0].layer, "model/dense");
}

TEST_F(LoweringTest, SumsOverReplicasAreNoCallsEither) {
  replica_ = {.global_batch = 32, .local_batch = 16};
  PlanOptions options;
  options.split_parameters = {true, true};
  options.local_batch = 16;
  const Plan lowered =
      plan([](const TensorList& x) { return TensorList{all_reduce_sum(reduce_sum(x[0], {.axis = {0}}))}; },
           options);
  ASSERT_EQ(lowered.collectives.size(), 1U);
  EXPECT_EQ(lowered.collectives[0].ready, 1) << "behind the call that makes what is summed";
  EXPECT_EQ(lowered.collectives[0].phase, 1);
  EXPECT_GT(lowered.phases, 1);
}

TEST_F(LoweringTest, WhatCrossesBetweenDevicesIsCopied) {
  const std::vector<Device*> devices = lockstep::testing::one_thread_devices(2);
  Graph graph = traced({kSquare}, [&](const TensorList& x) {
    const DeviceScope first(*devices[0]);
    const Tensor h = tanh(x[0]);
    const DeviceScope second(*devices[1]);
    return TensorList{exp(h)};
  });
  PlanOptions options;
  options.devices = devices;
  graph = insert_transfers(graph);
  const Placement placement = place_nodes(graph, {}, devices);
  const Plan lowered = lower(graph, placement, options, {}, schedule(graph, placement, {}));
  ASSERT_THAT(names(lowered), ElementsAre("tanh", "copy_to_device", "exp"));
  EXPECT_FALSE(lowered.calls[0].copies);
  EXPECT_TRUE(lowered.calls[1].copies);
  EXPECT_EQ(lowered.calls[1].inputs[0].device, 0);
  EXPECT_EQ(lowered.calls[1].outputs[0].device, 1);
}

}  // namespace
}  // namespace lockstep::compile
