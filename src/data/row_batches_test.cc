#include "data/row_batches.h"

#include <gtest/gtest.h>

#include <memory>

#include "device/host_memory_device_test.h"
#include "lockstep/ops/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// Rows of this many bytes, of which each holds its number, and the numbers. Batches of 64 KiB or more are
// prefetched.
TensorList arrays(int64_t rows, int64_t row_bytes = 8) {
  const int64_t width = row_bytes / 8;
  std::vector<int64_t> wide, numbers;
  for (int64_t i = 0; i < rows; ++i) {
    wide.insert(wide.end(), static_cast<size_t>(width), i);
    numbers.push_back(i);
  }
  return {Tensor::from(wide, {rows, width}), Tensor::from(numbers, {rows})};
}

std::vector<int64_t> numbers_in(const TensorList& batch) {
  std::vector<int64_t> numbers = batch[1].to_vector<int64_t>();
  const std::vector<int64_t> wide = batch[0].to_vector<int64_t>();
  const size_t width = wide.size() / numbers.size();
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(wide[i], numbers[i / width]);
  return numbers;
}

std::vector<std::vector<int64_t>> all_of(RowBatches& batches) {
  std::vector<std::vector<int64_t>> all;
  for (TensorList batch; batches.next(batch);) all.push_back(numbers_in(batch));
  return all;
}

std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// What a GPU would make of the same seed: the op has the same results on every device.
TEST(RowBatches, AreShuffledInTheOrderOfAPermutation) {
  random::set_seed(5);
  const std::vector<int64_t> order = random::permutation(1000).to_vector<int64_t>();
  for (const int64_t row_bytes : {int64_t{8}, int64_t{512}}) {
    for (const int free_threads : {0, 1}) {
      random::set_seed(5);
      const auto batches = RowBatches::open(
          arrays(1000, row_bytes), {.batch_size = 300, .shuffle = true, .free_threads = free_threads});
      const auto seen = all_of(*batches);
      EXPECT_EQ(joined(seen), order);
      ASSERT_EQ(seen.size(), 4U);
      EXPECT_EQ(seen[3].size(), 100U);
      EXPECT_FALSE(batches->runs(10).has_value()) << "runs are for arrays on a GPU";
      TensorList batch;
      EXPECT_FALSE(batches->next(batch)) << "the end stays the end";
    }
  }
}

TEST(RowBatches, InOrderAreViews) {
  const TensorList source = arrays(10);
  const auto batches = RowBatches::open(source, {.batch_size = 4});
  TensorList batch;
  std::vector<std::vector<int64_t>> seen;
  for (int64_t row = 0; batches->next(batch); row += 4) {
    seen.push_back(numbers_in(batch));
    EXPECT_EQ(batch[1].impl()->data(), static_cast<const int64_t*>(source[1].impl()->data()) + row);
  }
  EXPECT_EQ(seen, (std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
}

TEST(RowBatches, SkippedOnesAreNotGivenAndTheOthersAreTheSame) {
  for (const bool shuffle : {false, true}) {
    for (const int free_threads : {0, 1}) {
      const RowBatchOptions options{.batch_size = 64, .shuffle = shuffle, .free_threads = free_threads};
      const auto open = [&] {
        random::set_seed(7);
        return RowBatches::open(arrays(500, 2048), options);
      };
      const auto expected = all_of(*open());
      ASSERT_EQ(expected.size(), 8U);
      for (const size_t first : {size_t{0}, size_t{1}, size_t{3}}) {
        const auto batches = open();
        TensorList batch;
        for (size_t i = 0; i < first; ++i) ASSERT_TRUE(batches->next(batch));
        batches->skip(2);
        for (size_t i = first + 2; i < expected.size(); ++i) {
          ASSERT_TRUE(batches->next(batch));
          EXPECT_EQ(numbers_in(batch), expected[i]) << "after " << first << " and two that were skipped";
        }
        EXPECT_FALSE(batches->next(batch));
      }
      const auto batches = open();
      TensorList batch;
      batches->skip(8);
      EXPECT_FALSE(batches->next(batch)) << "the last one is smaller";
    }
  }
}

TEST(RowBatches, UseTheMemoryOfTheBatchAgainUnlessSomebodyHoldsIt) {
  const auto batches = RowBatches::open(arrays(400), {.batch_size = 100, .shuffle = true});
  TensorList batch;
  ASSERT_TRUE(batches->next(batch));
  const void* first = batch[1].impl()->data();
  ASSERT_TRUE(batches->next(batch));
  EXPECT_EQ(batch[1].impl()->data(), first);
  const Tensor held = batch[1];
  const std::vector<int64_t> values = held.to_vector<int64_t>();
  ASSERT_TRUE(batches->next(batch));
  EXPECT_EQ(held.to_vector<int64_t>(), values);
}

TEST(RowBatches, OnAGpuAreRunsOfOneSize) {
  // Without kernels, in host memory: enough for what is not computed there.
  static Device gpu(std::make_unique<testing::HostMemoryDevice>(DeviceKind::gpu, 0, 1));
  TensorList source;
  for (const Tensor& array : arrays(10)) source.push_back(array.to(gpu));
  const auto batches = RowBatches::open(source, {.batch_size = 4});
  const auto expect = [&](int64_t most, int64_t first, int64_t rows, int64_t runs) {
    const std::optional<FunctionCore::RowRuns> found = batches->runs(most);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->arrays.size(), 2U);
    EXPECT_EQ(&found->arrays[0].device(), &gpu);
    EXPECT_FALSE(found->order.defined());
    EXPECT_EQ(found->first, first);
    EXPECT_EQ(found->rows, rows);
    EXPECT_EQ(found->runs, runs);
  };
  expect(64, 0, 4, 2);
  expect(1, 0, 4, 1);
  EXPECT_FALSE(batches->runs(0).has_value());
  batches->skip(1);
  expect(64, 4, 4, 1);
  TensorList batch;
  ASSERT_TRUE(batches->next(batch));
  EXPECT_EQ(&batch[1].device(), &gpu);
  EXPECT_EQ(batch[1].to_vector<int64_t>(), (std::vector<int64_t>{4, 5, 6, 7}));
  expect(64, 8, 2, 1);
  batches->skip(1);
  EXPECT_FALSE(batches->runs(64).has_value());
}

}  // namespace
}  // namespace lockstep::data
