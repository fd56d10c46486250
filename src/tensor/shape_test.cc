#include "lockstep/tensor/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string text(const auto& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(Dims, PositionsCountFromBothEnds) {
  Dims d = {2, 3, 4};
  EXPECT_EQ(d.rank(), 3);
  EXPECT_EQ(d[0], 2);
  EXPECT_EQ(d[-1], 4);
  EXPECT_EQ(d[-3], 2);
  d[-2] = 7;
  EXPECT_EQ(d, (Dims{2, 7, 4}));
  EXPECT_THROW(static_cast<void>(d[3]), Error);
  EXPECT_THROW(static_cast<void>(d[-4]), Error);
}

TEST(Dims, InsertEraseAndLimit) {
  Dims d = {2, 4};
  d.insert(1, 3);
  d.insert(0, 1);
  d.push_back(5);
  EXPECT_EQ(d, (Dims{1, 2, 3, 4, 5}));
  d.erase(0);
  d.erase(3);
  EXPECT_EQ(d, (Dims{2, 3, 4}));
  EXPECT_EQ(Dims::filled(3, 1), (Dims{1, 1, 1}));
  EXPECT_THROW((Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}), Error);
  Dims full = Dims::filled(kMaxRank, 1);
  EXPECT_THROW(full.push_back(1), Error);
}

TEST(Dims, Text) {
  EXPECT_EQ(text(Dims{}), "()");
  EXPECT_EQ(text(Dims{5}), "(5,)");
  EXPECT_EQ(text(Dims{2, -3}), "(2, -3)");
  EXPECT_EQ(text(TensorSpec{DType::float32, {2, 3}}), "float32(2, 3)");
}

TEST(Shape, SizeAndParts) {
  EXPECT_EQ(Shape{}.size(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).size(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).size(), 0);
  EXPECT_EQ((Shape{int64_t{1} << 40, int64_t{1} << 40}).size(), INT64_MAX);
  EXPECT_EQ((Shape{int64_t{1} << 40, int64_t{1} << 40, 0}).size(), 0);
  EXPECT_EQ((Shape{2, 3, 4}).first(2), (Shape{2, 3}));
  EXPECT_EQ((Shape{2, 3, 4}).drop_last(2), Shape{2});
  EXPECT_EQ((TensorSpec{DType::int64, {2, 3}}).bytes(), 48u);
}

TEST(Strides, Contiguous) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Strides{});
  EXPECT_TRUE(is_contiguous({2, 3}, {3, 1}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_TRUE(is_contiguous({1, 3}, {77, 1}));  // a single element has no next one
  EXPECT_TRUE(is_contiguous({3, 0}, {5, 5}));
  EXPECT_FALSE(is_contiguous({2, 3}, {0, 1}));
}

TEST(Broadcast, NumpysRules) {
  EXPECT_EQ(broadcast({2, 3}, {3}, "add"), (Shape{2, 3}));
  EXPECT_EQ(broadcast({2, 1, 4}, {5, 1}, "add"), (Shape{2, 5, 4}));
  EXPECT_EQ(broadcast({}, {2}, "add"), (Shape{2}));
  EXPECT_EQ(broadcast({1}, {0}, "add"), (Shape{0}));
  try {
    broadcast({2, 3}, {4}, "add");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::shape_mismatch);
    EXPECT_THAT(e.message(), HasSubstr("add"));
    EXPECT_THAT(e.message(), HasSubstr("(2, 3) and (4,)"));
  }
}

TEST(Broadcast, StridesReadTheSmallerAsTheLarger) {
  EXPECT_EQ(broadcast_strides({3, 1}, {1, 1}, {2, 3, 4}), (Strides{0, 1, 0}));
  EXPECT_EQ(broadcast_strides({3}, {2}, {5, 3}), (Strides{0, 2}));
}

TEST(NormalizeAxis, NegativeAxesAndErrors) {
  EXPECT_EQ(normalize_axis(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_axis(0, 1, "sum"), 0);
  EXPECT_THROW(normalize_axis(3, 3, "sum"), Error);
  EXPECT_THROW(normalize_axis(-4, 3, "sum"), Error);
  EXPECT_THROW(normalize_axis(0, 0, "sum"), Error);
}

}  // namespace
}  // namespace lockstep
