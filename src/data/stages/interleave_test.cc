#include <gtest/gtest.h>

#include "data/elements_test.h"

namespace lockstep::data {
namespace {

// From i: 10 i, 10 i + 1, ..., i of them.
Dataset counted(const Tensor& i) {
  const auto count = i.item<int64_t>();
  return Dataset::range(10 * count, 11 * count);
}

// As TensorFlow's Dataset.interleave gives them.
TEST(Interleave, GivesTheOrderOfTheCycle) {
  using Numbers = std::vector<int64_t>;
  const struct {
    int64_t cycle, block;
    Numbers expected;
  } cases[] = {
      {1, 1, {10, 20, 21, 30, 31, 32, 40, 41, 42, 43, 50, 51, 52, 53, 54}},
      {2, 1, {10, 20, 21, 30, 31, 40, 32, 41, 42, 50, 43, 51, 52, 53, 54}},
      {3, 1, {10, 20, 30, 21, 31, 40, 32, 41, 50, 42, 51, 43, 52, 53, 54}},
      {3, 2, {10, 20, 21, 30, 31, 40, 41, 32, 42, 43, 50, 51, 52, 53, 54}},
      {2, 3, {10, 20, 21, 30, 31, 32, 40, 41, 42, 43, 50, 51, 52, 53, 54}},
      {8, 1, {10, 20, 30, 40, 50, 21, 31, 41, 51, 32, 42, 52, 43, 53, 54}},
  };
  for (const auto& [cycle, block, expected] : cases)
    for (const int64_t calls : {int64_t{1}, int64_t{2}, AUTOTUNE})
      EXPECT_EQ(numbers(Dataset::range(1, 6).interleave(
                    counted, {.cycle_length = cycle, .block_length = block, .num_parallel_calls = calls})),
                expected)
          << cycle << ", " << block << ", " << calls;
  const Dataset uneven = Dataset::from_tensor_slices(Tensor::from<int64_t>({3, 0, 1, 0, 4, 2}, {6}));
  for (const int64_t calls : {1, 3}) {
    EXPECT_EQ(numbers(uneven.interleave(counted, {.cycle_length = 2, .num_parallel_calls = calls})),
              (Numbers{30, 31, 10, 32, 40, 20, 41, 21, 42, 43}));
    EXPECT_EQ(numbers(uneven.interleave(counted,
                                        {.cycle_length = 3, .block_length = 2, .num_parallel_calls = calls})),
              (Numbers{30, 31, 10, 32, 40, 41, 20, 21, 42, 43}));
  }
}

TEST(Interleave, RefusesWhatMakesNoSense) {
  const Dataset data = Dataset::range(3);
  EXPECT_THROW(data.interleave(counted, {.cycle_length = 0}), Error);
  EXPECT_THROW(data.interleave(counted, {.block_length = 0}), Error);
  EXPECT_THROW(data.interleave(counted, {.num_parallel_calls = 0}), Error);
  EXPECT_THROW(numbers(data.flat_map([](const Tensor&) { return Dataset(); })), Error);
}

// Every dataset that is open has threads and buffers of its own; they are all gone in time.
TEST(Interleave, NestsStagesWithThreads) {
  const Dataset data = Dataset::range(20).interleave(
      [](const Tensor& i) {
        const auto start = i.item<int64_t>();
        return Dataset::range(start, start + 30)
            .interleave([](const Tensor& j) { return Dataset::from_tensors(j).prefetch(1); },
                        {.cycle_length = 3, .num_parallel_calls = 2})
            .prefetch(2);
      },
      {.cycle_length = 5, .block_length = 4, .num_parallel_calls = 4});
  EXPECT_EQ(numbers(data).size(), 600U);
  EXPECT_EQ(numbers(data.take(77)).size(), 77U);
}

}  // namespace
}  // namespace lockstep::data
