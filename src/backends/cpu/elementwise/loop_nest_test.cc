#include "backends/cpu/elementwise/loop_nest.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

LoopNest nest_of(const Shape& shape, const std::vector<Strides>& inputs,
                 const std::vector<Strides>& outputs) {
  std::vector<OperandLayout> in;
  std::vector<OperandLayout> out;
  for (const Strides& s : inputs) in.push_back({&s, DType::float32});
  for (const Strides& s : outputs) out.push_back({&s, DType::float32});
  return make_loop_nest(shape, in, out);
}

TEST(LoopNest, MergesContiguousDimensionsIntoOneWalk) {
  const LoopNest nest = nest_of({2, 3, 4}, {{12, 4, 1}}, {{12, 4, 1}});
  EXPECT_EQ(nest.columns, 24);
  EXPECT_EQ(nest.rows, 1);
  EXPECT_EQ(nest.outer.rank(), 0);
  EXPECT_EQ(nest.operands[0].column_stride, 4);
  EXPECT_EQ(nest.operands[1].access, Access::contiguous);
}

TEST(LoopNest, KeepsABroadcastRowApart) {
  const LoopNest nest = nest_of({2, 16, 10}, {{160, 10, 1}, {0, 0, 1}}, {{160, 10, 1}});
  EXPECT_EQ(nest.columns, 10);
  EXPECT_EQ(nest.rows, 32);
  EXPECT_EQ(nest.outer.rank(), 0);
  EXPECT_EQ(nest.operands[1].row_stride, 0);
  EXPECT_EQ(nest.operands[1].access, Access::contiguous);
  EXPECT_EQ(nest.operands[2].row_stride, 40);
}

TEST(LoopNest, RecognisesScalarsOfRows) {
  const LoopNest nest = nest_of({32, 10}, {{10, 1}, {1, 0}}, {{10, 1}});
  EXPECT_EQ(nest.operands[1].access, Access::broadcast);
  EXPECT_EQ(nest.operands[1].row_stride, 4);
}

TEST(LoopNest, OrdersDimensionsByTheOutputsStrides) {
  // Everything transposed: the walk follows memory.
  const LoopNest together = nest_of({3, 5}, {{1, 3}}, {{1, 3}});
  EXPECT_EQ(together.columns, 15);
  EXPECT_EQ(together.operands[0].access, Access::contiguous);
  // Only the input transposed: the output is written in order.
  const LoopNest apart = nest_of({3, 5}, {{1, 3}}, {{5, 1}});
  EXPECT_EQ(apart.columns, 5);
  EXPECT_EQ(apart.rows, 3);
  EXPECT_EQ(apart.operands[0].access, Access::strided);
  EXPECT_EQ(apart.operands[0].column_stride, 12);
}

TEST(LoopNest, DropsDimensionsOfSizeOne) {
  const LoopNest nest = nest_of({1, 4, 1, 5, 1}, {{99, 5, -7, 1, 0}}, {{0, 5, 3, 1, 8}});
  EXPECT_EQ(nest.columns, 20);
  EXPECT_EQ(nest.rows, 1);
}

TEST(LoopNest, TurnsDimensionsAroundThatEverybodyWalksBackwards) {
  const LoopNest nest = nest_of({4, 5}, {{-5, -1}, {0, 0}}, {{-5, -1}});
  EXPECT_EQ(nest.columns, 20);
  EXPECT_EQ(nest.operands[0].column_stride, 4);
  EXPECT_EQ(nest.operands[0].offset, -19 * 4);
  EXPECT_EQ(nest.operands[1].offset, 0);
  // Not where somebody walks forwards.
  const LoopNest mixed = nest_of({5}, {{-1}}, {{1}});
  EXPECT_EQ(mixed.operands[0].column_stride, -4);
  EXPECT_EQ(mixed.operands[0].access, Access::strided);
}

TEST(LoopNest, LeavesOuterLoopsForMoreThanTwoDimensions) {
  const LoopNest nest = nest_of({2, 3, 4, 5}, {{1, 2, 6, 24}}, {{60, 20, 5, 1}});
  EXPECT_EQ(nest.columns, 5);
  EXPECT_EQ(nest.rows, 4);
  EXPECT_EQ(nest.outer, (Shape{2, 3}));
  EXPECT_EQ(nest.operands[0].outer_strides, (Strides{4, 8}));
  EXPECT_EQ(nest.size(), 120);
}

TEST(LoopNest, ScalarsHaveOneElementAndEmptyShapesNone) {
  EXPECT_EQ(nest_of({}, {{}}, {{}}).size(), 1);
  EXPECT_EQ(nest_of({}, {{}}, {{}}).operands[0].access, Access::contiguous);
  EXPECT_EQ(nest_of({3, 0, 2}, {{0, 2, 1}}, {{0, 2, 1}}).size(), 0);
}

TEST(LoopNest, RefusesStridesThatDoNotFit) {
  EXPECT_THROW(nest_of({3, 2}, {{1}}, {{2, 1}}), Error);
  EXPECT_THROW(nest_of({3, 2}, {{2, 1}}, {{0, 1}}), Error);
  EXPECT_NO_THROW(nest_of({1, 2}, {{2, 1}}, {{0, 1}}));
}

}  // namespace
}  // namespace lockstep::cpu
