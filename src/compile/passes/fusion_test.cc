#include "compile/passes/fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "compile/passes/passes.h"
#include "execute/compile_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/graph/variable.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/elementwise/ops.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::is_sorted;
using lockstep::testing::results_of;
using lockstep::testing::traced;
using lockstep::testing::TracedBody;
using ::testing::ElementsAre;

const TensorSpec kMatrix{DType::float32, {3, 4}};

Tensor counting(const TensorSpec& spec) {
  std::vector<float> values(static_cast<size_t>(spec.shape.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.125f * static_cast<float>(i % 17) - 1;
  return cast(Tensor::from(values, spec.shape), spec.dtype);
}

int elementwise_nodes(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) count += node.op->expand != nullptr;
  return count;
}

// Fuses what `body` traces and checks that it still computes the same.
Graph fuse(const SpecList& specs, const TracedBody& body, ReplicaTrace replica = {},
           const std::vector<bool>& split = {}) {
  const Graph graph = remove_dead_nodes(traced(specs, body, replica));
  const Graph fused = fuse_elementwise(graph, place_nodes(graph, split));
  EXPECT_TRUE(is_sorted(fused));
  for (const Node& node : fused.nodes)
    if (node.op == &kFused) elementwise::validate(node.attrs.as<FusedAttrs>().program);
  TensorList arguments;
  for (const TensorSpec& spec : specs) arguments.push_back(counting(spec));
  const TensorList before = results_of(graph, arguments), after = results_of(fused, arguments);
  EXPECT_EQ(before.size(), after.size());
  for (size_t k = 0; k < before.size() && k < after.size(); ++k) {
    EXPECT_EQ(before[k].spec(), after[k].spec());
    EXPECT_EQ(before[k].to_string(), after[k].to_string()) << "result " << k;
  }
  return fused;
}

const Node& fused_node(const Graph& graph) {
  for (const Node& node : graph.nodes)
    if (node.op == &kFused) return node;
  ADD_FAILURE() << "nothing was fused";
  return graph.nodes.front();
}

TEST(Fusion, AChainBecomesOneNode) {
  const Graph graph =
      fuse({kMatrix}, [](const TensorList& p) { return TensorList{sqrt(abs(sin(p[0]) * 2.0) + 1.0)}; });
  EXPECT_EQ(elementwise_nodes(graph), 1);
  const Node& node = fused_node(graph);
  EXPECT_EQ(node.inputs.size(), 1u);
  EXPECT_EQ(node.outputs.size(), 1u);
  EXPECT_THAT(node.attrs.as<FusedAttrs>().ops, ElementsAre("sin", "mul", "abs", "add", "sqrt"));
}

TEST(Fusion, ATreeBecomesOneNode) {
  const Graph graph = fuse({kMatrix, kMatrix, kMatrix}, [](const TensorList& p) {
    return TensorList{(exp(p[0]) + sin(p[1])) * (cos(p[2]) - p[0])};
  });
  EXPECT_EQ(elementwise_nodes(graph), 1);
  EXPECT_EQ(fused_node(graph).inputs.size(), 3u) << "each input is read once";
}

TEST(Fusion, ADiamondBecomesOneNode) {
  const Graph graph = fuse({kMatrix}, [](const TensorList& p) {
    const Tensor y = exp(p[0]);
    return TensorList{sin(y) + cos(y) * y};
  });
  EXPECT_EQ(elementwise_nodes(graph), 1);
}

TEST(Fusion, ConstantsBecomePartOfTheProgram) {
  const Graph graph = fuse({kMatrix}, [](const TensorList& p) {
    return TensorList{p[0] * 2.0 + ones({3, 4})};
  });
  EXPECT_EQ(fused_node(graph).inputs.size(), 1u);
  EXPECT_EQ(count_ops(graph, kConstant), 0);
}

TEST(Fusion, WhatIsNeededOutsideIsWritten) {
  const Graph graph = fuse({kMatrix}, [](const TensorList& p) {
    const Tensor a = exp(p[0]);
    const Tensor b = a + 1.0;
    const Tensor c = sin(b);
    return TensorList{c, a, reduce_sum(b, {.axis = {0}})};
  });
  EXPECT_EQ(elementwise_nodes(graph), 1);
  EXPECT_EQ(fused_node(graph).outputs.size(), 3u);
}

TEST(Fusion, UpdatesOfVariablesCountAsNeeded) {
  const Variable a(counting(kMatrix)), b(counting(kMatrix));
  const Graph graph = fuse({kMatrix}, [&](const TensorList& p) {
    const Tensor m = a * 0.5 + p[0];
    a.assign(m);
    b.assign(b - m * 0.1);
    return TensorList{};
  });
  EXPECT_EQ(elementwise_nodes(graph), 1);
  EXPECT_EQ(fused_node(graph).outputs.size(), 2u);
  EXPECT_EQ(graph.updates.size(), 2u);
}

TEST(Fusion, BroadcastInputsAreReadAsTheyAre) {
  const SpecList specs = {kMatrix, {DType::float32, {4}}, {DType::float32, {3, 1}}, {DType::float32, {}}};
  const Graph graph =
      fuse(specs, [](const TensorList& p) { return TensorList{(p[0] + p[1]) * p[2] - p[3]}; });
  EXPECT_EQ(elementwise_nodes(graph), 1);
  EXPECT_EQ(fused_node(graph).inputs.size(), 4u);
}

// A smaller expression is computed once per element of its own shape, not of the larger one.
TEST(Fusion, ShapesAreNotMixed) {
  const SpecList specs = {kMatrix, {DType::float32, {4}}};
  const Graph graph =
      fuse(specs, [](const TensorList& p) { return TensorList{p[0] * exp(p[1] * 2.0) + 1.0}; });
  EXPECT_EQ(elementwise_nodes(graph), 2);
}

TEST(Fusion, DtypesMayBeMixed) {
  const SpecList specs = {kMatrix, {DType::int32, {3, 4}}};
  const Graph graph = fuse(specs, [](const TensorList& p) {
    const Tensor positive = p[0] > 0.0;
    const Tensor chosen = where(positive, cast(p[1], DType::float32), p[0] * 2.0);
    return TensorList{chosen, positive, cast(chosen, DType::float64)};
  });
  EXPECT_EQ(elementwise_nodes(graph), 1);
  EXPECT_EQ(fused_node(graph).outputs.size(), 3u);
}

// a -> x -> b with a -> b too, and x no elementwise op: one node of a and b would need x before and after
// itself.
TEST(Fusion, MakesNoCycles) {
  const TensorSpec square{DType::float32, {4, 4}};
  const Graph graph = fuse({square}, [](const TensorList& p) {
    const Tensor a = exp(p[0]);
    const Tensor x = matmul(a, a);
    return TensorList{a + x};
  });
  EXPECT_EQ(elementwise_nodes(graph), 2);
}

TEST(Fusion, MakesNoCyclesThroughOtherGroups) {
  const TensorSpec square{DType::float32, {4, 4}};
  const Graph graph = fuse({square, square}, [](const TensorList& p) {
    // Two chains that read each other through products: a1 -> m1 -> b2 and a2 -> m2 -> b1.
    const Tensor a1 = exp(p[0]), a2 = sin(p[1]);
    const Tensor m1 = matmul(a1, p[0]), m2 = matmul(a2, p[1]);
    const Tensor b1 = a1 * m2 + 1.0, b2 = a2 * m1 - 1.0;
    return TensorList{b1, b2, b1 + b2};
  });
  EXPECT_TRUE(is_sorted(graph));
}

TEST(Fusion, MakesNoCyclesInALargeMixture) {
  const TensorSpec square{DType::float32, {4, 4}};
  fuse({square, square}, [](const TensorList& p) {
    Tensor x = p[0], y = p[1];
    TensorList all;
    for (int i = 0; i < 12; ++i) {
      const Tensor sum = tanh(x + y);
      const Tensor product = softmax(matmul(sum, i % 2 == 0 ? x : y));
      all.push_back(sum * 0.5);
      x = i % 3 == 0 ? product : tanh(product - sum);
      y = transpose(sum) * x;
    }
    all.push_back(x);
    all.push_back(y);
    return all;
  });
}

TEST(Fusion, ViewsStandBetween) {
  const TensorSpec square{DType::float32, {4, 4}};
  const Graph graph = fuse({square}, [](const TensorList& p) {
    const Tensor a = exp(p[0]);
    return TensorList{sin(transpose(a)) + a};
  });
  EXPECT_EQ(elementwise_nodes(graph), 2);
}

TEST(Fusion, NotAcrossPlacesAndPhases) {
  const Variable v(counting({DType::float32, {4}}));
  const Graph graph = fuse({kMatrix},
                           [&](const TensorList& p) {
                             const Tensor scale = exp(v) + 1.0;  // replica-invariant
                             const Tensor rows = p[0] * 2.0;     // per replica, phase 0
                             const Tensor sum =
                                 all_reduce_sum(reduce_sum(rows, {.axis = {0}}));  // a phase ends
                             return TensorList{rows, rows - sum, sum * scale, scale};
                           },
                           {.global_batch = 6, .local_batch = 3}, {true});
  // exp + 1 and sum * scale may not join: one is ready before the sum. rows and rows - sum may not either.
  EXPECT_GE(elementwise_nodes(graph), 3);
  const Placement placement = place_nodes(graph, {true});
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const Value input : graph.nodes[i].inputs)
      EXPECT_LE(placement.nodes[static_cast<size_t>(input.node)].phase, placement.nodes[i].phase);
}

