#include "lockstep/data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/elements_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"

namespace lockstep::data {
namespace {

TEST(Dataset, SlicesKeepTheStructureAndAreNotCopied) {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}), y = Tensor::from<int64_t>({7, 8, 9}, {3});
  const Dataset data = Dataset::from_tensor_slices(Element::dict({{"image", x}, {"label", y}}));
  EXPECT_EQ(data.cardinality(), 3);
  std::vector<float> seen;
  for (const Element& element : data) {
    seen.push_back(element["image"].tensor().to_vector<float>()[1]);
    seen.push_back(static_cast<float>(element["label"].tensor().item<int64_t>()));
  }
  EXPECT_EQ(seen, (std::vector<float>{2, 7, 4, 8, 6, 9}));
}

TEST(Dataset, ShuffledBatchesHoldEveryRowOnceAndAnotherOrderEveryPass) {
  const Dataset data = Dataset::range(100).shuffle(10, {.seed = 1}).batch(7);
  const std::vector<int64_t> first = numbers(data), second = numbers(data);
  EXPECT_NE(first, second);
  std::vector<int64_t> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, numbers(Dataset::range(100)));
}

// A process that goes on with another's pass may have begun passes of its own before: what follows is as at
// the other.
TEST(Dataset, PassesAfterARestoredOneAreThoseThatWouldHaveFollowed) {
  const auto make = [] { return Dataset::range(20).shuffle(20, {.seed = 3}); };
  const Dataset first = make(), second = make();
  Iterator iterator(first);
  Element element;
  iterator.next(element);
  const IteratorState state = iterator.save();
  for (int i = 0; i < 3; ++i) numbers(second);
  Iterator(second).restore(state);
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(numbers(second), numbers(first)) << pass;
}

TEST(Dataset, AMapDrawsTheSameNumbersOnAnyNumberOfThreads) {
  const auto noise = [](const Tensor&) {
    return random::uniform({}, {.maxval = 1000000, .dtype = DType::int64});
  };
  std::vector<std::vector<int64_t>> runs;
  for (const int64_t calls : {int64_t{1}, int64_t{2}, int64_t{5}, AUTOTUNE}) {
    random::set_seed(3);
    runs.push_back(numbers(Dataset::range(50).map(noise, {.num_parallel_calls = calls}).repeat(2)));
  }
  for (const auto& run : runs) EXPECT_EQ(run, runs[0]);
  EXPECT_NE(std::vector(runs[0].begin(), runs[0].begin() + 50),
            std::vector(runs[0].begin() + 50, runs[0].end()));
}

TEST(Dataset, WhatTheStandardLibraryThrowsIsAnError) {
  const Dataset greedy = Dataset::from_generator([]() -> Dataset::Generator { throw std::bad_alloc(); });
  EXPECT_THROW(greedy.element_spec(), Error);
  EXPECT_THROW(
      {
        Iterator iterator(greedy);
        Element element;
        iterator.next(element);
      },
      Error);
}

TEST(Dataset, AnErrorNamesTheElementAndTheNextCallGoesOn) {
  const Dataset data = Dataset::range(3).map(
      [](const Tensor& i) {
        if (i.item<int64_t>() == 1) throw std::runtime_error("one is bad");
        return i;
      },
      {.num_parallel_calls = 2});
  Iterator iterator(data);
  Element element;
  EXPECT_TRUE(iterator.next(element));
  try {
    iterator.next(element);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("one is bad"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("in element 1 of map"), std::string::npos);
  }
  EXPECT_TRUE(iterator.next(element));
  EXPECT_EQ(element.tensor().item<int64_t>(), 2);
  EXPECT_FALSE(iterator.next(element));
}

}  // namespace
}  // namespace lockstep::data
