#include "execute/graph_replay.h"

#include <gtest/gtest.h>

#include "execute/asynchronous_device_test.h"
#include "execute/compile_test.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::AsynchronousDevice;
using lockstep::testing::counting;
using lockstep::testing::traced;

// relu(x w) of a matrix x on a device that captures graphs.
class Replay : public ::testing::Test {
 protected:
  Replay() : plan_(compile::make_plan(graph(), {})), memory_(plan_, device_) {
    arena_.resize(plan_.device_arenas[0].bytes + 64);
    memory_.device_arena = arena_.data();
    bound_.emplace(plan_, Part::per_device, plan_.kernels->borrow({}), memory_, LaunchPlace{0, -1});
  }

  static Graph graph() {
    return traced({{DType::float32, {2, 2}}, {DType::float32, {2, 2}}},
                  [](const TensorList& x) { return TensorList{matmul(relu(x[0]), x[1])}; });
  }
  // Runs with these arguments, and checks the result.
  void run(const Tensor& x, const Tensor& w, Tensor& y) {
    memory_.parameters = {x.impl()->data(), w.impl()->data()};
    memory_.outputs = {y.impl()->data()};
    bound_->bind(memory_);
    replay_.run(*bound_, 0, backend_.compute_stream());
    EXPECT_EQ(y.to_vector<float>(), matmul(relu(x), w).to_vector<float>());
  }

  Device device_{std::make_unique<AsynchronousDevice>(95)};
  AsynchronousDevice& backend_ = static_cast<AsynchronousDevice&>(backend_of(device_));
  const Plan plan_;
  Memory memory_;
  std::vector<char> arena_;
  std::optional<BoundPlan> bound_;
  GraphReplay replay_;
};

TEST_F(Replay, BeginsWhenPointersComeBack) {
  const Tensor x = counting({2, 2}, -1), w = counting({2, 2}, 3);
  Tensor y = counting({2, 2}), other = counting({2, 2});
  run(x, w, y);
  EXPECT_EQ(backend_.captured, 0) << "they may never come back";
  run(x, w, y);
  EXPECT_EQ(backend_.captured, 1);
  run(x, w, other);
  EXPECT_EQ(backend_.captured, 1) << "other pointers make other launches";
  run(x, w, y);
  EXPECT_EQ(backend_.captured, 1);
  EXPECT_EQ(backend_.replays, 2);
  run(x, w, other);
  EXPECT_EQ(backend_.captured, 2);
}

TEST_F(Replay, ForgetsPointersThatHaveNotBeenUsedForLongest) {
  const Tensor x = counting({2, 2}), w = counting({2, 2}, 3);
  Tensor first = counting({2, 2});
  for (int i = 0; i < 2; ++i) run(x, w, first);
  EXPECT_EQ(backend_.captured, 1);
  TensorList others;
  for (int i = 0; i < 8; ++i) run(x, w, others.emplace_back(counting({2, 2})));
  run(x, w, first);
  EXPECT_EQ(backend_.replays, 1) << "its graph is gone";
  run(x, w, first);
  EXPECT_EQ(backend_.captured, 2);
}

TEST_F(Replay, LetsGoOfItsGraphs) {
  const Tensor x = counting({2, 2}), w = counting({2, 2}, 3);
  Tensor y = counting({2, 2});
  for (int i = 0; i < 2; ++i) run(x, w, y);
  replay_.clear();
  for (int i = 0; i < 2; ++i) run(x, w, y);
  EXPECT_EQ(backend_.captured, 2);
}

// Told on the stream, with every replay.
class CountingMark final : public LaunchMark {
 public:
  void reach(Stream&) override { ++reached; }
  int reached = 0;
};

TEST_F(Replay, ReachesMarksInTheMidstOfItsLaunches) {
  const Tensor x = counting({2, 2}), w = counting({2, 2}, 3);
  Tensor y = counting({2, 2});
  memory_.parameters = {x.impl()->data(), w.impl()->data()};
  memory_.outputs = {y.impl()->data()};
  bound_->bind(memory_);
  CountingMark early, late;
  const PhaseSync::Mark marks[] = {{1, &early}, {100, &late}};
  for (int i = 1; i <= 4; ++i) {
    replay_.run(*bound_, 0, backend_.compute_stream(), {.waits = {}, .marks = marks});
    EXPECT_EQ(early.reached, i);
    EXPECT_EQ(late.reached, i);
  }
  EXPECT_EQ(backend_.captured, 1);
}

}  // namespace
}  // namespace lockstep::execute
