#include "execute/replicated_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/device/config.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::execute {
namespace {

using compile::Spread;
using lockstep::testing::counting;
using lockstep::testing::error_of;
using lockstep::testing::Floats;
using lockstep::testing::one_thread_devices;
using lockstep::testing::read;
using lockstep::testing::traced;
using lockstep::testing::TracedBody;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A function of one argument, of which every replica has some of the rows.
class ReplicatedProgramTest : public ::testing::Test {
 protected:
  ReplicatedProgram compiled(int64_t rows, const ReplicaOptions& replicas, const TracedBody& body,
                             bool stacks_outputs = false) {
    traced_rows_.clear();
    const auto trace = [&](const SpecList& specs, const ReplicaTrace& replica) {
      traced_rows_.push_back(specs[0].shape[0]);
      return traced(specs, body, replica);
    };
    return compile_replicated({{DType::float32, {rows, 2}}}, {true}, replicas, {rows}, trace,
                              {.name = "step", .stacks_outputs = stacks_outputs}, {});
  }
  static ReplicaOptions on(int devices) { return {.devices = one_thread_devices(devices)}; }

  std::vector<int64_t> traced_rows_;  // of the slice that each trace was made for
};

TEST_F(ReplicatedProgramTest, IsTracedOncePerSizeOfSlice) {
  const ReplicatedProgram program =
      compiled(7, on(3), [](const TensorList& x) { return TensorList{x[0] * 2.0}; });
  EXPECT_THAT(traced_rows_, ElementsAre(3, 1)) << "the second replica has as many rows as the first";
  ASSERT_EQ(program.slices.size(), 3U);
  EXPECT_EQ(program.slices[2].begin, 6);
  EXPECT_EQ(program.slices[2].size, 1);
  Tensor y;
  const Tensor x = counting({7, 2});
  program.executable->run(std::span(&x, 1), std::span(&y, 1), nullptr);
  EXPECT_EQ(read(y), read(x * 2.0));
}

TEST_F(ReplicatedProgramTest, IsNotTracedForEmptySlices) {
  const ReplicatedProgram program =
      compiled(1, on(2), [](const TensorList& x) { return TensorList{x[0] * 2.0}; });
  EXPECT_THAT(traced_rows_, ElementsAre(1));
  EXPECT_EQ(program.slices[1].size, 0);
}

TEST_F(ReplicatedProgramTest, SaysHowItsResultsAreSpread) {
  const auto results = [](const TensorList& x) {
    return TensorList{x[0] * 2.0, reduce_sum(x[0]), all_reduce_sum(reduce_sum(x[0]))};
  };
  EXPECT_THAT(compiled(4, on(2), results, true).spreads,
              ElementsAre(Spread::rows, Spread::blocks, Spread::same));
  const Error error = error_of([&] { (void)compiled(4, on(2), results); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition) << "nobody asked for a block per replica";
}

TEST_F(ReplicatedProgramTest, OfOneReplicaSumsWithNobody) {
  const auto sum = [](const TensorList& x) { return TensorList{all_reduce_sum(reduce_sum(x[0], {0}))}; };
  const ReplicatedProgram alone = compiled(4, on(1), sum), shared = compiled(4, on(2), sum);
  EXPECT_TRUE(alone.executable->plan().collectives.empty());
  EXPECT_EQ(alone.executable->plan().phases, 1);
  EXPECT_EQ(shared.executable->plan().collectives.size(), 1U);
  const Tensor x = counting({4, 2});
  for (const ReplicatedProgram* program : {&alone, &shared}) {
    Tensor total;
    program->executable->run(std::span(&x, 1), std::span(&total, 1), nullptr);
    EXPECT_EQ(read(total), (Floats{0 + 2 + 4 + 6, 1 + 3 + 5 + 7}));
  }
}

TEST_F(ReplicatedProgramTest, CountsCallsPerReplicaAndPerDevice) {
  const Variable variable(Tensor::full(DType::float32, {2}, 3, *one_thread_devices(1)[0]));
  const auto both = [&](const TensorList& x) { return TensorList{x[0] * 2.0, variable.value() * 2.0}; };
  const ProgramStatistics two = compiled(8, on(2), both).statistics;
  const ProgramStatistics four = compiled(8, on(4), both).statistics;
  EXPECT_EQ(two.flops, 8 * 2 + 2 * 2) << "rows are cut, what comes of variables is computed on every device";
  EXPECT_EQ(four.flops, 8 * 2 + 4 * 2);
  EXPECT_EQ(two.launches, 2 + 2);
  EXPECT_EQ(four.launches, 4 + 4);
}

TEST_F(ReplicatedProgramTest, ReproducibleOnesNeedOpDeterminism) {
  ReplicaOptions replicas = on(1);
  replicas.reproducible = true;
  const auto twice = [](const TensorList& x) { return TensorList{x[0] * 2.0}; };
  EXPECT_EQ(compiled(8, replicas, twice).slices.size(), 8U) << "virtual replicas";
  config::enable_op_determinism(false);
  const Error error = error_of([&] { (void)compiled(8, replicas, twice); });
  config::enable_op_determinism(true);
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.what(), HasSubstr("enable_op_determinism(false)"));
}

TEST(RowsOfStep, AreThoseOfTheArgumentsThatAreCut) {
  const auto rows = [](const SpecList& signature, const std::vector<bool>& split) {
    return rows_of_step(signature, split, {.devices = one_thread_devices(2)}, {}, "step", {});
  };
  const TensorSpec x{DType::float32, {6, 2}}, y{DType::int32, {6}}, scalar{DType::float32, {}};
  EXPECT_THAT(rows({x, y, scalar}, {true, true, false}), ElementsAre(6));
  const Error different = error_of([&] { (void)rows({x, {DType::int32, {5}}}, {true, true}); });
  EXPECT_EQ(different.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(different.what(), HasSubstr("argument 1"));
  const Error none = error_of([&] { (void)rows({scalar}, {false}); });
  EXPECT_EQ(none.code(), ErrorCode::invalid_argument);
}

TEST(FirstSlice, IsWhatAFunctionIsTracedWith) {
  const ReplicaSlices first = first_slice({{DType::float32, {7, 2}}, {DType::float32, {}}}, {true, false},
                                          {.devices = one_thread_devices(3)}, {7}, "step", {});
  EXPECT_EQ(first.specs[0].shape, Shape({3, 2}));
  EXPECT_EQ(first.specs[1].shape, Shape());
  EXPECT_EQ(first.replica.local_batch, 3);
  EXPECT_EQ(first.replica.global_batch, 7);
  EXPECT_THAT(first.replica.begins, ElementsAre(0, 3, 6));
}

TEST(ReplicatedLayout, RefusesWhatNoStepCanBeCutInto) {
  const auto refused = [](const ReplicaOptions& replicas, int64_t rows) {
    return error_of([&] {
      (void)first_slice({{DType::float32, {rows, 2}}}, {true}, replicas, {rows}, "step", {});
    });
  };
  const std::vector<Device*> two = one_thread_devices(2);
  EXPECT_THAT(refused({.devices = two}, 0).what(), HasSubstr("at least one example"));
  EXPECT_THAT(refused({.devices = two, .reproducible = true, .virtual_replicas = 1}, 4).what(),
              HasSubstr("fewer than its 2 devices"));
  EXPECT_THAT(refused({.devices = two, .reproducible = true, .weights = {1, 2}}, 4).what(),
              HasSubstr("cannot be weighted"));
}

}  // namespace
}  // namespace lockstep::execute
