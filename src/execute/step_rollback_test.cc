#include "execute/step_rollback.h"

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
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::one_thread_devices;
using lockstep::testing::read;
using ::testing::ElementsAre;

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

class StepRollbackTest : public ::testing::TestWithParam<int> {
 protected:
  // Before the sum replicas add to their parts, and read what was just written to `early_`: a product of
  // matrices, which none of them computes anew in a kernel of its own.
  auto step() {
    auto workers = std::make_shared<comm::Workers>(
        std::make_unique<comm::Group>(comm::GroupOptions{.rank = 0, .size = 1}),
        std::make_unique<FailingEngine>(fails_in_), "an engine", 60);
    return function(
        [this](const Tensor& x) {
          parts_.assign_add(total(x));
          early_.assign(matmul(weight_, filled(2)));
          weight_.assign_add(all_reduce_sum(total(matmul(x, early_)) + parts_));
        },
        {.replicas = {.devices = one_thread_devices(GetParam()), .workers = workers}});
  }

  static Tensor total(const Tensor& rows) { return reduce_sum(rows, {.axis = {0}, .keepdims = true}); }
  // On the first device, which writes its variables in place.
  static Tensor filled(double value) {
    return Tensor::full(DType::float32, {1, 1}, value, *one_thread_devices(1)[0]);
  }

  const Variable parts_{filled(0), {.per_replica = true}};
  const Variable early_{filled(0)}, weight_{filled(1)};
  int fails_in_ = 0;
};

TEST_P(StepRollbackTest, UndoesWhatAStepThatFailedHasWritten) {
  auto first = step();
  const Tensor x = ones({4, 1});
  first(x);
  EXPECT_THAT(read(early_), ElementsAre(2));
  EXPECT_THAT(read(weight_), ElementsAre(1 + 4 * 2 + 4));
  fails_in_ = 2;
  EXPECT_THROW(first(x), errors::UnavailableError);
  EXPECT_THAT(read(early_), ElementsAre(2));
  EXPECT_THAT(read(weight_), ElementsAre(13));
  // With others: no device reads what the lost step has left in its mirrors, or in the parts.
  fails_in_ = 0;
  auto second = step();
  second(x);
  EXPECT_THAT(read(early_), ElementsAre(26));
  EXPECT_THAT(read(weight_), ElementsAre(13 + 4 * 26 + 8));
}

INSTANTIATE_TEST_SUITE_P(Devices, StepRollbackTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace lockstep::execute
