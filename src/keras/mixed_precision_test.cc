#include "lockstep/keras/mixed_precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::keras {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DTypePolicy, NamesTwoDtypes) {
  const DTypePolicy mixed = "mixed_bfloat16";
  EXPECT_EQ(mixed.compute_dtype(), DType::bfloat16);
  EXPECT_EQ(mixed.variable_dtype(), DType::float32);
  const DTypePolicy plain = DType::float64;
  EXPECT_EQ(plain.name(), "float64");
  EXPECT_EQ(plain.compute_dtype(), DType::float64);
  EXPECT_EQ(plain.variable_dtype(), DType::float64);
  EXPECT_EQ(plain, DTypePolicy("float64"));
}

TEST(DTypePolicy, WithoutANameStandsForTheGlobalOne) {
  const DTypePolicy policy;
  EXPECT_FALSE(policy.set());
  EXPECT_EQ(policy.name(), "float32");
  mixed_precision::set_global_policy("mixed_float16");
  EXPECT_EQ(policy.name(), "mixed_float16");
  EXPECT_EQ(policy.compute_dtype(), DType::float16);
  EXPECT_EQ(policy.variable_dtype(), DType::float32);
  mixed_precision::set_global_policy("float32");
  EXPECT_EQ(policy.compute_dtype(), DType::float32);
}

TEST(DTypePolicy, ThatDoesNotExistSaysWhatDoes) {
  const uint32_t line = __LINE__ + 2;
  try {
    const DTypePolicy none("mixed_float32");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where().line(), line);
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("mixed_float32"), HasSubstr("bfloat16"), HasSubstr("mixed_float16")));
  }
  EXPECT_THROW(DTypePolicy{DType::int32}, Error);
}

}  // namespace
}  // namespace lockstep::keras
