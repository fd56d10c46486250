#include "compile/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compile/passes/rewrite_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/graph/variable.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/elementwise/ops.h"
#include "ops/matmul/matmul.h"
#include "ops/nn/normalize.h"

namespace lockstep::compile {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::expect_same_results;
using lockstep::testing::is_sorted;
using lockstep::testing::quarters;
using lockstep::testing::results_of;
using lockstep::testing::rewritten;
using lockstep::testing::traced;
using lockstep::testing::TracedBody;

const TensorSpec kVector{DType::float32, {4}};
const TensorSpec kMatrix{DType::float32, {4, 4}};

const Node& result(const Graph& graph, size_t i = 0) { return graph.node(graph.outputs[i]); }

// --- dead code ---------------------------------------------------------------------------------------------

TEST(RemoveDeadNodes, KeepsWhatResultsUpdatesAndRootsNeed) {
  const Variable v(quarters({4}));
  Graph graph = traced({kVector, kVector}, [&](const TensorList& p) {
    const Tensor dead = exp(p[1]);
    static_cast<void>(sin(dead));
    const Tensor root = cos(p[0]);
    v.assign(tanh(p[0]));
    const TensorList results = {p[0] * 2.0};
    Trace::current()->graph().roots.push_back(
        Trace::current()->value_of(root, std::source_location::current()));
    return results;
  });
  const Graph cleaned = remove_dead_nodes(graph);
  EXPECT_EQ(count_ops(cleaned, kExp), 0);
  EXPECT_EQ(count_ops(cleaned, kSin), 0);
  EXPECT_EQ(count_ops(cleaned, kCos), 1);
  EXPECT_EQ(count_ops(cleaned, kTanh), 1);
  EXPECT_EQ(count_ops(cleaned, kMul), 1);
  EXPECT_EQ(count_ops(cleaned, kParameter), 1);
  expect_same_results(graph, cleaned, {kVector, kVector});
}

TEST(RemoveDeadNodes, PutsSourcesInFront) {
  const Tensor outside = quarters({4});
  const Variable v(quarters({4}));
  const Graph graph = traced(
      {kVector}, [&](const TensorList& p) { return TensorList{exp(p[0]) * outside + v + zeros({4})}; });
  const Graph cleaned = remove_dead_nodes(graph);
  bool op_seen = false;
  for (const Node& node : cleaned.nodes) {
    EXPECT_FALSE(op_seen && is_source(*node.op)) << node.op->name;
    op_seen = op_seen || !is_source(*node.op);
  }
  expect_same_results(graph, cleaned, {kVector});
}

TEST(RemoveDeadNodes, KeepsANodeOfWhichOneResultIsUsed) {
  const Graph graph =
      traced({{DType::float32, {8}}}, [](const TensorList& p) { return TensorList{split(p[0], 2, 0)[1]}; });
  expect_same_results(graph, remove_dead_nodes(graph), {{DType::float32, {8}}});
}

// --- common subexpressions ---------------------------------------------------------------------------------

TEST(ShareCommonSubexpressions, ComputesEqualExpressionsOnce) {
  const Graph graph = traced({kVector}, [](const TensorList& p) {
    return TensorList{exp(p[0] * 2.0) + 1.0, exp(p[0] * 2.0) + 3.0};
  });
  const Graph shared = remove_dead_nodes(share_common_subexpressions(graph));
  EXPECT_EQ(count_ops(shared, kExp), 1);
  EXPECT_EQ(count_ops(shared, kMul), 1);
  EXPECT_EQ(count_ops(shared, kAdd), 2);
  expect_same_results(graph, shared, {kVector});
}

TEST(ShareCommonSubexpressions, TellsAttributesDtypesAndOrderOfInputsApart) {
  const SpecList specs = {kMatrix, kMatrix};
  const Graph graph = traced(specs, [](const TensorList& p) {
    return TensorList{reduce_sum(p[0], {.axis = {0}}),
                      reduce_sum(p[0], {.axis = {1}}),
                      cast(p[0], DType::int32),
                      cast(p[0], DType::int64),
                      p[0] - p[1],
                      p[1] - p[0],
                      matmul(p[0], p[1]),
                      matmul(p[0], p[1], {.transpose_b = true}),
                      reshape(p[0], {2, 8}),
                      reshape(p[0], {8, 2}),
                      gelu(p[0]),
                      gelu(p[0], {.approximate = true})};
  });
  const Graph shared = share_common_subexpressions(graph);
  EXPECT_EQ(shared.nodes.size(), graph.nodes.size());
  for (size_t i = 0; i < shared.outputs.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(shared.outputs[i] == shared.outputs[j]) << i << ' ' << j;
  expect_same_results(graph, shared, specs);
}

TEST(ShareCommonSubexpressions, TellsConstantsApart) {
  const Graph graph = traced({kVector}, [](const TensorList&) {
    return TensorList{fill({DType::float32, {4}}, 1),   fill({DType::float64, {4}}, 1),
                      fill({DType::float32, {5}}, 1),   fill({DType::float32, {4}}, 2),
                      fill({DType::float32, {4}}, 0.0), fill({DType::float32, {4}}, -0.0),
                      fill({DType::float32, {4}}, 1)};
  });
  const Graph shared = share_common_subexpressions(graph);
  EXPECT_EQ(shared.outputs[0], shared.outputs[6]);
  for (size_t i = 0; i < 6; ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(shared.outputs[i] == shared.outputs[j]) << i << ' ' << j;
}

TEST(ShareCommonSubexpressions, RandomDrawsStayApart) {
  const random::Generator generator(1);
  const Graph graph = traced({}, [&](const TensorList&) {
    return TensorList{random::uniform({4}, {.generator = &generator}),
                      random::uniform({4}, {.generator = &generator})};
  });
  const Graph shared = share_common_subexpressions(graph);
  EXPECT_FALSE(shared.outputs[0] == shared.outputs[1]);
}

TEST(ShareCommonSubexpressions, SumsOverReplicasStayApart) {
  const Graph graph = traced({kVector},
                             [](const TensorList& p) {
                               return TensorList{all_reduce_sum(p[0]), all_reduce_sum(p[0])};
                             },
                             {.global_batch = 8, .local_batch = 4});
  EXPECT_EQ(count_ops(share_common_subexpressions(graph), kAllReduceSum), 2);
}

// --- constants ---------------------------------------------------------------------------------------------

// The constant that `body` folds to; NaN where it does not become one.
double folded(const TracedBody& body) {
  const Graph graph = fold_constants(traced({}, body));
  const Node& node = result(graph);
  return node.op == &kConstant ? node.attrs.as<ConstantAttrs>().value : std::nan("");
}

Tensor constant(double value, DType dtype = DType::float32) { return fill({dtype, {3}}, value); }

TEST(FoldConstants, EvaluatesArithmetic) {
  EXPECT_EQ(folded([](const TensorList&) { return TensorList{constant(3) * 2.0 + 1.0}; }), 7);
  EXPECT_EQ(folded([](const TensorList&) { return TensorList{square(constant(3) - 5.0) / 8.0}; }), 0.5);
  EXPECT_EQ(folded([](const TensorList&) { return TensorList{sqrt(constant(2))}; }),
            static_cast<double>(std::sqrt(2.0f)));
  EXPECT_EQ(folded([](const TensorList&) { return TensorList{sqrt(constant(2, DType::float64))}; }),
            std::sqrt(2.0));
  EXPECT_EQ(folded([](const TensorList&) { return TensorList{-abs(constant(-4))}; }), -4);
  EXPECT_EQ(folded([](const TensorList&) {
              return TensorList{where(constant(1) > 0.5, constant(10), constant(20))};
            }),
            10);
}

TEST(FoldConstants, RoundsAsTheKernelsWould) {
  // 0.1f + 0.2f in float32 is not the float nearest to 0.3.
  EXPECT_EQ(folded([](const TensorList&) { return TensorList{constant(0.1) + constant(0.2)}; }),
            static_cast<double>(0.1f + 0.2f));
  EXPECT_EQ(folded([](const TensorList&) { return TensorList{constant(1) / 3.0}; }),
            static_cast<double>(1.0f / 3.0f));
}

TEST(FoldConstants, AreTheSameAsEager) {
  const TracedBody bodies[] = {
      [](const TensorList&) { return TensorList{constant(0.3) * 0.7 - 5.0}; },
      [](const TensorList&) { return TensorList{cast(constant(2.75), DType::float64) / 3.0}; },
      [](const TensorList&) { return TensorList{cast(constant(-7.9), DType::int32)}; },
      [](const TensorList&) {
        return TensorList{fill({DType::int32, {3}}, 7) / fill({DType::int32, {3}}, 2)};
      },
      [](const TensorList&) {
        return TensorList{fill({DType::bfloat16, {3}}, 1.001) * fill({DType::bfloat16, {3}}, 3)};
      },
      [](const TensorList&) { return TensorList{exp(constant(1.5)) + pow(constant(2), constant(0.5))}; },
      [](const TensorList&) { return TensorList{cast(constant(1) < 2.0, DType::float32)}; },
      [](const TensorList&) { return TensorList{constant(1) / 0.0}; },
      [](const TensorList&) {
        return TensorList{fill({DType::uint8, {3}}, 200) + fill({DType::uint8, {3}}, 100)};
      },
  };
  for (const TracedBody& body : bodies) {
    const Graph graph = traced({}, body);
    const TensorList before = results_of(graph, {}), after = results_of(fold_constants(graph), {});
    EXPECT_EQ(before[0].to_string(), after[0].to_string());
  }
}

TEST(FoldConstants, SeesThroughViews) {
  const Graph graph = fold_constants(traced({}, [](const TensorList&) {
    return TensorList{transpose(broadcast_to(reshape(constant(2), {3, 1}), {3, 5})) * 2.0};
  }));
  ASSERT_EQ(result(graph).op, &kConstant);
  EXPECT_EQ(result(graph).attrs.as<ConstantAttrs>().value, 4);
  EXPECT_EQ(result(graph).outputs[0].shape, Shape({5, 3}));
}

TEST(FoldConstants, DropsMultiplicationsByOne) {
  const Graph graph = fold_constants(traced({kVector}, [](const TensorList& p) {
    return TensorList{p[0] * 1.0, 1.0 * p[0], p[0] * ones({4}), p[0] * ones({2, 4}), p[0] * 2.0};
  }));
  EXPECT_EQ(result(graph, 0).op, &kParameter);
  EXPECT_EQ(result(graph, 1).op, &kParameter);
  EXPECT_EQ(result(graph, 2).op, &kParameter);
  EXPECT_EQ(result(graph, 3).op, &kMul) << "it broadcasts";
  EXPECT_EQ(result(graph, 4).op, &kMul);
}

TEST(FoldConstants, DropsStopGradient) {
  const Graph graph = fold_constants(
      traced({kVector}, [](const TensorList& p) { return TensorList{stop_gradient(exp(p[0]))}; }));
  EXPECT_EQ(result(graph).op, &kExp);
}

TEST(FoldConstants, LeavesOtherInputsAlone) {
  const Graph graph = traced({kVector}, [](const TensorList& p) {
    return TensorList{(p[0] + 1.0) * (constant(2) + 3.0).shape()[0]};
  });
  expect_same_results(graph, fold_constants(graph), {kVector});
}

// --- collectives -------------------------------------------------------------------------------------------

TEST(DropCollectives, ASumOverOneReplicaIsItsInput) {
  const Graph graph =
      traced({kVector}, [](const TensorList& p) { return TensorList{all_reduce_sum(exp(p[0])) + 1.0}; },
             {.global_batch = 4, .local_batch = 4});
  const Graph dropped = drop_collectives(graph);
  EXPECT_EQ(count_ops(graph, kAllReduceSum), 1);
  EXPECT_EQ(count_ops(dropped, kAllReduceSum), 0);
  expect_same_results(graph, dropped, {kVector});
}

// --- epilogues ---------------------------------------------------------------------------------------------

class Epilogues : public ::testing::Test {
 protected:
  Graph fused(const SpecList& specs, const TracedBody& body) {
    before_ = traced(specs, body);
    Graph after = fuse_epilogues(remove_dead_nodes(before_));
    after = remove_dead_nodes(after);
    expect_same_results(before_, after, specs, 1e-5);
    return after;
  }
  static MatmulAttrs matmul_of(const Graph& graph) {
    for (const Node& node : graph.nodes)
      if (node.op == &kMatmul) return node.attrs.as<MatmulAttrs>();
    ADD_FAILURE() << "no matmul";
    return {};
  }
  Graph before_;
};

const SpecList kDense = {kMatrix, kMatrix, kVector};

TEST_F(Epilogues, BiasAndActivationMoveIntoTheProduct) {
  const Graph graph =
      fused(kDense, [](const TensorList& p) { return TensorList{relu(matmul(p[0], p[1]) + p[2])}; });
  EXPECT_EQ(result(graph).op, &kMatmul);
  EXPECT_TRUE(matmul_of(graph).bias);
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::relu);
  EXPECT_EQ(result(graph).inputs.size(), 3u);
}

TEST_F(Epilogues, TheBiasMayStandOnEitherSide) {
  const Graph graph =
      fused(kDense, [](const TensorList& p) { return TensorList{tanh(p[2] + matmul(p[0], p[1]))}; });
  EXPECT_EQ(result(graph).op, &kMatmul);
  EXPECT_TRUE(matmul_of(graph).bias);
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::tanh);
}

TEST_F(Epilogues, EveryActivationThatCanBeOne) {
  using Activation = std::pair<std::function<Tensor(const Tensor&)>, Epilogue>;
  const Activation activations[] = {
      {[](const Tensor& x) { return relu(x); }, Epilogue::relu},
      {[](const Tensor& x) { return tanh(x); }, Epilogue::tanh},
      {[](const Tensor& x) { return sigmoid(x); }, Epilogue::sigmoid},
      {[](const Tensor& x) { return gelu(x); }, Epilogue::gelu_erf},
      {[](const Tensor& x) { return gelu(x, {.approximate = true}); }, Epilogue::gelu_tanh}};
  for (const auto& [activation, epilogue] : activations) {
    const Graph graph =
        fused(kDense, [&](const TensorList& p) { return TensorList{activation(matmul(p[0], p[1]))}; });
    EXPECT_EQ(result(graph).op, &kMatmul);
    EXPECT_EQ(matmul_of(graph).epilogue, epilogue);
    EXPECT_FALSE(matmul_of(graph).bias);
  }
  const Graph graph = fused(kDense, [&](const TensorList& p) { return TensorList{sin(matmul(p[0], p[1]))}; });
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::none);
}

