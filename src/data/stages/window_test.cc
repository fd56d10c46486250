#include <gtest/gtest.h>

#include "data/elements_test.h"
#include "lockstep/ops/array.h"

namespace lockstep::data {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

Dataset together(const Dataset& window) { return window.batch(100); }

// As TensorFlow's Dataset.window gives them.
TEST(Window, HasSizeShiftAndStride) {
  const struct {
    int64_t elements, size;
    WindowOptions options;
    Lists expected;
  } cases[] = {
      {10, 3, {}, {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9}}},
      {5, 3, {.shift = 1}, {{0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}, {4}}},
      {10, 3, {.shift = 2, .stride = 2}, {{0, 2, 4}, {2, 4, 6}, {4, 6, 8}, {6, 8}, {8}}},
      {10, 3, {.shift = 4}, {{0, 1, 2}, {4, 5, 6}, {8, 9}}},
      {7, 3, {.shift = 5, .stride = 2}, {{0, 2, 4}, {5}}},
      {10, 3, {.drop_remainder = true}, {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}},
      {10, 3, {.shift = 2, .stride = 2, .drop_remainder = true}, {{0, 2, 4}, {2, 4, 6}, {4, 6, 8}}},
      {2, 3, {.drop_remainder = true}, {}},
  };
  for (const auto& [elements, size, options, expected] : cases)
    EXPECT_EQ(lists(Dataset::range(elements).window(size, together, options)), expected)
        << elements << ", " << size << ", " << options.shift << ", " << options.stride;
  EXPECT_THROW(Dataset::range(3).window(0, together), Error);
  EXPECT_THROW(Dataset::range(3).window(2, together, {.stride = 0}), Error);
}

TEST(GroupByWindow, GivesFullWindowsAndWhatIsLeftByKey) {
  const auto key = [](const Element& element) { return number(element) * 2 % 3 - 1; };
  const Dataset grouped = Dataset::range(11).group_by_window(
      key, [](int64_t, const Dataset& window) { return window.batch(10); }, 3);
  EXPECT_EQ(lists(grouped), (Lists{{0, 3, 6}, {1, 4, 7}, {2, 5, 8}, {9}, {10}}));
  const Dataset halves =
      Dataset::range(8).group_by_window([](const Element& element) { return number(element) % 2; },
                                        [](int64_t, const Dataset& window) { return window.batch(2); }, 3);
  EXPECT_EQ(lists(halves), (Lists{{0, 2}, {4}, {1, 3}, {5}, {6}, {7}}));
  EXPECT_THROW(Dataset::range(3).group_by_window(key, {}, 0), Error);
}

Dataset of_lengths(const std::vector<int64_t>& all) {
  const auto sequence = [](const Tensor& length) {
    return Tensor::full(DType::int64, {length.item<int64_t>()}, static_cast<double>(length.item<int64_t>()));
  };
  return Dataset::from_tensor_slices(Tensor::from<int64_t>(all, {static_cast<int64_t>(all.size())}))
      .map(sequence, {.output = ElementSpec{{}, {{DType::int64, {-1}}}}});
}
int64_t length(const Element& element) { return element.tensor().shape()[0]; }

std::vector<Shape> shapes(const Dataset& dataset) {
  std::vector<Shape> all;
  for (const Element& element : dataset) all.push_back(element.tensor().shape());
  return all;
}

TEST(BucketBySequenceLength, PadsToTheLongestOrToTheBoundary) {
  const Dataset data = of_lengths({1, 9, 10, 11, 19, 20, 25, 5});
  EXPECT_EQ(shapes(data.bucket_by_sequence_length(length, {10, 20}, {2, 2, 2})),
            (std::vector<Shape>{{2, 9}, {2, 11}, {2, 25}, {1, 5}, {1, 19}}));
  EXPECT_EQ(shapes(data.bucket_by_sequence_length(length, {10, 20}, {2, 2, 2}, {.drop_remainder = true})),
            (std::vector<Shape>{{2, 9}, {2, 11}, {2, 25}}));
  const BucketOptions to_boundary{.padding_values = {-1}, .pad_to_bucket_boundary = true};
  const Dataset bounded =
      of_lengths({1, 9, 10, 11, 19, 5}).bucket_by_sequence_length(length, {10, 20}, {2, 2, 2}, to_boundary);
  EXPECT_EQ(shapes(bounded), (std::vector<Shape>{{2, 9}, {2, 19}, {1, 9}, {1, 19}}));
  EXPECT_EQ(lists(bounded)[0][1], -1);
  // There is no bucket for it.
  EXPECT_THROW(numbers(of_lengths({20}).bucket_by_sequence_length(length, {10, 20}, {2, 2, 2}, to_boundary)),
               Error);
  EXPECT_THROW(data.bucket_by_sequence_length(length, {10, 10}, {2, 2, 2}), Error);
  EXPECT_THROW(data.bucket_by_sequence_length(length, {10, 20}, {2, 2}), Error);
}

}  // namespace
}  // namespace lockstep::data
