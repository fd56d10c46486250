#include <gtest/gtest.h>

#include "data/elements_test.h"

namespace lockstep::data {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

TEST(Rebatch, CutsAndJoins) {
  EXPECT_EQ(lists(Dataset::range(7).batch(3).rebatch(2)), (Lists{{0, 1}, {2, 3}, {4, 5}, {6}}));
  EXPECT_EQ(lists(Dataset::range(7).batch(2).rebatch(5, true)), (Lists{{0, 1, 2, 3, 4}}));
  const Dataset whole = Dataset::range(12).batch(4, {.drop_remainder = true}).rebatch(3);
  EXPECT_EQ(whole.cardinality(), 4);
  EXPECT_EQ(whole.element_spec().tensors[0].shape, Shape({3}));
  EXPECT_EQ(Dataset::range(7).batch(3).rebatch(2).cardinality(), UNKNOWN_CARDINALITY);
  EXPECT_THROW(numbers(Dataset::range(3).rebatch(2)), Error);
}

// A batch that is large enough is cut without a copy.
TEST(Rebatch, GivesViews) {
  const Tensor batch = Tensor::from<int64_t>({1, 2, 3, 4}, {4});
  Iterator iterator(Dataset::from_tensors(batch).rebatch(2));
  EXPECT_EQ(iterator.next()->tensor().data<int64_t>().data(), batch.data<int64_t>().data());
  EXPECT_EQ(iterator.next()->tensor().data<int64_t>().data(), batch.data<int64_t>().data() + 2);
}

TEST(Rebatch, RefusesToJoinWhatDiffersAndGoesOn) {
  const Dataset data = Dataset::range(1, 4).map([](const Tensor& i) {
    return Tensor::full(DType::int64, {1, i.item<int64_t>() == 2 ? 5 : 2}, 0);
  });
  Iterator iterator(data.rebatch(2));
  EXPECT_THROW(iterator.next(), Error);
  EXPECT_EQ(iterator.next()->tensor().shape(), Shape({2, 2}));
  EXPECT_FALSE(iterator.next());
}

TEST(Unbatch, GivesRowsWithoutCopies) {
  const Tensor batch = Tensor::from<int64_t>({1, 2, 3, 4}, {2, 2});
  Iterator iterator(Dataset::from_tensors({batch, batch}).unbatch());
  EXPECT_EQ((*iterator.next())[1].tensor().data<int64_t>().data(), batch.data<int64_t>().data());
  EXPECT_EQ(Dataset::range(6).batch(3, {.drop_remainder = true}).unbatch().cardinality(), 6);
  EXPECT_EQ(lists(Dataset::range(5).batch(2).unbatch().batch(5)), (Lists{{0, 1, 2, 3, 4}}));
  EXPECT_THROW(numbers(Dataset::range(3).unbatch()), Error);
}

Dataset ragged() {
  return Dataset::range(1, 5).map([](const Tensor& i) {
    return Tensor::full(DType::int64, {i.item<int64_t>()}, static_cast<double>(i.item<int64_t>()));
  });
}

TEST(PaddedBatch, PadsToTheLongestOrToWhatIsAskedFor) {
  EXPECT_EQ(lists(ragged().padded_batch(2)), (Lists{{1, 0, 2, 2}, {3, 3, 3, 0, 4, 4, 4, 4}}));
  EXPECT_EQ(
      lists(ragged().padded_batch(3, {.padded_shapes = {{6}}, .padding_values = {-1}})),
      (Lists{{1, -1, -1, -1, -1, -1, 2, 2, -1, -1, -1, -1, 3, 3, 3, -1, -1, -1}, {4, 4, 4, 4, -1, -1}}));
  EXPECT_EQ(lists(ragged().padded_batch(3, {.drop_remainder = true})).size(), 1U);
}

TEST(PaddedBatch, NamesWhatDoesNotFit) {
  const auto expect = [](const Dataset& data, const char* message) {
    try {
      numbers(data);
      FAIL() << message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  expect(ragged().padded_batch(3, {.padded_shapes = {{2}}}), "larger than the padded shape (2,)");
  expect(ragged().padded_batch(3, {.padded_shapes = {{2, 2}}}), "another rank");
  expect(ragged().padded_batch(3, {.padded_shapes = {{2}, {2}}}), "one padded shape a tensor");
  expect(ragged().padded_batch(3, {.padding_values = {1, 2}}), "one padding value a tensor");
}

}  // namespace
}  // namespace lockstep::data
