#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class File : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_file_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/file"; }
  std::string folder_;
};

TEST_F(File, AppearsWhenCommitted) {
  AtomicFile file(path());
  file.write("one ");
  EXPECT_FALSE(std::filesystem::exists(path()));
  file.write("two");
  file.commit();
  EXPECT_EQ(read_file(path()), "one two");
  EXPECT_THROW(file.commit(), Error);
}

TEST_F(File, LeavesNothingWithoutACommit) {
  { AtomicFile(path()).write("half"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(File, ReplacesAnOlderFileOnlyWhenComplete) {
  for (const char* text : {"old", "new"}) {
    AtomicFile file(path());
    file.write(text);
    file.commit();
  }
  { AtomicFile(path()).write("half"); }
  EXPECT_EQ(read_file(path()), "new");
}

TEST_F(File, ErrorsNameTheFileAndTheReason) {
  const auto expect = [&](ErrorCode code, const std::string& text, auto call) {
    try {
      call();
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.message(), HasSubstr(text));
      EXPECT_THAT(error.message(), HasSubstr(folder_));
    }
  };
  expect(ErrorCode::not_found, "No such file", [&] { InputFile file(path()); });
  expect(ErrorCode::io, "a folder", [&] { InputFile file(folder_); });
  expect(ErrorCode::not_found, "No such file", [&] { AtomicFile file(folder_ + "/missing/file"); });
  {
    AtomicFile file(path());
    file.write("abc");
    file.commit();
  }
  char buffer[8];
  expect(ErrorCode::io, "ends at byte 3, 4 bytes short", [&] { InputFile(path()).read_at(1, buffer, 6); });
}

}  // namespace
}  // namespace lockstep
