#include "lockstep/base/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error_of_test.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FolderLocks : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_folder_lock_" + std::to_string(getpid());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A process that holds the lock until it is killed.
  pid_t other_writer() const {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      const FolderLock lock(folder_);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
  }

  std::string folder_;
};

TEST_F(FolderLocks, AnotherProcessIsRefusedWithTheNameOfTheOwner) {
  const pid_t child = other_writer();
  const Error error = error_of([&] { FolderLock lock(folder_); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  EXPECT_THAT(error.message(), AllOf(HasSubstr(folder_), HasSubstr("process " + std::to_string(child)),
                                     HasSubstr(std::string("on ") + host)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // A process that is gone holds nothing.
  const FolderLock lock(folder_);
}

TEST_F(FolderLocks, OneProcessSharesItAndLeavesNothingBehind) {
  {
    const FolderLock one(folder_);
    const FolderLock two(folder_ + "/.");
    EXPECT_FALSE(fs::is_empty(folder_));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FolderLocks, WhatAKilledWriterLeftIsRemoved) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/backup.safetensors.tmp-1-0") << "half";
  const FolderLock lock(folder_);
  EXPECT_FALSE(fs::exists(folder_ + "/backup.safetensors.tmp-1-0"));
}

TEST_F(FolderLocks, AFolderThatIsMadeAnewIsAnotherOne) {
  const FolderLock first(folder_);
  fs::remove_all(folder_);
  {
    const FolderLock second(folder_);
    EXPECT_TRUE(fs::exists(folder_ + "/.lockstep.lock"));
  }
  EXPECT_FALSE(fs::exists(folder_ + "/.lockstep.lock"));
}

}  // namespace
}  // namespace lockstep