TEST_F(Epilogues, TransposesStay) {
  const Graph graph = fused(kDense, [](const TensorList& p) {
    return TensorList{relu(matmul(p[0], p[1], {.transpose_a = true, .transpose_b = true}) + p[2])};
  });
  EXPECT_TRUE(matmul_of(graph).transpose_a && matmul_of(graph).transpose_b && matmul_of(graph).bias);
}

TEST_F(Epilogues, NotWhereTheProductIsReadTwice) {
  const Graph graph = fused(kDense, [](const TensorList& p) {
    const Tensor product = matmul(p[0], p[1]);
    return TensorList{relu(product), product};
  });
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::none);
  const Graph biased = fused(kDense, [](const TensorList& p) {
    const Tensor product = matmul(p[0], p[1]);
    return TensorList{product + p[2], reduce_sum(product)};
  });
  EXPECT_FALSE(matmul_of(biased).bias);
}

TEST_F(Epilogues, NotTheActivationWhereItsInputIsReadTwice) {
  const Graph graph = fused(kDense, [](const TensorList& p) {
    const Tensor before = matmul(p[0], p[1]) + p[2];
    return TensorList{relu(before), before};
  });
  EXPECT_TRUE(matmul_of(graph).bias) << "the bias alone";
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::none);
}

TEST_F(Epilogues, NotTheWrongWayRound) {
  const Graph graph =
      fused(kDense, [](const TensorList& p) { return TensorList{relu(matmul(p[0], p[1])) + p[2]}; });
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::relu);
  EXPECT_FALSE(matmul_of(graph).bias) << "a bias behind the activation is none";
  EXPECT_EQ(result(graph).op, &kAdd);
}

