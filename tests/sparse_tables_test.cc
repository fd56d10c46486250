// The compiler updates tables of which a step reads few rows without a gradient of their size.
#include "sparse_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SparseTables : public ::testing::TestWithParam<const char*> {};

TEST_P(SparseTables, HaveTheBitsOfADenseGradient) {
  TrainedTable sparse(GetParam()), dense(GetParam()), eager(GetParam());
  const auto found = sparse.train(How::sparse);
  EXPECT_THAT(sparse.explained(), HasSubstr("sparse_update"));
  EXPECT_EQ(found, dense.train(How::dense));
  EXPECT_THAT(dense.explained(), Not(HasSubstr("sparse_update")));
  EXPECT_EQ(found, eager.train(How::eager));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, SparseTables,
                         ::testing::Values("sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "nadam",
                                           "lion"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep::testing
