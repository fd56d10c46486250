#include "base/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(ChildProcess, ItsOutputComesBackWhateverItsSize) {
  const ChildResult result = run_in_child(
      [](const auto& write) {
        for (int i = 0; i < 1000; ++i) write(std::string(1000, 'x'));
      },
      30);
  EXPECT_TRUE(result.finished) << result.mishap;
  EXPECT_EQ(result.output, std::string(1000000, 'x'));
}

TEST(ChildProcess, WhatItChangesStaysThere) {
  unsetenv("CHILD_PROCESS_TEST");
  const ChildResult result = run_in_child(
      [](const auto& write) {
        setenv("CHILD_PROCESS_TEST", "1", 1);
        write(std::getenv("CHILD_PROCESS_TEST"));
      },
      30);
  EXPECT_EQ(result.output, "1");
  EXPECT_EQ(std::getenv("CHILD_PROCESS_TEST"), nullptr);
}

TEST(ChildProcess, OneThatHangsIsEndedAndWhatItSaidIsKept) {
  const ChildResult result = run_in_child(
      [](const auto& write) {
        write("begun");
        while (true) pause();
      },
      0.1);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.output, "begun");
  EXPECT_EQ(result.mishap, "did not answer within 0.1 s");
}

TEST(ChildProcess, OneThatDiesIsNamedBySignal) {
  const ChildResult result = run_in_child(
      [](const auto& write) {
        write("begun");
        std::signal(SIGTERM, SIG_DFL);
        raise(SIGTERM);
      },
      30);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.output, "begun");
  EXPECT_THAT(result.mishap, HasSubstr("died of signal 15 (Terminated)"));
}

TEST(ChildProcess, AnExceptionIsAMishap) {
  const ChildResult result = run_in_child([](const auto&) { throw std::runtime_error("no"); }, 30);
  EXPECT_FALSE(result.finished);
  EXPECT_THAT(result.mishap, HasSubstr("status 3"));
}

}  // namespace
}  // namespace lockstep
