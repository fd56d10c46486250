#include "lockstep/graph/variable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error_of_test.h"
#include "device/cpu_device.h"
#include "graph/variable_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor pair(float a, float b) { return Tensor::from<float>({a, b}, {2}); }
std::vector<float> read(const Variable& v) { return v.value().to_vector<float>(); }

TEST(Variables, HaveANameASpecAndAPlace) {
  const uint32_t line = std::source_location::current().line() + 1;
  const Variable v(pair(1, 2), {.name = "kernel", .trainable = false});
  EXPECT_TRUE(v.defined());
  EXPECT_EQ(v.name(), "kernel");
  EXPECT_FALSE(v.trainable());
  EXPECT_EQ(v.spec(), (TensorSpec{DType::float32, {2}}));
  EXPECT_EQ(v.where().line(), line);
  const Variable plain(pair(1, 2));
  EXPECT_EQ(plain.name(), "Variable");
  EXPECT_TRUE(plain.trainable());
}

TEST(Variables, AreHandles) {
  const Variable v(pair(1, 2));
  const Variable other(pair(1, 2));
  Variable copy(pair(5, 6));
  copy = v;
  EXPECT_EQ(copy.id(), v.id());
  EXPECT_NE(other.id(), v.id());
  copy.assign(pair(3, 4));
  EXPECT_THAT(read(v), ElementsAre(3, 4));
  EXPECT_THAT(read(other), ElementsAre(1, 2));
}

TEST(Variables, DefaultConstructedOnesNameNothing) {
  const Variable none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(error_of([&] { none.value(); }).code(), ErrorCode::failed_precondition);
  EXPECT_THROW(none.assign(pair(1, 2)), Error);
  EXPECT_THROW(none.name(), Error);
  EXPECT_THROW(none + 1.0, Error);
}

TEST(Variables, AreMadeFromTensorsThatHaveElements) {
  const Error error = error_of([] { const Variable v(Tensor(), {.name = "w"}); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), HasSubstr("\"w\""));
}

TEST(Variables, OwnAContiguousCopyOfWhatTheyAreMadeFrom) {
  const Tensor matrix = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Variable v(transpose(matrix));
  EXPECT_THAT(v.value().data<float>(), ElementsAre(1, 3, 2, 4));
  EXPECT_NE(v.value().impl()->storage, matrix.impl()->storage);
}

TEST(Variables, TakeOverWhatIsHandedToThemAlone) {
  Tensor given = pair(1, 2);
  const void* memory = given.impl()->data();
  const Variable v(std::move(given));
  EXPECT_EQ(v.impl()->mutable_data(true), memory);
  Tensor shared = pair(3, 4);
  const Tensor other = shared;
  const Variable w(std::move(shared));
  EXPECT_NE(w.impl()->mutable_data(true), other.impl()->data());
  w.assign(pair(5, 6));
  EXPECT_THAT(other.to_vector<float>(), ElementsAre(3, 4));
  // A view holds memory that is another tensor's.
  const Tensor whole = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Variable x(reshape(whole, {4}));
  EXPECT_THAT(read(x), ElementsAre(1, 2, 3, 4));
}

TEST(Variables, TakeOverMemoryAndNothingElse) {
  Tensor masked = pair(1, 2);
  masked.impl()->mask = pair(1, 0).impl();
  const uint64_t id = masked.impl()->id;
  const Variable v(std::move(masked));
  EXPECT_EQ(v.value().impl()->mask, nullptr);
  EXPECT_NE(v.value().impl()->id, id);
  // A part of what nobody holds any more would keep all of it.
  Tensor row = [] {
    const Tensor whole = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
    return make_view(*whole.impl(), {DType::float32, {2}}, {1}, 2);
  }();
  const Variable w(std::move(row));
  EXPECT_THAT(read(w), ElementsAre(3, 4));
  EXPECT_EQ(w.value().impl()->storage->bytes(), 2 * sizeof(float));
}

TEST(Variables, WhatWasReadKeepsItsValue) {
  const Variable v(pair(1, 2));
  const Tensor before = v.value();
  v.assign(pair(3, 4));
  const Tensor between = v.value();
  v.assign_add(pair(10, 10));
  EXPECT_THAT(before.to_vector<float>(), ElementsAre(1, 2));
  EXPECT_THAT(between.to_vector<float>(), ElementsAre(3, 4));
  EXPECT_THAT(read(v), ElementsAre(13, 14));
  v.assign_sub(pair(1, 2));
  EXPECT_THAT(read(v), ElementsAre(12, 12));
}

