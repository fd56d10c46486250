#include "lockstep/keras/find_batch_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/keras/layers.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {
namespace {

using ::testing::HasSubstr;

Tensor filled(const Shape& shape, double value) { return Tensor::full(DType::float32, shape, value); }

class FindBatchSize : public ::testing::Test {
 protected:
  FindBatchSize()
      : model_(std::vector<Layer>{layers::Dense(16, {.activation = "relu", .input_shape = {8}}),
                                  layers::Dropout(0.1), layers::Dense(1)}) {
    model_.compile({.optimizer = "adam", .loss = "mse", .metrics = {"mae"}});
  }
  BatchSizes find(FindBatchSizeOptions options) const {
    options.seconds = 1e-3;
    return find_batch_size(model_, {filled({5, 8}, 0.5), filled({5, 1}, 1)}, options);
  }
  Sequential model_;
};

TEST_F(FindBatchSize, ReportsWhatItMeasured) {
  ::testing::internal::CaptureStdout();
  // Every doubling is worth it: all sizes are measured.
  const BatchSizes sizes = find({.smallest = 2, .most = 40, .least_growth = -1});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  ASSERT_EQ(sizes.table.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sizes.table[i].batch, 2 << i);
    EXPECT_GT(sizes.table[i].examples_per_second, 0);
    EXPECT_GT(sizes.table[i].bytes, i == 0 ? 0 : sizes.table[i - 1].bytes);
  }
  EXPECT_EQ(sizes.fastest, 32);
  EXPECT_EQ(sizes.largest, 40) << "there is memory for more, but no more was asked for";
}

TEST_F(FindBatchSize, StopsMeasuringWhereThroughputStopsGrowing) {
  // A growth that no machine has.
  const BatchSizes sizes = find({.smallest = 4, .most = 64, .least_growth = 1e6});
  EXPECT_EQ(sizes.fastest, 4);
  EXPECT_EQ(sizes.table.size(), 2U);
  EXPECT_EQ(sizes.largest, 64) << "how much fits is known from the plans";
}

TEST_F(FindBatchSize, KeepsWithinTheLimit) {
  const BatchSizes all = find({.smallest = 8, .most = 1024, .least_growth = -1});
  const auto& row = all.table[3];  // 64
  const BatchSizes limited = find({.memory_limit = row.bytes, .smallest = 8, .least_growth = -1});
  EXPECT_GE(limited.largest, row.batch);
  EXPECT_LT(limited.largest, 2 * row.batch);
  EXPECT_LE(limited.table.back().batch, limited.largest);
  const BatchSizes between = find({.memory_limit = (row.bytes + all.table[4].bytes) / 2, .smallest = 8});
  EXPECT_GT(between.largest, row.batch);
  EXPECT_LT(between.largest, all.table[4].batch);
  EXPECT_THAT(lockstep::testing::error_of([&] { find({.memory_limit = 100}); }).message(),
              HasSubstr("a batch of 1 needs"));
}

TEST_F(FindBatchSize, LeavesTheModelAsItWas) {
  set_random_seed(4);
  const int64_t random = random::default_generator().state().value().item<int64_t>();
  const std::vector<float> before = model_.get_weights()[0].to_vector<float>();
  find({.most = 16});
  EXPECT_EQ(model_.get_weights()[0].to_vector<float>(), before);
  EXPECT_EQ(model_.optimizer().iterations().value().item<int64_t>(), 0);
  EXPECT_EQ(random::default_generator().state().value().item<int64_t>(), random);
}

TEST_F(FindBatchSize, SaysWhatItNeeds) {
  const Sequential plain({layers::Dense(1, {.input_shape = {8}})});
  EXPECT_THAT(lockstep::testing::error_of([&] {
                find_batch_size(plain, {filled({5, 8}, 0), filled({5, 1}, 0)});
              }).message(),
              HasSubstr("call compile() first"));
  EXPECT_THAT(lockstep::testing::error_of([&] { find({.smallest = 0}); }).message(), HasSubstr("received 0"));
}

}  // namespace
}  // namespace lockstep::keras
