#include "compile/planning/launch_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/saved_environment_test.h"
#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::counting;
using lockstep::testing::Floats;
using lockstep::testing::one_thread_devices;
using lockstep::testing::read;
using lockstep::testing::traced;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::vector<int>> groups_of(const Graph& graph, const std::vector<OrderEdge>& edges = {}) {
  const Placement placement = place_nodes(graph, {});
  return group_launches(graph, placement, edges, schedule(graph, placement, edges));
}

TensorSpec floats(const Shape& shape) { return {DType::float32, shape}; }

TEST(GroupLaunches, SameProgramsOverDifferentShapes) {
  const Graph graph =
      traced({floats({4}), floats({2, 3}), floats({5})}, [](const TensorList& in) -> TensorList {
        return {exp(in[0]), exp(in[1]), negative(in[2])};
      });
  EXPECT_THAT(groups_of(graph), ElementsAre(ElementsAre(3, 4)));
}

TEST(GroupLaunches, NotWhatWaitsForEachOther) {
  const Graph graph = traced({floats({4}), floats({3})}, [](const TensorList& in) -> TensorList {
    const Tensor first = exp(in[0]);
    return {exp(first), exp(in[1])};
  });
  // The first is read, the second reads it: neither is with a third that waits for nothing and that nobody
  // reads.
  for (const auto& group : groups_of(graph))
    EXPECT_FALSE(std::count(group.begin(), group.end(), 2) && std::count(group.begin(), group.end(), 3));
}

TEST(GroupLaunches, NotWhatAnOrderBetweenThemForbids) {
  const Graph graph = traced({floats({4}), floats({3})}, [](const TensorList& in) -> TensorList {
    return {exp(in[0]), exp(in[1])};
  });
  EXPECT_THAT(groups_of(graph), ElementsAre(ElementsAre(2, 3)));
  EXPECT_THAT(groups_of(graph, {{.before = 2, .after = 3}}), IsEmpty());
}

TEST(GroupLaunches, NotWhatWouldWaitForItselfThroughAnotherGroup) {
  // Two pairs that cross: a0 before b1 and b0 before a1 leave no order of the groups {a0, a1} and {b0, b1}.
  const Graph graph =
      traced({floats({4}), floats({3}), floats({2}), floats({5})}, [](const TensorList& in) -> TensorList {
        return {exp(in[0]), exp(in[1]), negative(in[2]), negative(in[3])};
      });
  const std::vector<OrderEdge> edges = {{.before = 4, .after = 7}, {.before = 6, .after = 5}};
  const auto groups = groups_of(graph, edges);
  EXPECT_EQ(groups.size(), 1u);
  const Placement placement = place_nodes(graph, {});
  EXPECT_EQ(schedule(graph, placement, edges, groups).size(), graph.nodes.size());
}

TEST(GroupLaunches, NotWhatReadsRows) {
  const Graph graph = traced({floats({4, 3}), floats({3}), floats({2, 3}), floats({3})},
                             [](const TensorList& in) -> TensorList {
                               return {in[0] + in[1], in[2] + in[3]};
                             });
  EXPECT_THAT(groups_of(graph), IsEmpty());
}

TEST(GroupLaunches, ALargeOneIsAlone) {
  constexpr int64_t kLarge = (64 << 20) / 4 + 1;
  const Graph graph =
      traced({floats({4}), floats({kLarge}), floats({5})}, [](const TensorList& in) -> TensorList {
        TensorList results;
        for (const Tensor& x : in) results.push_back(exp(reduce_sum(x) + x) + 1.0F);
        return results;
      });
  for (const auto& group : groups_of(graph))
    for (const int node : group)
      EXPECT_NE(graph.nodes[static_cast<size_t>(node)].outputs[0].shape, Shape{kLarge});
}

// --- programs whose groups are launched as one -------------------------------------------------------------