TEST_F(Epilogues, OneActivationAndOneBias) {
  const Graph twice =
      fused(kDense, [](const TensorList& p) { return TensorList{tanh(relu(matmul(p[0], p[1])))}; });
  EXPECT_EQ(matmul_of(twice).epilogue, Epilogue::relu);
  EXPECT_EQ(result(twice).op, &kTanh);
  const Graph biases =
      fused(kDense, [](const TensorList& p) { return TensorList{matmul(p[0], p[1]) + p[2] + p[2]}; });
  EXPECT_EQ(result(biases).op, &kAdd);
  EXPECT_TRUE(matmul_of(biases).bias);
}

TEST_F(Epilogues, ABiasIsOneValueAColumn) {
  const auto is_fused = [&](const Shape& bias, const Shape& a = {4, 4}) {
    return matmul_of(fused({{DType::float32, a}, kMatrix, {DType::float32, bias}},
                           [](const TensorList& p) { return TensorList{matmul(p[0], p[1]) + p[2]}; }))
        .bias;
  };
  EXPECT_TRUE(is_fused({4}));
  EXPECT_TRUE(is_fused({1, 4}));
  EXPECT_FALSE(is_fused({4, 1})) << "one value per row";
  EXPECT_FALSE(is_fused({4, 4}));
  EXPECT_FALSE(is_fused({1}));
  EXPECT_FALSE(is_fused({}));
  EXPECT_FALSE(is_fused({2, 1, 4})) << "it makes the result larger";
  EXPECT_FALSE(is_fused({3, 4}, {1, 4})) << "it makes the result larger";
  EXPECT_TRUE(is_fused({4}, {2, 3, 4}));
  EXPECT_TRUE(is_fused({1, 1, 4}, {2, 3, 4}));
}

