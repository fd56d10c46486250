#include "execute/trace_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/ops/math.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::error_of;
using lockstep::testing::one_thread_devices;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TensorSpec kSpec{DType::float32, {2}};

TEST(TraceFunction, GivesTheGraphOfWhatTheFunctionDid) {
  const Tensor outside = Tensor::from<float>({1, 2}, {2});
  const Graph graph = trace_function(
      [&](std::span<const Tensor> x) {
        return TensorList{x[0] + outside, x[1]};
      },
      {.parameters = std::vector{kSpec, kSpec}, .note = {}, .made = {}, .called = {}});
  EXPECT_EQ(count_ops(graph, kParameter), 2);
  EXPECT_EQ(count_ops(graph, kCapturedInput), 1) << "the tensor from outside";
  EXPECT_EQ(graph.outputs.size(), 2U);
  EXPECT_EQ(graph.node(graph.outputs[1]).op, &kParameter);
}

TEST(TraceFunction, OpsRunWhereTheirParametersLive) {
  const std::vector<Device*> devices = one_thread_devices(2);
  const Graph graph = trace_function(
      [&](std::span<const Tensor> x) {
        return TensorList{exp(x[0]), exp(x[1])};
      },
      {.parameters = std::vector{kSpec, kSpec}, .devices = devices, .note = {}, .made = {}, .called = {}});
  EXPECT_EQ(graph.node(graph.outputs[0]).device, devices[0]);
  EXPECT_EQ(graph.node(graph.outputs[1]).device, devices[1]);
}

TEST(TraceFunction, ErrorsSayWhatWasTraced) {
  const auto traced = [](const std::function<TensorList(std::span<const Tensor>)>& body) {
    return error_of([&] {
      (void)trace_function(body, {.parameters = std::span(&kSpec, 1),
                                  .note = "while tracing step",
                                  .made = std::source_location::current(),
                                  .called = {}});
    });
  };
  const Error undefined = traced([](std::span<const Tensor>) { return TensorList{Tensor()}; });
  EXPECT_EQ(undefined.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(undefined.what(), HasSubstr("undefined tensor"));
  EXPECT_THAT(undefined.notes(), ElementsAre("while tracing step"));
  const Error refused = traced([](std::span<const Tensor> x) {
    return TensorList{x[0] + Tensor::from<float>({1, 2, 3}, {3})};
  });
  EXPECT_EQ(refused.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(refused.notes(), ElementsAre("while tracing step"));
}

}  // namespace
}  // namespace lockstep::execute
