#include "base/protobuf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error_of_test.h"
#include "lockstep/base/error.h"

namespace lockstep::protobuf {
namespace {

using ::testing::HasSubstr;

// The examples of the format's documentation: 150 in field 1, "testing" in field 2.
TEST(Protobuf, BytesAreThoseOfTheFormat) {
  EXPECT_EQ(Writer().integer(1, 150).text(), "\x08\x96\x01");
  EXPECT_EQ(Writer().bytes(2, "testing").text(), "\x12\x07testing");
  EXPECT_EQ(Writer().message(3, Writer().integer(1, 150)).text(), "\x1a\x03\x08\x96\x01");
  EXPECT_EQ(Writer().integer(1, -2).text(), "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

TEST(Protobuf, FieldsAreReadAsWritten) {
  const std::string text =
      Writer().integer(1, -5).real(2, 0.1).real(3, 0.5F).bytes(1000, "abc").integer(5, true).text();
  Reader reader(text);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 1);
  EXPECT_EQ(static_cast<int64_t>(reader.integer()), -5);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.real64(), 0.1);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.real32(), 0.5F);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 1000);
  EXPECT_EQ(reader.bytes(), "abc");
  EXPECT_THAT(error_of([&] { reader.integer(); }).message(),
              HasSubstr("field 1000 has the wire type 2 where 0"));
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.integer(), 1U);
  EXPECT_FALSE(reader.next());
}

TEST(Protobuf, WhatIsNoMessageIsRefused) {
  const auto read = [](std::string_view text) {
    return error_of([&] {
             for (Reader reader(text); reader.next();) {
             }
           })
        .message();
  };
  EXPECT_THAT(read("\x12\x07test"), HasSubstr("7 bytes where only 4 are left"));
  EXPECT_THAT(read("\x08"), HasSubstr("ends inside of a number"));
  EXPECT_THAT(read("\x0b"), HasSubstr("wire type 3"));
  EXPECT_THAT(read(std::string_view("\0\0", 2)), HasSubstr("no field 0"));
  EXPECT_THAT(read("\x08" + std::string(11, '\xff')), HasSubstr("ten bytes"));
}

}  // namespace
}  // namespace lockstep::protobuf
