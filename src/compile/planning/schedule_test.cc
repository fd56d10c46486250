#include "compile/planning/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "execute/compile_test.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/ops.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::traced;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

std::vector<size_t> positions(const std::vector<int>& order) {
  std::vector<size_t> result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[static_cast<size_t>(order[i])] = i;
  return result;
}

// All nodes once, each after what it reads and after its edges, phase by phase, replica-invariant nodes
// first.
void check(const Graph& graph, const Placement& placement, const std::vector<OrderEdge>& edges,
           const std::vector<int>& order) {
  std::vector<int> all(graph.nodes.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  ASSERT_THAT(order, UnorderedElementsAreArray(all));
  const auto at = positions(order);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const Value v : graph.nodes[i].inputs) EXPECT_LT(at[static_cast<size_t>(v.node)], at[i]);
  for (const OrderEdge& edge : edges)
    EXPECT_LT(at[static_cast<size_t>(edge.before)], at[static_cast<size_t>(edge.after)]);
  for (size_t i = 1; i < order.size(); ++i) {
    const NodePlace &a = placement.nodes[static_cast<size_t>(order[i - 1])],
                    &b = placement.nodes[static_cast<size_t>(order[i])];
    EXPECT_LE(a.phase, b.phase);
    if (a.phase == b.phase) {
      EXPECT_LE(a.per_replica, b.per_replica);
    }
  }
}

// A graph of `count` elementwise nodes that read up to three earlier ones.
Graph random_graph(std::mt19937& random, int count) {
  Graph graph;
  const TensorSpec spec{DType::float32, {8}};
  graph.add({.op = &kParameter, .attrs = ParameterAttrs{0}, .inputs = {}, .outputs = {spec}, .where = {}});
  for (int i = 1; i < count; ++i) {
    Node node{.op = &kAdd,
              .attrs = {},
              .inputs = {},
              .outputs = {{DType::float32, {1 + static_cast<int64_t>(random() % 64)}}},
              .where = {}};
    for (unsigned k = 0; k <= random() % 3; ++k)
      node.inputs.push_back({static_cast<int32_t>(random() % static_cast<unsigned>(i)), 0});
    graph.add(std::move(node));
  }
  for (int k = 0; k < 3; ++k)
    graph.outputs.push_back({static_cast<int32_t>(random() % static_cast<unsigned>(count)), 0});
  return graph;
}

TEST(Schedule, RespectsDependenciesAndEdges) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int count = 2 + static_cast<int>(random() % 40);
    const Graph graph = random_graph(random, count);
    const Placement placement = place_nodes(graph, {});
    std::vector<OrderEdge> edges;
    for (int k = 0; k < 6; ++k) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(count)),
                b = static_cast<int>(random() % static_cast<unsigned>(count));
      if (a < b) edges.push_back({a, b});  // along the order of the nodes: no cycle
    }
    check(graph, placement, edges, schedule(graph, placement, edges));
  }
}

TEST(Schedule, GoesByPhaseAndReplicaInvariantNodesFirst) {
  const Variable v(Tensor::full(DType::float32, {3}, 1));
  const Graph graph = traced({{DType::float32, {4, 3}}},
                             [&](const TensorList& p) {
                               const Tensor sum = all_reduce_sum(reduce_sum(p[0] * v, {.axis = {0}}));
                               const Tensor rows = p[0] * sum + v * 2.0;
                               return TensorList{all_reduce_sum(reduce_sum(rows)), rows, v + sum};
                             },
                             {.global_batch = 8, .local_batch = 4});
  const Placement placement = place_nodes(graph, {true});
  check(graph, placement, {}, schedule(graph, placement, {}));
}

TEST(Schedule, UpdatesRunAsSoonAsTheirGradientIsThere) {
  const Variable a(Tensor::full(DType::float32, {64, 64}, 1)), b(Tensor::full(DType::float32, {64, 64}, 1));
  Value second_product;
  const Graph graph = traced({{DType::float32, {64, 64}}}, [&](const TensorList& p) {
    const Tensor first = matmul(p[0], p[0]);
    const Tensor second = matmul(p[0], p[0], {.transpose_a = true});
    second_product = Trace::current()->value_of(second, std::source_location::current());
    a.assign(a - first);
    b.assign(b - second);
    return TensorList{};
  });
  const Placement placement = place_nodes(graph, {});
  const auto order = schedule(graph, placement, {});
  check(graph, placement, {}, order);
  const auto at = positions(order);
  EXPECT_LT(at[static_cast<size_t>(graph.updates[0].value.node)],
            at[static_cast<size_t>(second_product.node)])
      << "the first product is let go before the second is made";
}

TEST(Schedule, TakesTheNodeThatFreesMemory) {
  Graph graph;
  const TensorSpec large{DType::float32, {1000}}, small{DType::float32, {1}};
  const Value x = graph.add(
      {.op = &kParameter, .attrs = ParameterAttrs{0}, .inputs = {}, .outputs = {large}, .where = {}});
  const Value a = graph.add({.op = &kExp, .attrs = {}, .inputs = {x}, .outputs = {large}, .where = {}});
  const Value b = graph.add({.op = &kSin, .attrs = {}, .inputs = {x}, .outputs = {large}, .where = {}});
  const Value sum_a = graph.add({.op = &kAdd, .attrs = {}, .inputs = {a}, .outputs = {small}, .where = {}});
  const Value sum_b = graph.add({.op = &kAdd, .attrs = {}, .inputs = {b}, .outputs = {small}, .where = {}});
  graph.outputs = {sum_a, sum_b};
  const auto at = positions(schedule(graph, place_nodes(graph, {}), {}));
  EXPECT_LT(at[static_cast<size_t>(sum_a.node)], at[static_cast<size_t>(b.node)])
      << "a is freed before b is made";
}

TEST(Schedule, ACycleIsAnError) {
  Graph graph =
      traced({{DType::float32, {2}}}, [](const TensorList& p) { return TensorList{exp(p[0]) + 1.0}; });
  const std::vector<OrderEdge> edges = {{graph.outputs[0].node, graph.node(graph.outputs[0]).inputs[0].node}};
  const Error error = error_of([&] { schedule(graph, place_nodes(graph, {}), edges); });
  EXPECT_EQ(error.code(), ErrorCode::internal);
  EXPECT_THAT(error.message(), HasSubstr("cycle"));
}

TEST(Schedule, IsTheSameEveryTime) {
  std::mt19937 random(4);
  const Graph graph = random_graph(random, 60);
  const Placement placement = place_nodes(graph, {});
  EXPECT_EQ(schedule(graph, placement, {}), schedule(graph, placement, {}));
}

}  // namespace
}  // namespace lockstep::compile