TEST_F(Epilogues, ABiasThatIsComputedLaterStaysOutside) {
  const Graph graph = fused(kDense, [](const TensorList& p) {
    const Tensor product = matmul(p[0], p[1]);
    return TensorList{product + exp(p[2])};
  });
  EXPECT_TRUE(is_sorted(graph));
}

TEST_F(Epilogues, TwoProductsAdded) {
  const SpecList specs = {kMatrix, kMatrix, {DType::float32, {1, 4}}};
  const Graph graph = fused(
      specs, [](const TensorList& p) { return TensorList{relu(matmul(p[2], p[1]) + matmul(p[0], p[1]))}; });
  EXPECT_TRUE(is_sorted(graph));
  const Graph other = fused(
      specs, [](const TensorList& p) { return TensorList{relu(matmul(p[0], p[1]) + matmul(p[2], p[1]))}; });
  EXPECT_TRUE(is_sorted(other));
}

TEST_F(Epilogues, NotInDtypesWithoutThem) {
  const TensorSpec wide{DType::float64, {4, 4}};
  Graph graph =
      traced({wide, wide}, [](const TensorList& p) { return TensorList{relu(matmul(p[0], p[1]))}; });
  graph = fuse_epilogues(graph);
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::none);
  const TensorSpec integers{DType::int32, {4, 4}};
  graph = fuse_epilogues(
      traced({integers, integers}, [](const TensorList& p) { return TensorList{relu(matmul(p[0], p[1]))}; }));
  EXPECT_EQ(matmul_of(graph).epilogue, Epilogue::none);
}

