#include "execute/bound_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/device_backend.h"
#include "execute/asynchronous_device_test.h"
#include "execute/compile_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::AsynchronousDevice;
using lockstep::testing::counting;
using lockstep::testing::traced;
using lockstep::testing::TracedBody;

// A plan of a function of two 2 x 2 matrices, bound to memory of its own.
class Bound {
 public:
  explicit Bound(const TracedBody& body, Device& device = current_device())
      : plan_(compile::make_plan(traced({{DType::float32, {2, 2}}, {DType::float32, {2, 2}}}, body), {})),
        memory_(plan_, device),
        arena_(plan_.device_arenas[0].bytes + 64),
        moved_(arena_.size()) {
    memory_.device_arena = arena_.data();
    bound_.emplace(plan_, Part::per_device, plan_.kernels->borrow({}), memory_, LaunchPlace{0, -1});
  }

  BoundPlan& bind(const Tensor& x, const Tensor& w, Tensor& y) {
    memory_.parameters = {x.impl()->data(), w.impl()->data()};
    memory_.outputs = {y.impl()->data()};
    bound_->bind(memory_);
    return *bound_;
  }
  // The arena lies elsewhere from now on, and what is left in the old one is no number.
  void move_arena() {
    std::fill(arena_.begin(), arena_.end(), static_cast<char>(0xff));
    memory_.device_arena = moved_.data();
    bound_->rebase(memory_);
  }
  bool reads_arena() const {
    const auto in_arena = [&](const void* p) {
      return p >= arena_.data() && p < arena_.data() + arena_.size();
    };
    const auto pointers = bound_->pointers();
    return std::any_of(pointers.begin(), pointers.end(), in_arena);
  }
  BoundPlan& operator*() { return *bound_; }

 private:
  const Plan plan_;
  Memory memory_;
  std::vector<char> arena_, moved_;
  std::optional<BoundPlan> bound_;
};

TensorList two_products(const TensorList& x) { return {matmul(matmul(x[0], x[1]), x[1])}; }

TEST(BoundPlan, RunsOnThePointersThatItWasBoundToLast) {
  Bound bound(two_products);
  Stream& stream = backend_of(current_device()).compute_stream();
  const Tensor w = counting({2, 2}, 1);
  for (const float first : {0.0F, 5.0F}) {
    const Tensor x = counting({2, 2}, first);
    Tensor y = counting({2, 2});
    bound.bind(x, w, y).run(0, stream);
    EXPECT_EQ(y.to_vector<float>(), matmul(matmul(x, w), w).to_vector<float>());
  }
}

TEST(BoundPlan, FollowsAnArenaThatMoves) {
  Bound bound(two_products);
  const Tensor x = counting({2, 2}), w = counting({2, 2}, 1);
  Tensor y = counting({2, 2});
  bound.bind(x, w, y);
  ASSERT_TRUE(bound.reads_arena()) << "the first product is a temporary";
  bound.move_arena();
  EXPECT_FALSE(bound.reads_arena());
  (*bound).run(0, backend_of(current_device()).compute_stream());
  EXPECT_EQ(y.to_vector<float>(), matmul(matmul(x, w), w).to_vector<float>());
}

TEST(BoundPlan, TellsLaunchesApartByTheirPhaseAndCall) {
  Bound bound(two_products);
  EXPECT_EQ((*bound).launches_of(0), (std::pair<size_t, size_t>(0, 2)));
  EXPECT_EQ((*bound).launches_until(0), 0U);
  EXPECT_EQ((*bound).launches_until(1), 1U);
  EXPECT_EQ((*bound).launches_until(2), 2U);
  EXPECT_EQ((*bound).work().kernels, 2);
  EXPECT_EQ((*bound).work().flops, 2 * 2 * 2 * 2 * 2);
  EXPECT_EQ((*bound).work().half_flops, 0);
}

TEST(BoundPlan, SaysWhichOfItsPointersMayChange) {
  Bound bound(two_products);
  const Tensor x = counting({2, 2}), w = counting({2, 2}, 1);
  Tensor y = counting({2, 2});
  const BoundPlan& plan = bound.bind(x, w, y);
  const std::vector<void*> pointers(plan.bound_pointers().begin(), plan.bound_pointers().end());
  EXPECT_EQ(std::count(pointers.begin(), pointers.end(), x.impl()->data()), 1);
  EXPECT_EQ(std::count(pointers.begin(), pointers.end(), w.impl()->data()), 2) << "both products read it";
  EXPECT_EQ(std::count(pointers.begin(), pointers.end(), y.impl()->data()), 1);
  EXPECT_EQ(pointers.size(), 4U) << "the temporary stays where it is";
}

TEST(BoundPlan, IsCapturedOnDevicesThatCaptureGraphs) {
  Bound on_cpu(two_products);
  EXPECT_FALSE((*on_cpu).capturable());
  Device device(std::make_unique<AsynchronousDevice>(96));
  Bound elsewhere(two_products, device);
  EXPECT_TRUE((*elsewhere).capturable());
}

TEST(BoundPlan, LaunchesOfACapturedGraphWaitForThoseWhoseMemoryTheyShare) {
  Device device(std::make_unique<AsynchronousDevice>(97));
  Bound bound(
      [](const TensorList& x) {
        return TensorList{reshape(reduce_sum(x[0], 0), {2, 1}) + reduce_sum(x[1], 0)};
      },
      device);
  const Tensor x = counting({2, 2}), w = counting({2, 2}, 1);
  Tensor y = counting({2, 2});
  const BoundPlan& plan = bound.bind(x, w, y);
  const std::vector<CapturedLaunch> launches = plan.captured_launches(0);
  ASSERT_EQ(launches.size(), 3U);
  EXPECT_TRUE(launches[0].after.empty());
  EXPECT_TRUE(launches[1].after.empty()) << "neither sum needs the other";
  EXPECT_EQ(launches[2].after.size(), 2U);

  const std::vector<CapturedLaunch> in_a_row = plan.captured_launches(0, {}, 1);
  ASSERT_EQ(in_a_row.size(), 3U);
  EXPECT_EQ(in_a_row[1].after, std::vector<size_t>{0}) << "there is one branch";
}

}  // namespace
}  // namespace lockstep::execute
