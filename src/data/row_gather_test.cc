#include "data/row_gather.h"

#include <gtest/gtest.h>

#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

const void* memory(const Tensor& tensor) { return tensor.impl()->data(); }

TEST(RowGather, CopiesRowsFromAnywhereInEveryArray) {
  const Tensor wide = reshape(range(3000, DType::int32), {100, 30}), labels = range(100, DType::int64);
  const std::vector<int64_t> rows{99, 0, 7, 7, 50};
  for (const int threads : {1, 3}) {
    RowGather gather;
    TensorList batch;
    gather.claim({wide, labels}, rows, batch);
    gather.copy(threads);
    ASSERT_EQ(batch.size(), 2U);
    EXPECT_EQ(batch[1].to_vector<int64_t>(), rows);
    const std::vector<int32_t> values = batch[0].to_vector<int32_t>();
    ASSERT_EQ(batch[0].shape(), (Shape{5, 30}));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(values[i], static_cast<int32_t>(rows[i / 30]) * 30 + static_cast<int32_t>(i % 30));
  }
}

// Shorter than a line of the cache, lines that are whole, with an end, and a single row.
TEST(RowGather, CopiesRowsOfAnyLength) {
  for (const int64_t bytes : {1, 63, 64, 65, 192, 1000})
    for (const size_t count : {1U, 5U, 40U}) {
      const Tensor rows = cast(reshape(range(50 * bytes, DType::int64), {50, bytes}), DType::uint8);
      std::vector<int64_t> chosen;
      for (size_t i = 0; i < count; ++i) chosen.push_back(static_cast<int64_t>(i * 37 % 50));
      RowGather gather;
      TensorList batch;
      gather.claim({rows}, chosen, batch);
      gather.copy(2);
      const std::vector<uint8_t> copied = batch[0].to_vector<uint8_t>();
      for (size_t i = 0; i < copied.size(); ++i) {
        const int64_t row = chosen[i / static_cast<size_t>(bytes)], column = static_cast<int64_t>(i) % bytes;
        ASSERT_EQ(copied[i], static_cast<uint8_t>(row * bytes + column)) << bytes << " bytes, row " << row;
      }
    }
}

TEST(RowGather, TakesTheBatchsMemoryWhereItFitsAndNobodyElseHoldsIt) {
  const TensorList arrays{range(100, DType::int64)};
  const std::vector<int64_t> three{1, 2, 3}, two{4, 5};
  RowGather gather;
  TensorList batch;
  gather.claim(arrays, three, batch);
  const void* first = memory(batch[0]);
  gather.claim(arrays, three, batch);
  EXPECT_EQ(memory(batch[0]), first);
  gather.claim(arrays, two, batch);
  EXPECT_EQ(batch[0].shape(), (Shape{2})) << "another size";
  gather.copy(1);
  const Tensor held = batch[0];
  gather.claim(arrays, two, batch);
  EXPECT_NE(memory(batch[0]), memory(held));
  EXPECT_EQ(held.to_vector<int64_t>(), two);
}

}  // namespace
}  // namespace lockstep::data
