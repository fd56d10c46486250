#include "graph/rewrite.h"

#include <gtest/gtest.h>

#include "base/error_of_test.h"
#include "execute/compile_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep {
namespace {

using lockstep::testing::traced;

const TensorSpec kVector{DType::float32, {4}};

std::optional<Graph> nothing(const Graph&, DeviceKind) { return std::nullopt; }

// No device of this kind compiles anything in this program.
constexpr DeviceKind kUnused = DeviceKind::null;

TEST(RegisteredRewrites, AreOrderedByStageAndName) {
  [[maybe_unused]] static const RegisterRewrite registered[] = {
      {kUnused, {.name = "b", .stage = RewriteStage::prologue, .apply = nothing}},
      {kUnused, {.name = "d", .stage = RewriteStage::combine, .apply = nothing}},
      {kUnused, {.name = "c", .stage = RewriteStage::combine, .apply = nothing}},
      {kUnused, {.name = "a", .stage = RewriteStage::epilogue, .apply = nothing}},
  };
  std::string names;
  for (const Rewrite& rewrite : registered_rewrites(kUnused))
    if (rewrite.name.size() == 1) names += rewrite.name;
  EXPECT_EQ(names, "cdab");
}

TEST(RegisteredRewrites, AreForOneKindOfDevice) {
  static const RegisterRewrite once(kUnused, {.name = "of one kind", .apply = nothing});
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu, kUnused}) {
    const auto& rewrites = registered_rewrites(kind);
    EXPECT_FALSE(rewrites.empty());
    EXPECT_EQ(std::ranges::count(rewrites, "of one kind", &Rewrite::name), kind == kUnused ? 1 : 0);
  }
}

TEST(RegisteredRewrites, HaveNamesOfTheirOwn) {
  static const Rewrite twice{.name = "twice", .apply = nothing};
  const RegisterRewrite once(kUnused, twice);
  EXPECT_EQ(error_of([] { const RegisterRewrite again(kUnused, twice); }).code(), ErrorCode::internal);
}

TEST(CountUses, CountsReadsAndResults) {
  const Graph graph = traced({kVector}, [](const TensorList& p) {
    const Tensor y = exp(p[0]);
    return TensorList{y, y * y, y};
  });
  const auto uses = count_uses(graph);
  EXPECT_EQ(uses[static_cast<size_t>(graph.outputs[0].node)][0], 4);
  EXPECT_EQ(uses[static_cast<size_t>(graph.outputs[1].node)][0], 1);
}

TEST(ReadersOf, AreTheNodesThatReadAValue) {
  const Graph graph = traced({kVector}, [](const TensorList& p) {
    const Tensor y = exp(p[0]);
    return TensorList{sin(y), cos(y)};
  });
  const int y = graph.node(graph.outputs[0]).inputs[0].node;
  EXPECT_EQ(readers_of(graph)[static_cast<size_t>(y)],
            (std::vector<int>{graph.outputs[0].node, graph.outputs[1].node}));
}

TEST(ConvertedFrom16Bit, SeesThroughTheConversion) {
  const Graph graph = traced({{DType::bfloat16, {4}}}, [](const TensorList& p) {
    const Tensor wide = cast(p[0], DType::float32);
    return TensorList{wide, wide * 2.0, cast(p[0], DType::float64)};
  });
  EXPECT_EQ(graph.node(converted_from_16_bit(graph, graph.outputs[0])).op, &kParameter);
  EXPECT_FALSE(converted_from_16_bit(graph, graph.outputs[1]).valid());
  EXPECT_FALSE(converted_from_16_bit(graph, graph.outputs[2]).valid());
}

}  // namespace
}  // namespace lockstep