TEST_F(Epilogues, ConvolutionsTakeThemToo) {
  const SpecList specs = {{DType::float32, {1, 5, 5, 2}}, {DType::float32, {3, 3, 2, 4}}, kVector};
  const Graph graph =
      fused(specs, [](const TensorList& p) { return TensorList{relu(conv2d(p[0], p[1]) + p[2])}; });
  EXPECT_EQ(count_ops(graph, kAdd), 0);
  EXPECT_EQ(count_ops(graph, kRelu), 0);
}

// --- all together ------------------------------------------------------------------------------------------

// Layer normalisation of 16-bit floats as Keras writes it, on devices whose kernel can read and write them.
class AbsorbCasts : public ::testing::Test {
 protected:
  static Graph absorbed(const TracedBody& body) {
    static const KernelDef narrow{.narrow_inputs = 0b1, .narrow_outputs = 0b1};
    const TensorSpec x{DType::bfloat16, {4, 8}}, weight{DType::float32, {8}};
    const Graph graph = remove_dead_nodes(traced({x, weight, weight}, body));
    const std::optional<Graph> changed =
        absorb_casts(graph, [](const Node& node) { return node.op == &kLayerNorm ? &narrow : nullptr; });
    return remove_dead_nodes(changed.value_or(graph));
  }
  static const Node& norm_of(const Graph& graph) {
    return *std::find_if(graph.nodes.begin(), graph.nodes.end(),
                         [](const Node& node) { return node.op == &kLayerNorm; });
  }
};

