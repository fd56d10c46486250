#include "compile/passes/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/ops/math.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::is_sorted;
using lockstep::testing::one_thread_devices;
using ::testing::ElementsAre;

class Transfers : public ::testing::Test {
 protected:
  // What `body` does on one argument that lives on the first device; it places its ops by scopes.
  Graph placed(const std::function<TensorList(const Tensor&)>& body) const {
    Trace trace;
    const Tensor x = trace.parameter(0, {DType::float32, {2}}, std::source_location::current(), first_);
    for (const Tensor& result : body(x))
      trace.graph().outputs.push_back(trace.value_of(result, std::source_location::current()));
    return std::move(trace.graph());
  }

  Device* const first_ = one_thread_devices(2)[0];
  Device* const second_ = one_thread_devices(2)[1];
};

TEST_F(Transfers, NothingCrossesOnOneDevice) {
  const Graph graph = placed([](const Tensor& x) { return TensorList{exp(x) * 2.0}; });
  EXPECT_LE(devices_of(graph).size(), 1U);
  EXPECT_EQ(count_ops(insert_transfers(graph), kTransfer), 0);
}

TEST_F(Transfers, AValueCrossesOnceForAllWhoReadIt) {
  const Graph graph = placed([&](const Tensor& x) {
    const Tensor h = exp(x);
    const DeviceScope scope(*second_);
    return TensorList{h * 2.0, h * 3.0};
  });
  EXPECT_THAT(devices_of(graph), ElementsAre(first_, second_));
  const Graph crossed = insert_transfers(graph);
  EXPECT_TRUE(is_sorted(crossed));
  EXPECT_EQ(count_ops(crossed, kTransfer), 1);
  for (const Node& node : crossed.nodes)
    for (const Value input : node.inputs) {
      const Node& producer = crossed.node(input);
      if (node.op != &kTransfer && !is_source(*producer.op)) {
        EXPECT_EQ(producer.device, node.device);
      }
    }
}

TEST_F(Transfers, SourcesAreReadWhereverTheyAreNeeded) {
  const Graph graph = placed([&](const Tensor& x) {
    const Tensor h = exp(x);
    const DeviceScope scope(*second_);
    return TensorList{h, x * 2.0};
  });
  EXPECT_EQ(count_ops(insert_transfers(graph), kTransfer), 0) << "the argument is bound on both devices";
}

TEST_F(Transfers, NewValuesEndOnTheDeviceOfTheirVariable) {
  const Variable w(Tensor::full(DType::float32, {2}, 1, *first_));
  const Graph graph = placed([&](const Tensor& x) {
    const Tensor h = exp(x);
    const DeviceScope scope(*second_);
    w.assign(h * 2.0);
    return TensorList{};
  });
  const Graph crossed = insert_transfers(graph);
  ASSERT_EQ(crossed.updates.size(), 1U);
  const Node& last = crossed.node(crossed.updates[0].value);
  EXPECT_EQ(last.op, &kTransfer);
  EXPECT_EQ(last.device, first_);
  EXPECT_EQ(count_ops(crossed, kTransfer), 2) << "there and back";
}

TEST_F(Transfers, ADeviceThatOnlyHasAVariableTakesPart) {
  Device* const third = one_thread_devices(3)[2];
  const Variable w(Tensor::full(DType::float32, {2}, 1, *third));
  const Graph graph = placed([&](const Tensor& x) {
    const Tensor h = exp(x);
    const DeviceScope scope(*second_);
    w.assign(h * 2.0);
    return TensorList{};
  });
  EXPECT_THAT(devices_of(graph), ElementsAre(first_, second_, third));
}

}  // namespace
}  // namespace lockstep::compile
