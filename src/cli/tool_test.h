// The tool itself, called as people and scripts call it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/files.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

struct Answer {
  std::string output;  // standard output
  std::string errors;  // standard error
  int status = -1;
};

class ToolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(::testing::TempDir()) / ("tool_" + std::to_string(getpid()) +
                                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Runs a line of a shell in the test's folder; `lockstep` in it is the tool.
  Answer shell(const std::string& line) const {
    const std::string errors = (folder_ / "errors.txt").string();
    // A file beside the folder's others would be in the way of tests that look at it.
    const std::string bin = (folder_ / ".bin").string();
    fs::create_directories(bin);
    std::error_code ignored;
    fs::create_symlink(LOCKSTEP_TOOL, bin + "/lockstep", ignored);
    const std::string command = "unset COLUMNS; cd '" + folder_.string() + "' && export PATH='" + bin +
                                "':\"$PATH\" && { " + line + "\n} 2> '" + errors + "'";
    Answer answer;
    std::FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe))
      answer.output.append(buffer, count);
    const int status = pclose(pipe);
    answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    answer.errors = read_file(errors);
    return answer;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string text(const std::string& name) const { return read_file((folder_ / name).string()); }

  // What is wrong is one line that says it, and status 1 (2: the call).
  void expect_one_line(const std::string& line, const std::string& says, int status = 1) const {
    const Answer answer = shell(line);
    EXPECT_EQ(answer.status, status) << line << "\n" << answer.errors;
    using ::testing::HasSubstr;
    EXPECT_THAT(answer.errors, AllOf(HasSubstr("lockstep: "), HasSubstr(says))) << line;
    EXPECT_EQ(std::count(answer.errors.begin(), answer.errors.end(), '\n'), 1) << answer.errors;
    EXPECT_THAT(answer.errors, ::testing::Not(HasSubstr(".cc:")))
        << "the library's own lines say nothing to a user";
  }

  fs::path folder_;
};

}  // namespace lockstep::cli