TEST_F(AbsorbCasts, AroundAKernelThatCan) {
  const Graph graph = absorbed([](const TensorList& p) {
    return TensorList{cast(layer_norm(cast(p[0], DType::float32), p[1], p[2]), DType::bfloat16)};
  });
  EXPECT_TRUE(is_sorted(graph));
  EXPECT_EQ(count_ops(graph, kCast), 0);
  EXPECT_EQ(graph.spec(norm_of(graph).inputs[0]).dtype, DType::bfloat16);
  EXPECT_EQ(norm_of(graph).outputs[0].dtype, DType::bfloat16);
  EXPECT_EQ(norm_of(graph).outputs[1].dtype, DType::float32);
}

TEST_F(AbsorbCasts, NotWhereSomebodyReadsTheWideResult) {
  const Graph graph = absorbed([](const TensorList& p) {
    const Tensor y = layer_norm(cast(p[0], DType::float32), p[1], p[2]);
    return TensorList{cast(y, DType::bfloat16), y};
  });
  EXPECT_EQ(count_ops(graph, kCast), 2);
  EXPECT_EQ(norm_of(graph).outputs[0].dtype, DType::float32);
}

TEST_F(AbsorbCasts, ElementwiseOpsConvertForThemselves) {
  const Graph graph = absorbed([](const TensorList& p) {
    const Tensor x = cast(p[0], DType::float32);
    return TensorList{cast(layer_norm(x, p[1], p[2]), DType::bfloat16), exp(x), x * 2.0};
  });
  EXPECT_EQ(count_ops(graph, kCast), 2);
  EXPECT_EQ(norm_of(graph).outputs[0].dtype, DType::bfloat16);
}

const TensorSpec kNarrow{DType::bfloat16, {4, 4}};

TEST(FuseAddends, AProductAddsAResidual) {
  const Graph graph = rewritten("fuse_addends", traced({kNarrow, kNarrow}, [](const TensorList& p) {
                                  const Tensor a = matmul(p[0], p[1]), b = matmul(p[1], p[0]);
                                  return TensorList{p[0] + a + b};
                                }));
  EXPECT_TRUE(is_sorted(graph));
  EXPECT_EQ(count_ops(graph, kAdd), 0);
  for (const Node& node : graph.nodes)
    if (node.op == &kMatmul) {
      EXPECT_TRUE(node.attrs.as<MatmulAttrs>().addend);
      EXPECT_EQ(node.inputs.size(), 3u);
    }
}

TEST(FuseAddends, NotWhereTheProductIsReadOrComesFirst) {
  const Graph read = rewritten("fuse_addends", traced({kNarrow, kNarrow}, [](const TensorList& p) {
                                 const Tensor a = matmul(p[0], p[1]);
                                 return TensorList{a + p[0], a};
                               }));
  EXPECT_EQ(count_ops(read, kAdd), 1);
  const Graph first = rewritten("fuse_addends", traced({kNarrow, kNarrow}, [](const TensorList& p) {
                                  const Tensor a = matmul(p[0], p[1]);
                                  return TensorList{a + exp(a * 0.0 + p[0])};
                                }));
  EXPECT_EQ(count_ops(first, kMatmul), 1);
  for (const Node& node : first.nodes)
    if (node.op == &kMatmul) {
      EXPECT_FALSE(node.attrs.as<MatmulAttrs>().addend);
    }
}

TEST(Simplify, ComputesTheSame) {
  const Variable v(quarters({4, 4}));
  const TracedBody body = [&](const TensorList& p) {
    const Tensor h = relu(matmul(p[0], v) + p[2]);
    v.assign(v - matmul(p[0], h * 1.0, {.transpose_a = true}) * (constant(1).shape()[0] * 0.1));
    return TensorList{softmax(matmul(h, p[1])), reduce_sum(h) * 2.0 + reduce_sum(h) * 2.0, stop_gradient(h)};
  };
  const Graph graph = traced(kDense, body);
  const Graph simple = simplify(graph, false);
  EXPECT_LT(simple.nodes.size(), graph.nodes.size());
  expect_same_results(graph, simple, kDense, 1e-5);
}

TEST(Simplify, KeepsSumsOfReplicas) {
  const Graph graph =
      traced({kVector}, [](const TensorList& p) { return TensorList{all_reduce_sum(reduce_sum(p[0]))}; },
             {.global_batch = 8, .local_batch = 4});
  EXPECT_EQ(count_ops(simplify(graph, true), kAllReduceSum), 1);
  EXPECT_EQ(count_ops(simplify(graph, false), kAllReduceSum), 0);
}

}  // namespace
}  // namespace lockstep::compile