// The calls one by one, the last first.
class Backwards final : public Kernel {
 public:
  explicit Backwards(std::span<const KernelCall> calls) {
    for (const KernelCall& call : calls) {
      kernels_.push_back(
          find_kernel(DeviceKind::cpu, *call.op, call.where).prepare(call.request(nullptr, 1)));
      inputs_.push_back(call.inputs.size());
      operands_.push_back(call.inputs.size() + call.outputs.size());
    }
  }
  void launch(const LaunchArgs& args) const override {
    size_t at = 0;
    for (const size_t count : operands_) at += count;
    for (size_t k = kernels_.size(); k-- > 0;) {
      at -= operands_[k];
      kernels_[k]->launch({args.inputs + at, args.inputs + at + inputs_[k], nullptr, args.stream});
    }
    launched += 1;
    calls += kernels_.size();
  }
  static inline std::atomic<size_t> launched = 0, calls = 0;  // by the threads of all devices
  static inline size_t most = 1000;

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<size_t> inputs_, operands_;
};

class GroupedPrograms : public ::testing::Test {
 protected:
  void TearDown() override { group_rule(DeviceKind::cpu) = nullptr; }
  static void group(size_t most = 1000) {
    Backwards::launched = 0;
    Backwards::calls = 0;
    Backwards::most = most;
    group_rule(DeviceKind::cpu) = [](std::span<const KernelCall> calls) -> GroupedCalls {
      const size_t count = std::min(calls.size(), Backwards::most);
      return {std::make_unique<Backwards>(calls.first(count)), count};
    };
  }

  // A few steps of gradient descent with momentum on a chain of matrices.
  static std::vector<Floats> train(const ReplicaOptions& replicas = {}) {
    std::vector<Variable> weights, velocities;
    for (int64_t i = 0; i < 5; ++i) {
      const Shape shape{3 + i, 4 + i};
      weights.emplace_back(counting(shape, -3) * 0.01F);
      velocities.emplace_back(counting(shape, 0) * 0.0F);
    }
    FunctionOptions options;
    options.replicas = replicas;
    auto step = function(
        [&](const Tensor& x) {
          GradientTape tape;
          Tensor y = x;
          for (const Variable& weight : weights) y = tanh(matmul(y, weight));
          const Tensor loss = reduce_sum(square(y));
          const TensorList gradients = tape.gradient(loss, weights);
          for (size_t i = 0; i < weights.size(); ++i) {
            const Tensor gradient = replicas.devices.empty() ? gradients[i] : all_reduce_sum(gradients[i]);
            velocities[i].assign(velocities[i] * 0.9F - gradient * 0.01F);
            weights[i].assign_add(velocities[i].value());
          }
          return y;
        },
        options);
    std::vector<Floats> results;
    for (int i = 0; i < 4; ++i) results.push_back(read(step(counting({6, 3}, static_cast<float>(i)) * 0.1F)));
    for (const Variable& weight : weights) results.push_back(read(weight));
    return results;
  }
};

TEST_F(GroupedPrograms, HaveTheSameBits) {
  const auto expected = train();
  group();
  EXPECT_EQ(train(), expected);
  EXPECT_EQ(Backwards::launched.load(), 4u);  // one launch for all five updates
  EXPECT_EQ(Backwards::calls.load(), 4u * 5);
}

TEST_F(GroupedPrograms, MayBeTakenInParts) {
  const auto expected = train();
  group(2);
  EXPECT_EQ(train(), expected);
  EXPECT_EQ(Backwards::launched.load(), 4u * 3);
}

TEST_F(GroupedPrograms, HaveTheSameBitsOnReplicas) {
  const ReplicaOptions replicas{.devices = one_thread_devices(2), .reproducible = true};
  const auto expected = train(replicas);
  group();
  EXPECT_EQ(train(replicas), expected);
  EXPECT_GT(Backwards::calls.load(), Backwards::launched.load());
}

TEST_F(GroupedPrograms, CanBeSwitchedOff) {
  group();
  const lockstep::testing::SavedEnvironment environment({"LOCKSTEP_GROUP_LAUNCHES"});
  setenv("LOCKSTEP_GROUP_LAUNCHES", "0", 1);
  train();
  EXPECT_EQ(Backwards::launched.load(), 0u);
}

}  // namespace
}  // namespace lockstep::compile
