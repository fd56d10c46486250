#include <gtest/gtest.h>

#include <algorithm>

#include "data/elements_test.h"

namespace lockstep::data {
namespace {

using Numbers = std::vector<int64_t>;

std::vector<Dataset> three() {
  return {Dataset::range(0, 3), Dataset::range(10, 12), Dataset::range(20, 24)};
}
Dataset choices(const Numbers& all) {
  return Dataset::from_tensor_slices(Tensor::from<int64_t>(all, {static_cast<int64_t>(all.size())}));
}

// As TensorFlow does it.
TEST(ChooseFromDatasets, StopsOrGoesOnWhereOneHasEnded) {
  const Dataset choice = choices({0, 1, 2, 1, 1, 0, 2, 2, 0, 0, 2, 2, 2});
  EXPECT_EQ(numbers(Dataset::choose_from_datasets(three(), choice, true)), (Numbers{0, 10, 20, 11}));
  EXPECT_EQ(numbers(Dataset::choose_from_datasets(three(), choice, false)),
            (Numbers{0, 10, 20, 11, 1, 21, 22, 2, 23}));
  Iterator wrong(Dataset::choose_from_datasets(three(), choices({3, 1})));
  EXPECT_THROW(wrong.next(), Error);
  EXPECT_EQ(number(*wrong.next()), 10);
}

TEST(SampleFromDatasets, DrawsByWeightAndToTheEnd) {
  Numbers all = numbers(Dataset::sample_from_datasets(three(), {.seed = 1}));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (Numbers{0, 1, 2, 10, 11, 20, 21, 22, 23}));
  Numbers two = numbers(Dataset::sample_from_datasets(three(), {.weights = {0.5, 0, 0.5}, .seed = 1}));
  std::sort(two.begin(), two.end());
  EXPECT_EQ(two, (Numbers{0, 1, 2, 20, 21, 22, 23}));
  const Dataset weighted = Dataset::sample_from_datasets(
      {Dataset::range(1).repeat(), Dataset::range(1, 2).repeat()}, {.weights = {3, 1}, .seed = 5});
  EXPECT_EQ(weighted.cardinality(), INFINITE_CARDINALITY);
  const Numbers drawn = numbers(weighted.take(4000));
  // Four standard deviations about the mean.
  EXPECT_NEAR(static_cast<double>(std::count(drawn.begin(), drawn.end(), 1)), 1000, 110);
  const Numbers stopped = numbers(Dataset::sample_from_datasets({Dataset::range(2), Dataset::range(500)},
                                                                {.seed = 1, .stop_on_empty_dataset = true}));
  EXPECT_LT(stopped.size(), 100U);
  EXPECT_THROW(Dataset::sample_from_datasets(three(), {.weights = {1, 2}}), Error);
  EXPECT_THROW(Dataset::sample_from_datasets(three(), {.weights = {0, 0, 0}}), Error);
  EXPECT_THROW(Dataset::sample_from_datasets({}), Error);
}

TEST(Zip, StaysTogetherWhereOneFails) {
  const auto fails_at_1 = [](const Tensor& i) {
    if (i.item<int64_t>() == 1) throw std::runtime_error("bad");
    return i;
  };
  Iterator iterator(Dataset::zip({Dataset::range(3).map(fails_at_1), Dataset::range(10, 20)}));
  EXPECT_EQ(number((*iterator.next())[1]), 10);
  EXPECT_THROW(iterator.next(), Error);
  const Element third = *iterator.next();
  EXPECT_EQ(number(third[0]), 2);
  EXPECT_EQ(number(third[1]), 12);
  EXPECT_FALSE(iterator.next());
}

TEST(Concatenate, ChecksKindsAndMergesShapes) {
  const Dataset pairs = Dataset::from_tensor_slices(Tensor::from<int64_t>({1, 2, 3, 4}, {2, 2}));
  const Dataset threes = Dataset::from_tensor_slices(Tensor::from<int64_t>({1, 2, 3}, {1, 3}));
  const Dataset both = pairs.concatenate(threes);
  EXPECT_EQ(both.element_spec().tensors[0].shape, Shape({-1}));
  EXPECT_EQ(both.cardinality(), 3);
  EXPECT_EQ(Dataset::range(3).concatenate(Dataset::range(2).repeat()).cardinality(), INFINITE_CARDINALITY);
  EXPECT_THROW(pairs.concatenate(Dataset::from_tensors(Tensor::from<float>({1, 2}, {2}))), Error);
  EXPECT_THROW(pairs.concatenate(Dataset()), Error);
}

}  // namespace
}  // namespace lockstep::data
