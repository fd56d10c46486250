#include "lockstep/keras/preprocessing.h"
#include "base/error_of_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras::utils {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Preprocessing, LabelsBecomeOneHotVectors) {
  const Tensor labels = Tensor::from<uint8_t>({2, 0}, {2, 1});
  EXPECT_EQ(to_categorical(labels).shape(), (Shape{2, 3}));
  EXPECT_THAT(to_categorical(labels).to_vector<float>(), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_EQ(to_categorical(Tensor::from<float>({1, 0, 1, 1}, {2, 2}), 4).shape(), (Shape{2, 2, 4}));
  EXPECT_THAT(error_of([&] { to_categorical(labels, 2); }).message(), HasSubstr("label 2 at position 0"));
  EXPECT_THAT(error_of([] { to_categorical(Tensor::from<int32_t>({-1}, {1})); }).message(),
              HasSubstr("label -1"));
  EXPECT_THAT(error_of([] { to_categorical(Tensor::from<float>({0.5F}, {1})); }).message(), HasSubstr("0.5"));
}

TEST(Preprocessing, VectorsAreDividedByTheirNorm) {
  const Tensor x = Tensor::from<float>({3, 4, 0, 0}, {2, 2});
  EXPECT_THAT(normalize(x).to_vector<float>(), ElementsAre(0.6F, 0.8F, 0, 0));
  EXPECT_THAT(normalize(x, 0).to_vector<float>(), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(normalize(Tensor::from<double>({1, -3}, {2}), -1, 1).to_vector<double>(),
              ElementsAre(0.25, -0.75));
  EXPECT_THAT(error_of([] { normalize(Tensor::from<int32_t>({1}, {1})); }).message(), HasSubstr("cast()"));
  EXPECT_THAT(error_of([&] { normalize(x, 0, 0); }).message(), HasSubstr("received 0"));
}

// The values of keras.utils.pad_sequences.
TEST(Preprocessing, SequencesArePaddedAndCut) {
  const std::vector<std::vector<int32_t>> sequences{{1}, {2, 3, 4}, {}};
  EXPECT_THAT(pad_sequences(sequences).to_vector<int32_t>(), ElementsAre(0, 0, 1, 2, 3, 4, 0, 0, 0));
  EXPECT_THAT(pad_sequences(sequences, {.maxlen = 2}).to_vector<int32_t>(), ElementsAre(0, 1, 3, 4, 0, 0));
  EXPECT_THAT(pad_sequences(sequences, {.maxlen = 2, .padding = "post", .truncating = "post", .value = 9})
                  .to_vector<int32_t>(),
              ElementsAre(1, 9, 2, 3, 9, 9));
  EXPECT_EQ(pad_sequences({}).shape(), (Shape{0, 0}));
  EXPECT_THAT(error_of([&] { pad_sequences(sequences, {.padding = "left"}); }).message(),
              HasSubstr("\"left\""));
}

// The values of keras.utils.timeseries_dataset_from_array.
TEST(Preprocessing, WindowsOverASeries) {
  const Tensor data = Tensor::from<int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {10});
  const auto all = timeseries_dataset_from_array(data, {}, 3, {.sequence_stride = 3, .sampling_rate = 2});
  EXPECT_EQ(all.x.shape(), (Shape{2, 3}));
  EXPECT_THAT(all.x.to_vector<int32_t>(), ElementsAre(0, 2, 4, 3, 5, 7));
  EXPECT_FALSE(all.y.defined());
  const auto part = timeseries_dataset_from_array(data, data, 2, {.start_index = 4, .end_index = 8});
  EXPECT_THAT(part.x.to_vector<int32_t>(), ElementsAre(4, 5, 5, 6, 6, 7));
  EXPECT_THAT(part.y.to_vector<int32_t>(), ElementsAre(4, 5, 6));
  const Tensor table = Tensor::from(std::vector<bool>{true, false, false, true, true, true}, {3, 2});
  const auto wide = timeseries_dataset_from_array(table, {}, 2);
  EXPECT_EQ(wide.x.shape(), (Shape{2, 2, 2}));
  EXPECT_THAT(wide.x.to_vector<bool>(), ElementsAre(true, false, false, true, false, true, true, true));
  EXPECT_EQ(timeseries_dataset_from_array(data, {}, 11).x.shape(), (Shape{0, 11}));
  EXPECT_THAT(error_of([&] { timeseries_dataset_from_array(data, {}, 0); }).message(),
              HasSubstr("at least 1"));
  EXPECT_THAT(error_of([&] { timeseries_dataset_from_array(data, {}, 2, {.end_index = 11}); }).message(),
              HasSubstr("end_index 11"));
}

TEST(Preprocessing, ShuffledWindowsKeepTheirTargets) {
  const Tensor data = Tensor::from<int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {10});
  const TimeseriesOptions options{.shuffle = true, .seed = 3};
  const auto shuffled = timeseries_dataset_from_array(data, data, 1, options);
  const auto x = shuffled.x.to_vector<int32_t>();
  EXPECT_EQ(x, shuffled.y.to_vector<int32_t>());
  EXPECT_FALSE(std::is_sorted(x.begin(), x.end()));
  EXPECT_TRUE(std::is_permutation(x.begin(), x.end(), data.to_vector<int32_t>().begin()));
  EXPECT_EQ(x, timeseries_dataset_from_array(data, {}, 1, options).x.to_vector<int32_t>());
}

TEST(Preprocessing, TheSeedIsThatOfRandomNumbers) {
  set_random_seed(5);
  const auto first = random::uniform({4}).to_vector<float>();
  set_random_seed(5);
  EXPECT_EQ(random::uniform({4}).to_vector<float>(), first);
}

}  // namespace
}  // namespace lockstep::keras::utils
