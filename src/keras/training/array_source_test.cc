#include "keras/training/array_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor numbers(int64_t n) { return range(n, DType::int64); }

TEST(ArraySource, KeepsXAndYAndWeightsApartAndTogether) {
  const Data data(TensorList{numbers(50), numbers(50)}, TensorList{Tensor(), numbers(50)},
                  TensorList{Tensor(), numbers(50)});
  for (const bool shuffle : {false, true}) {
    const auto reader = data.source()->read({.batch_size = 20, .shuffle = shuffle});
    Batch batch;
    std::vector<int64_t> sizes;
    while (reader->next(batch)) {
      ASSERT_EQ(batch.x.size(), 2U);
      ASSERT_EQ(batch.y.size(), 2U);
      ASSERT_EQ(batch.sample_weight.size(), 2U);
      EXPECT_FALSE(batch.y[0].defined());
      EXPECT_FALSE(batch.sample_weight[0].defined());
      const std::vector<int64_t> x = batch.x[0].to_vector<int64_t>();
      for (const Tensor& other : {batch.x[1], batch.y[1], batch.sample_weight[1]})
        EXPECT_EQ(other.to_vector<int64_t>(), x);
      sizes.push_back(examples_in(batch));
    }
    EXPECT_EQ(sizes, (std::vector<int64_t>{20, 20, 10}));
  }
}

TEST(ArraySource, ReadsIntoTheMemoryOfTheBatchBefore) {
  const Data data(numbers(60), numbers(60));
  const auto reader = data.source()->read({.batch_size = 20, .shuffle = true});
  Batch batch;
  ASSERT_TRUE(reader->next(batch));
  const void* x = batch.x[0].impl()->data();
  const void* y = batch.y[0].impl()->data();
  ASSERT_TRUE(reader->next(batch));
  EXPECT_EQ(batch.x[0].impl()->data(), x);
  EXPECT_EQ(batch.y[0].impl()->data(), y);
  batch.y.clear();
  ASSERT_TRUE(reader->next(batch)) << "a batch that somebody took apart";
  EXPECT_EQ(batch.y[0].to_vector<int64_t>(), batch.x[0].to_vector<int64_t>());
}

TEST(ArraySource, RefusesArraysThatDoNotFitEachOther) {
  const auto refusal = [](auto make) { return lockstep::testing::error_of(make).message(); };
  EXPECT_THAT(refusal([] { Data(numbers(5), numbers(6)); }),
              AllOf(HasSubstr("one number of examples"), HasSubstr("(5,)"), HasSubstr("(6,)")));
  EXPECT_THAT(refusal([] { Data(Tensor::scalar(1.0F)); }), HasSubstr("received a scalar"));
  EXPECT_THAT(refusal([] { Data(numbers(0)); }), HasSubstr("no examples"));
  EXPECT_THAT(refusal([] { Data(TensorList{numbers(5), Tensor()}); }), HasSubstr("x[1] is undefined"));
}

TEST(SplitOff, GivesTheLastRowsOfAllArrays) {
  const auto [train, validation] =
      split_off({.x = {numbers(10)}, .y = {numbers(10)}, .sample_weight = {Tensor(), numbers(10)}}, 0.25);
  EXPECT_EQ(train.x[0].to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  for (const Tensor& part : {validation.x[0], validation.y[0], validation.sample_weight[1]})
    EXPECT_EQ(part.to_vector<int64_t>(), (std::vector<int64_t>{7, 8, 9}));
  EXPECT_FALSE(validation.sample_weight[0].defined());
  EXPECT_THROW(split_off({.x = {numbers(10)}}, 1.0), Error);
  EXPECT_THROW(split_off({.x = {numbers(10)}}, 0.0), Error) << "nothing is left to validate on";
  EXPECT_THROW(split_off({.x = {numbers(10)}, .y = {numbers(9)}}, 0.5), Error);
}

TEST(ClassWeight, MultipliesTheWeightsOfABatch) {
  const Tensor y = Tensor::from<int64_t>({0, 1, 2, 1}, {4});
  const Batch once = with_class_weight({.x = {numbers(4)}, .y = {y}}, {{1, 3.0}});
  EXPECT_EQ(once.sample_weight[0].to_vector<float>(), (std::vector<float>{1, 3, 1, 3}));
  const Batch twice = with_class_weight(once, {{1, 2.0}, {2, 0.5}});
  EXPECT_EQ(twice.sample_weight[0].to_vector<float>(), (std::vector<float>{1, 6, 0.5, 6}));
}

}  // namespace
}  // namespace lockstep::keras
