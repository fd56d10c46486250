#include "data/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

class TFRecord : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::vector<std::string> read(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    RecordReader reader(path_);
    std::vector<std::string> records;
    while (auto record = reader.next()) records.push_back(std::move(*record));
    return records;
  }
  std::string error(const std::string& bytes) const {
    try {
      read(bytes);
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr(path_));
      return error.message();
    }
    return "no error";
  }

  std::string path_ = testing::TempDir() + "lockstep_tfrecord_" + std::to_string(getpid());
};

// As TensorFlow writes the record "abc".
TEST_F(TFRecord, BytesAreThoseOfTheFormat) {
  const std::string expected(
      "\x03\0\0\0\0\0\0\0"
      "\xb0\x99\x49\x0e"
      "abc"
      "\x6e\x57\xf1\x21",
      19);
  EXPECT_EQ(testing::PrintToString(frame_record("abc")), testing::PrintToString(expected));
}

TEST_F(TFRecord, RecordsAreReadAsWritten) {
  const std::vector<std::string> records{"one", "", std::string(100'000, 'x'), std::string("\0\n", 2)};
  std::string bytes;
  for (const std::string& record : records) bytes += frame_record(record);
  EXPECT_EQ(read(bytes), records);
  EXPECT_TRUE(read("").empty());
}

TEST_F(TFRecord, EveryTruncationAndEveryChangedByteIsNoticed) {
  const std::string bytes = frame_record("first") + frame_record("second");
  for (size_t length = 1; length < bytes.size(); ++length) {
    if (length == frame_record("first").size()) continue;
    EXPECT_THAT(error(bytes.substr(0, length)), HasSubstr("truncated")) << length;
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_THAT(error(changed), HasSubstr("checksum")) << i;
  }
}

}  // namespace
}  // namespace lockstep::data
