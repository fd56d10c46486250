#include "execute/early_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "comm/host_communicator.h"
#include "comm/workers.h"
#include "execute/compile_test.h"
#include "lockstep/base/errors.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::one_thread_devices;
using lockstep::testing::read;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of a process that is alone, until it loses somebody in one of its collectives.
class FailingEngine final : public comm::HostCommunicator {
 public:
  // `fails_in` is the number of the collective that fails, from 1 on; 0: none does.
  explicit FailingEngine(const int& fails_in) : HostCommunicator("an engine", 0, 1), fails_in_(fails_in) {}

  void all_reduce_sum(const void* source, void* target, int64_t count, DType dtype, Stream&) override {
    move(source, target, count * static_cast<int64_t>(size_of(dtype)));
  }
  void broadcast(const void* source, void* target, int64_t count, DType dtype, int, Stream&) override {
    move(source, target, count * static_cast<int64_t>(size_of(dtype)));
  }
  void all_gather(const void* source, void* target, int64_t count, DType dtype, Stream&) override {
    move(source, target, count * static_cast<int64_t>(size_of(dtype)));
  }
  void all_to_all(const void* source, std::span<const int64_t> bytes, void* target, std::span<const int64_t>,
                  Stream&) override {
    move(source, target, bytes[0]);
  }
  void barrier(Stream&) override {}

 private:
  void move(const void* source, void* target, int64_t bytes) {
    if (++made_ == fails_in_)
      fail(ErrorCode::io, std::source_location::current(), "the other end has closed the connection");
    if (source != target) std::memcpy(target, source, static_cast<size_t>(bytes));
  }

  const int& fails_in_;
  int made_ = 0;
};

class EarlyWritesOfSteps : public ::testing::TestWithParam<int> {
 protected:
  // Replicas add to their parts before the first sum; the counter is updated from that, and read for the second.
  auto step() {
    auto workers = std::make_shared<comm::Workers>(
        std::make_unique<comm::Group>(comm::GroupOptions{.rank = 0, .size = 1}),
        std::make_unique<FailingEngine>(fails_in_), "an engine", 60);
    return function(
        [this](const Tensor& x) {
          parts_.assign_add(reduce_sum(x, {.axis = {0}}));
          counter_.assign_add(all_reduce_sum(reduce_sum(x, {.axis = {0}})));
          weight_.assign_add(all_reduce_sum(reduce_sum(x * counter_, {.axis = {0}}) + parts_));
        },
        {.replicas = {.devices = one_thread_devices(GetParam()), .workers = workers}});
  }

  const Variable parts_{Tensor::from<float>({0}, {1}), {.per_replica = true}};
  const Variable counter_{Tensor::from<float>({0}, {1})}, weight_{Tensor::from<float>({0}, {1})};
  int fails_in_ = 0;
};

TEST_P(EarlyWritesOfSteps, OfAStepThatFailedAreUndone) {
  auto first = step();
  const Tensor x = ones({4, 1});
  first(x);
  EXPECT_THAT(read(counter_), ElementsAre(4));
  EXPECT_THAT(read(weight_), ElementsAre(4 * 4 + 4));
  fails_in_ = 4;  // the second sum of the second step
  EXPECT_THROW(first(x), errors::UnavailableError);
  EXPECT_THAT(read(counter_), ElementsAre(4));
  EXPECT_THAT(read(weight_), ElementsAre(4 * 4 + 4));
  // With others: no device reads what the lost step has left in its mirrors.
  fails_in_ = 0;
  auto second = step();
  second(x);
  EXPECT_THAT(read(counter_), ElementsAre(8));
  EXPECT_THAT(read(weight_), ElementsAre(20 + 4 * 8 + 8));
}

INSTANTIATE_TEST_SUITE_P(Devices, EarlyWritesOfSteps, ::testing::Values(1, 2));

}  // namespace
}  // namespace lockstep::execute
