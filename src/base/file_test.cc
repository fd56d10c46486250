#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

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
  expect(ErrorCode::io, "it is a folder", [&] { AtomicFile file(folder_); });
  symlink("loop", (folder_ + "/loop").c_str());
  expect(ErrorCode::io, "Too many levels", [&] { read_file(folder_ + "/loop"); });
  expect(ErrorCode::io, "Too many levels", [&] { AtomicFile file(folder_ + "/loop"); });
  expect(ErrorCode::io, "Too many levels", [&] { make_folders(folder_ + "/loop/inner"); });
  const std::string long_name = folder_ + "/" + std::string(300, 'x');
  expect(ErrorCode::io, "too long", [&] { read_file(long_name); });
  expect(ErrorCode::io, "too long", [&] { AtomicFile file(long_name); });
  expect(ErrorCode::io, "Not a directory", [&] { read_file(path() + "/inner"); });
  expect(ErrorCode::io, "a file where a folder is needed", [&] { make_folders(path()); });
  expect(ErrorCode::invalid_argument, "NUL", [&] { read_file(path() + std::string("\0x", 2)); });
}

TEST_F(File, WhatHasNoEndIsNotRead) {
  ASSERT_EQ(mkfifo(path().c_str(), 0666), 0);
  for (const std::string& name : {path(), std::string("/dev/zero")}) try {
      read_file(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr(name == path() ? "it is a pipe" : "it is a device"));
    }
}

TEST_F(File, WhatIsNoFileIsWrittenToAndNotReplaced) {
  ASSERT_EQ(mkfifo(path().c_str(), 0666), 0);
  std::string got;
  std::thread reader(
      [&] { got = std::string(std::istreambuf_iterator<char>(std::ifstream(path()).rdbuf()), {}); });
  {
    AtomicFile file(path());
    file.write("through the pipe");
    file.commit();
  }
  reader.join();
  EXPECT_EQ(got, "through the pipe");
  EXPECT_TRUE(std::filesystem::is_fifo(path()));
  // A device that takes nothing says so, and stays one.
  const std::string full = folder_ + "/full";
  symlink("/dev/full", full.c_str());
  AtomicFile file(full);
  EXPECT_THROW(file.write("x"), Error);
  EXPECT_TRUE(std::filesystem::is_character_file(full));
}

TEST_F(File, ALinkIsFollowedToItsFile) {
  std::filesystem::create_directories(folder_ + "/far");
  std::ofstream(folder_ + "/far/real") << "old";
  symlink("far/real", path().c_str());
  AtomicFile file(path());
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(path()));
  EXPECT_EQ(read_file(folder_ + "/far/real"), "new");
}

TEST_F(File, DraftsHaveNamesOfTheirOwnAndFollowNoLink) {
  const std::string draft = draft_name(path());
  symlink((folder_ + "/victim").c_str(), draft.c_str());
  EXPECT_LT(create_draft(draft), 0);
  AtomicFile one(path()), two(path());
  one.write("one");
  two.write("two");
  two.commit();
  one.commit();
  EXPECT_EQ(read_file(path()), "one");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/victim"));
  // A name of the greatest length that a file may have leaves no room for an ending.
  AtomicFile longest(folder_ + "/" + std::string(255, 'x'));
  longest.write("all of it");
  longest.commit();
  EXPECT_EQ(read_file(folder_ + "/" + std::string(255, 'x')), "all of it");
}

TEST_F(File, DraftsThatNobodyWritesAreRemoved) {
  std::ofstream(path() + ".tmp-1-7") << "left behind";
  std::ofstream(path() + ".tmp-mine") << "no draft";
  AtomicFile live(path());
  live.write("still being written");
  remove_stale_drafts(folder_);
  EXPECT_FALSE(std::filesystem::exists(path() + ".tmp-1-7"));
  EXPECT_TRUE(std::filesystem::exists(path() + ".tmp-mine"));
  std::ofstream(path() + ".tmp-1-7") << "left behind";
  std::ofstream(path() + "s.tmp-1-7") << "of another file";
  remove_stale_drafts_of(path());
  EXPECT_FALSE(std::filesystem::exists(path() + ".tmp-1-7"));
  EXPECT_TRUE(std::filesystem::exists(path() + "s.tmp-1-7"));
  live.commit();
  EXPECT_EQ(read_file(path()), "still being written");
}

TEST_F(File, AGrowingFileGoesBackToAnEarlierSize) {
  {
    GrowingFile file(path());
    file.write("one\n");
    const int64_t size = file.size();
    file.write("two\n");
    file.cut(size);
    file.write("three\n");
  }
  EXPECT_EQ(read_file(path()), "one\nthree\n");
  GrowingFile again(path());
  again.write("four\n");
  EXPECT_EQ(read_file(path()), "one\nthree\nfour\n");
  GrowingFile device("/dev/null");
  device.write("x");
  device.cut(0);
  EXPECT_EQ(device.size(), 0);
}

}  // namespace
}  // namespace lockstep
