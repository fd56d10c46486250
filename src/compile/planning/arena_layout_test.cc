#include "compile/planning/arena_layout.h"

#include <gtest/gtest.h>

namespace lockstep::compile {
namespace {

constexpr size_t kBytes = 256;

// A plan of calls that do nothing but read and write buffers of one size.
class ArenaLayoutTest : public ::testing::Test {
 protected:
  Operand buffer(int position, NodePlace place = {}) { return arenas_.new_buffer(kBytes, place, position); }
  void call(std::vector<Operand> inputs, std::vector<Operand> outputs) {
    const auto position = static_cast<int>(plan_.calls.size());
    for (const auto* operands : {&inputs, &outputs})
      for (const Operand& o : *operands) arenas_.used_at(o, position);
    KernelCall made;
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    if (!made.outputs.empty()) made.place.per_replica = made.outputs[0].space == Space::replica_arena;
    plan_.calls.push_back(std::move(made));
  }
  void place() { arenas_.place(plan_); }
  int64_t written(size_t call) const { return plan_.calls[call].outputs[0].offset; }
  size_t bytes() const { return plan_.device_arenas[0].bytes; }

  ArenaLayout arenas_;
  Plan plan_;
};

TEST_F(ArenaLayoutTest, MemoryIsUsedAgainBehindTheLastReader) {
  const Operand a = buffer(0), b = buffer(1), c = buffer(2);
  call({}, {a});
  call({a}, {b});
  call({b}, {c});
  place();
  EXPECT_NE(written(0), written(1));
  EXPECT_EQ(written(0), written(2));
  EXPECT_EQ(plan_.calls[1].inputs[0].offset, written(0));
  EXPECT_EQ(bytes(), 2 * kBytes);
  EXPECT_EQ(plan_.device_arenas[0].unplanned, 3 * kBytes);
}

TEST_F(ArenaLayoutTest, AnOutputMayLieOverAnInputThatNobodyReadsAnyMore) {
  const Operand a = buffer(0), b = buffer(1);
  call({}, {a});
  call({a}, {b});
  arenas_.may_overwrite(1, plan_.calls[1], a, b);
  place();
  EXPECT_EQ(written(0), written(1));
  EXPECT_EQ(bytes(), kBytes);
}

TEST_F(ArenaLayoutTest, NotOverOneThatIsReadLaterOrTwice) {
  const Operand a = buffer(0), b = buffer(1), c = buffer(2);
  call({}, {a});
  call({a, a}, {b});
  call({a}, {c});
  arenas_.may_overwrite(1, plan_.calls[1], a, b);
  place();
  EXPECT_NE(written(0), written(1));
}

TEST_F(ArenaLayoutTest, CallsThatRunTogetherShareNothing) {
  const Operand a = buffer(0), b = buffer(1), c = buffer(2);
  call({}, {a});
  call({a}, {b});
  call({}, {c});  // in a's place, were it not for the group
  arenas_.run_together(1, 3);
  place();
  EXPECT_NE(written(2), written(0));
  EXPECT_EQ(bytes(), 3 * kBytes);
}

TEST_F(ArenaLayoutTest, AValueMayBeWrittenBeforeItsCall) {
  const Operand a = buffer(0), b = buffer(1), c = buffer(2);
  arenas_.written_from(c, 0);
  call({}, {a});
  call({a}, {b});
  call({}, {c});
  place();
  EXPECT_NE(written(2), written(0));
}

TEST_F(ArenaLayoutTest, AWorkspaceLivesForOneCall) {
  const Operand a = buffer(0), b = buffer(1);
  call({}, {a});
  plan_.calls[0].workspace_bytes = kBytes;
  call({a}, {b});
  place();
  EXPECT_NE(plan_.calls[0].workspace_offset, written(0));
  EXPECT_EQ(plan_.calls[0].workspace_offset, written(1));
}

TEST_F(ArenaLayoutTest, ReplicasHaveAnArenaOfTheirOwn) {
  const Operand a = buffer(0), b = buffer(1, {.per_replica = true});
  call({}, {a});
  call({a}, {b});
  place();
  EXPECT_EQ(bytes(), kBytes);
  EXPECT_EQ(plan_.replica_arena.bytes, kBytes);
}

TEST_F(ArenaLayoutTest, OperandsOutsideOfArenasStay) {
  const Operand argument{Space::parameter, 3, 64}, result = buffer(0);
  call({argument}, {result});
  arenas_.may_overwrite(0, plan_.calls[0], argument, result);
  place();
  EXPECT_EQ(plan_.calls[0].inputs[0].index, 3);
  EXPECT_EQ(plan_.calls[0].inputs[0].offset, 64);
}

}  // namespace
}  // namespace lockstep::compile
