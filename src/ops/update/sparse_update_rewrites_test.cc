#include "ops/update/sparse_update.h"

#include <gtest/gtest.h>

#include "compile/passes/fusion.h"
#include "compile/passes/rewrite_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/array/lookup.h"
#include "ops/update/update.h"

namespace lockstep {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::traced;

constexpr int64_t kRows = 32 << 10, kWidth = 32, kLookups = 64;  // 4 MiB of float32

// What the compiler makes of an update of a table by Adam, up to the stage of the rewrite.
struct Case {
  int64_t rows = kRows, lookups = kLookups;
  bool reads_gradient = false;  // something else does
  bool scales_weights = false;  // the update is one of several elementwise ops
  Shape factor = {};            // of the gradient, beside the update; empty: there is none
};
Graph updated(const Case& c) {
  const TensorSpec table{DType::float32, {c.rows, kWidth}};
  const Graph graph = traced({{DType::float32, {c.lookups, kWidth}},
                              {DType::int64, {c.lookups}},
                              table,
                              table,
                              table,
                              {DType::float32, {}},
                              {DType::float32, c.factor}},
                             [&](const TensorList& p) {
                               Tensor gradient = scatter_add(p[0], p[1], c.rows);
                               const Tensor sums = gradient;
                               if (c.factor.rank() > 0) gradient = gradient * p[6];
                               const Tensor w = c.scales_weights ? p[2] * (1.0 - 0.1 * p[5]) : p[2];
                               const Tensor inputs[] = {w, p[3], p[4], gradient, p[5]};
                               TensorList results =
                                   adam_update({}).apply(inputs, std::source_location::current());
                               if (c.reads_gradient) results.push_back(reduce_sum(sums));
                               return results;
                             });
  const Graph simple = compile::simplify(graph, false);
  const Graph fused = compile::fuse_elementwise(simple, compile::place_nodes(simple, {}));
  return compile::apply_rewrites_behind_fusion(fused, DeviceKind::cpu);
}

TEST(SparseUpdate, TakesThePlaceOfADenseGradient) {
  for (const bool scales : {false, true}) {
    const Graph graph = updated({.scales_weights = scales});
    EXPECT_EQ(count_ops(graph, kSparseUpdate), 1) << scales;
    EXPECT_EQ(count_ops(graph, kScatterAdd), 0) << scales;
  }
}

TEST(SparseUpdate, NotOfSmallTablesManyRowsOrGradientsThatOthersRead) {
  EXPECT_EQ(count_ops(updated({.rows = kRows / 2}), kSparseUpdate), 0);
  EXPECT_EQ(count_ops(updated({.lookups = kRows / 8 + 1}), kSparseUpdate), 0);
  EXPECT_EQ(count_ops(updated({.lookups = kRows / 8}), kSparseUpdate), 1);
  EXPECT_EQ(count_ops(updated({.reads_gradient = true}), kSparseUpdate), 0);
}

TEST(SparseUpdate, ReadsWhatIsTheSameForAllRows) {
  for (const Shape& factor : {Shape{kWidth}, Shape{1, kWidth}, Shape{1}})
    EXPECT_EQ(count_ops(updated({.factor = factor}), kSparseUpdate), 1) << factor;
  EXPECT_EQ(count_ops(updated({.factor = {kRows, 1}}), kSparseUpdate), 0);
}

TEST(SparseUpdate, CostsWhatTheDenseOneDoes) {
  const auto flops = [](const Graph& graph) {
    int64_t sum = 0;
    for (const Node& node : graph.nodes) {
      SpecList inputs;
      for (const Value v : node.inputs) inputs.push_back(graph.spec(v));
      sum += op_cost(*node.op, inputs, node.outputs, node.attrs).flops;
    }
    return sum;
  };
  const int64_t sparse = flops(updated({})), dense = flops(updated({.lookups = kRows / 8 + 1}));
  EXPECT_GT(sparse, kRows * kWidth * 5);
  EXPECT_LT(sparse, dense);
}

}  // namespace
}  // namespace lockstep