TEST(Variables, WritingMovesToNewMemoryOnlyWhileOthersHoldTheOld) {
  const Variable v(pair(1, 2));
  void* first = v.impl()->mutable_data(true);
  EXPECT_EQ(v.impl()->mutable_data(true), first) << "nobody else holds it";
  {
    const Tensor held = v.value();
    EXPECT_NE(v.impl()->mutable_data(true), first);
    EXPECT_THAT(held.to_vector<float>(), ElementsAre(1, 2));
  }
  EXPECT_THAT(read(v), ElementsAre(1, 2)) << "the elements moved along";
  // A view holds the memory as well.
  void* second = v.impl()->mutable_data(true);
  const Tensor view = reshape(v, {2, 1});
  EXPECT_NE(v.impl()->mutable_data(true), second);
}

TEST(Variables, VersionsTellWritesApart) {
  const Variable v(pair(1, 2));
  const uint64_t first = v.impl()->version;
  read(v);
  EXPECT_EQ(v.impl()->version, first);
  v.assign(pair(1, 2));
  EXPECT_NE(v.impl()->version, first);
}

TEST(Variables, AssignmentsMustFit) {
  const Variable v(pair(1, 2), {.name = "bias"});
  const uint32_t line = std::source_location::current().line() + 1;
  const Error shape = error_of([&] { v.assign(zeros({3})); });
  EXPECT_EQ(shape.code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(shape.message(), AllOf(HasSubstr("assign"), HasSubstr("\"bias\""), HasSubstr("float32(2,)"),
                                     HasSubstr("float32(3,)")));
  EXPECT_EQ(shape.where().line(), line);
  const Error dtype = error_of([&] { v.assign(zeros({2}, DType::float64)); });
  EXPECT_EQ(dtype.code(), ErrorCode::dtype_mismatch);
  EXPECT_THAT(dtype.message(), AllOf(HasSubstr("float32(2,)"), HasSubstr("float64(2,)")));
  EXPECT_THROW(v.assign(Tensor()), Error);
  EXPECT_THROW(v.assign_add(zeros({2, 2})), Error) << "a sum that is larger does not fit either";
  EXPECT_THAT(read(v), ElementsAre(1, 2));
}

TEST(Variables, StayOnTheirDeviceAndContiguous) {
  static auto* far = new Device(std::make_unique<CpuDevice>(60, 1));
  const Variable v(Tensor::from<float>({1, 2, 3, 4}, {2, 2}).to(*far));
  EXPECT_EQ(&v.value().device(), far);
  v.assign(transpose(Tensor::from<float>({5, 6, 7, 8}, {2, 2})));
  EXPECT_EQ(&v.value().device(), far);
  EXPECT_THAT(v.value().data<float>(), ElementsAre(5, 7, 6, 8));
}

TEST(Variables, AssignSharesMemoryUntilTheNextWrite) {
  const Variable a(pair(1, 2)), b(pair(3, 4));
  const Tensor value = pair(5, 6);
  a.assign(value);
  b.assign(value);
  EXPECT_EQ(a.value().impl()->storage, value.impl()->storage);
  static_cast<float*>(a.impl()->mutable_data(true))[0] = 100;
  EXPECT_THAT(read(b), ElementsAre(5, 6));
  EXPECT_THAT(value.to_vector<float>(), ElementsAre(5, 6));
  EXPECT_THAT(read(a), ElementsAre(100, 6));
}

TEST(Variables, AVariableAssignedToItselfStays) {
  const Variable v(pair(1, 2));
  v.assign(v.value());
  EXPECT_THAT(read(v), ElementsAre(1, 2));
  v.impl()->mutable_data(true);
  EXPECT_THAT(read(v), ElementsAre(1, 2));
}

TEST(Variables, EveryDtypeAndEmptyOnes) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16, DType::int32,
                            DType::int64, DType::uint8, DType::boolean}) {
    const Variable v(Tensor::full(dtype, {3}, 1));
    v.assign(Tensor::full(dtype, {3}, 0));
    EXPECT_EQ(v.value().to_string(), Tensor::full(dtype, {3}, 0).to_string());
    const Variable empty(Tensor::full(dtype, {0, 4}, 1));
    empty.assign(Tensor::full(dtype, {0, 4}, 0));
    EXPECT_EQ(empty.shape(), Shape({0, 4}));
  }
}

}  // namespace
}  // namespace lockstep