TEST(Fusion, HasLimits) {
  // 100 inputs cannot be operands of one program.
  const Graph many = fuse(SpecList(100, kMatrix), [](const TensorList& p) {
    Tensor sum = p[0];
    for (size_t i = 1; i < p.size(); ++i) sum = sum + p[i];
    return TensorList{sum};
  });
  EXPECT_GT(elementwise_nodes(many), 1);
  EXPECT_LT(elementwise_nodes(many), 25);
  // Nor a chain of hundreds of ops.
  const Graph lengthy = fuse({kMatrix}, [](const TensorList& p) {
    Tensor y = p[0];
    for (int i = 0; i < 300; ++i) y = y * 0.5 + 0.25;
    return TensorList{y};
  });
  EXPECT_GT(elementwise_nodes(lengthy), 1);
  EXPECT_LT(elementwise_nodes(lengthy), 60);
  for (const Graph* graph : {&many, &lengthy})
    for (const Node& node : graph->nodes)
      if (node.op == &kFused) {
        EXPECT_LE(static_cast<int>(node.inputs.size() + node.outputs.size()), elementwise::kMaxOperands);
      }
}

// A wide product of a narrow value that is there anyhow is made where it is read.
TEST(Fusion, ValuesMoveToTheirOnlyReaderWhereThatMovesFewerBytes) {
  const SpecList specs = {{DType::bfloat16, {3, 4}}, {DType::float32, {4}}};
  const Graph graph = fuse(specs, [](const TensorList& p) {
    const Tensor narrow = p[0] * 2.0;
    const Tensor wide = cast(narrow, DType::float32) * p[1];
    const Tensor sum = cast(reduce_sum(narrow, {.axis = {0}}), DType::float32);
    return TensorList{wide + sum};
  });
  ASSERT_EQ(elementwise_nodes(graph), 3);  // the vector of sums is converted by itself
  for (const Node& node : graph.nodes)
    if (node.op->expand && graph.node(node.inputs[0]).op == &kParameter) {
      ASSERT_EQ(node.outputs.size(), 1u);
      EXPECT_EQ(node.outputs[0].dtype, DType::bfloat16);
    }
}

