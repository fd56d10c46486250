// The compiler updates tables of which a step reads few rows without a gradient of their size.
#include "sparse_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error_of_test.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SparseTables : public ::testing::TestWithParam<TableCase> {};

TEST_P(SparseTables, HaveTheBitsOfADenseGradient) {
  const TableCase& c = GetParam();
  TrainedTable sparse(c), dense(c), eager(c);
  const auto found = sparse.train(How::sparse);
  if (c.sparse)
    EXPECT_THAT(sparse.explained(), HasSubstr("sparse_update"));
  else
    EXPECT_THAT(sparse.explained(), Not(HasSubstr("sparse_update")));
  EXPECT_EQ(found, dense.train(How::dense));
  if (!c.converted) {
    EXPECT_THAT(dense.explained(), Not(HasSubstr("sparse_update")));
  }
  EXPECT_EQ(found, eager.train(How::eager));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, SparseTables, ::testing::ValuesIn(table_cases()),
                         [](const auto& info) { return info.param.name; });

// The sum by row is what the program calls; that the compiler makes one op of it and the update is its affair.
TEST(SparseTables, RefuseARowAsTheSumByRowDoes) {
  const Variable table(Tensor::full(DType::float32, {TrainedTable::kRows, TrainedTable::kWidth}, 1));
  const uint32_t line = std::source_location::current().line() + 2;
  auto step = function([&](const Tensor& values, const Tensor& rows) {
    const Tensor sums = scatter_add(values, rows, TrainedTable::kRows);
    table.assign(table - sums);
    return reduce_sum(values);
  });
  const Tensor values = Tensor::full(DType::float32, {2, TrainedTable::kWidth}, 1);
  const Tensor good = Tensor::from(std::vector<int64_t>{0, 1}, {2}),
               bad = Tensor::from(std::vector<int64_t>{0, 70000}, {2});
  EXPECT_THAT(step.explain(values, good), HasSubstr("sparse_update"));
  const Error error = error_of([&] { step(values, bad); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("scatter_add: the index at position (1,) is 70000"));
  EXPECT_EQ(error.where().line(), line);
}

}  // namespace
}  // namespace lockstep::testing
