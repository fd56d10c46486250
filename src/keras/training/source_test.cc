#include "keras/training/source.h"

#include <gtest/gtest.h>

#include "lockstep/ops/array.h"
#include "lockstep/ops/random.h"

namespace lockstep::keras {
namespace {

// What a GPU would make of the same seed: the op has the same results on every device.
TEST(ShuffledRows, AreInTheOrderOfAPermutation) {
  const Tensor numbers = range(1000, DType::int64);
  const Data data(numbers, numbers);
  set_random_seed(5);
  const std::vector<int64_t> order = random::permutation(1000).to_vector<int64_t>();
  for (const int free_threads : {0, 1}) {
    set_random_seed(5);
    const auto reader =
        data.source()->read({.batch_size = 300, .shuffle = true, .free_threads = free_threads});
    std::vector<int64_t> seen;
    std::vector<int64_t> sizes;
    Batch batch;
    while (reader->next(batch)) {
      const std::vector<int64_t> x = batch.x[0].to_vector<int64_t>();
      EXPECT_EQ(batch.y[0].to_vector<int64_t>(), x);
      seen.insert(seen.end(), x.begin(), x.end());
      sizes.push_back(static_cast<int64_t>(x.size()));
    }
    EXPECT_EQ(seen, order);
    EXPECT_EQ(sizes, (std::vector<int64_t>{300, 300, 300, 100}));
    EXPECT_FALSE(reader->as_rows(10).has_value()) << "rows are for arrays on a GPU";
  }
}

}  // namespace
}  // namespace lockstep::keras