// Whatever lies between two ops, joining them leaves an order in which all can run, and the same results.
TEST(Fusion, GraphsOfAnyFormAreOrderedAndComputeTheSame) {
  std::mt19937 random(7);
  for (int run = 0; run < 30; ++run)
    fuse({kMatrix, kMatrix}, [&](const TensorList& p) {
      TensorList values = p;
      const auto any = [&] { return values[random() % values.size()]; };
      for (int i = 0; i < 60; ++i) switch (random() % 4) {
          case 0: values.push_back(sin(any())); break;
          case 1: values.push_back(softmax(any())); break;  // no elementwise op: what lies between
          case 2: values.push_back(minimum(any(), any())); break;
          default: values.push_back(0.5 * (any() + any()));
        }
      return TensorList{values.back(), any(), any()};
    });
}

// With a gradient the ops at the beginning are read at the end, too.
TEST(Fusion, LongChainsAreFusedAlongTheirWholeLength) {
  constexpr int kOps = 2000;
  const Graph graph = remove_dead_nodes(traced({kMatrix}, [](const TensorList& p) {
    GradientTape tape;
    tape.watch(p[0]);
    Tensor y = p[0];
    for (int i = 0; i < kOps; ++i) y = sin(y);
    return TensorList{tape.gradient(y, p[0])};
  }));
  const Graph fused = fuse_elementwise(graph, place_nodes(graph, {}));
  EXPECT_TRUE(is_sorted(fused));
  EXPECT_GT(elementwise_nodes(graph), 2 * kOps);
  EXPECT_LT(elementwise_nodes(fused), elementwise_nodes(graph) / 5);
}

TEST(Fusion, AloneAnOpStaysAlone) {
  const Graph graph = fuse({kMatrix}, [](const TensorList& p) {
    return TensorList{reduce_sum(exp(p[0])), p[0]};
  });
  EXPECT_EQ(elementwise_nodes(graph), 1);
}

TEST(Fusion, MultiplicationsAndAdditionsKeepTheirBits) {
  // Not contracted into one rounding: the bits of the ops one by one. (to_string prints few digits.)
  const SpecList specs = {{DType::float32, {1000}}, {DType::float32, {1000}}};
  const Graph graph =
      traced(specs, [](const TensorList& p) { return TensorList{p[0] * p[1] + p[0] / 3.0 - p[1] * 1.7}; });
  const Graph fused = fuse_elementwise(graph, place_nodes(graph, {}));
  const TensorList arguments = {counting(specs[0]) * 1.2345, counting(specs[1]) * 0.777};
  EXPECT_EQ(results_of(graph, arguments)[0].to_vector<float>(),
            results_of(fused, arguments)[0].to_vector<float>());
}

}  // namespace
}  // namespace lockstep::compile
