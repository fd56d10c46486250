// `lockstep run`: which Python it takes, and what it hands on.
#include "cli/tool_test.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// Stands for a Python that has the package, or has not; it says what it was called with.
constexpr const char* kPython = "#!/bin/sh\nif [ \"$1\" = -c ]; then exit %; fi\necho \"$@\"\nexit 7\n";

class Scripts : public ToolTest {
 protected:
  void write_python(const std::string& name, char status) const {
    std::string text = kPython;
    text[text.find('%')] = status;
    write(name, text);
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }
};

TEST_F(Scripts, WordsBehindTheScriptAreItsOwn) {
  write_python("python", '0');
  write("train.py", "");
  const Answer answer = shell(
      "LOCKSTEP_PYTHON=./python lockstep run --devices 4 --threads=1 --no-report train.py --devices 7 -x "
      "--help");
  EXPECT_EQ(answer.output,
            "-m lockstep --devices 4 --threads 1 --no-report train.py --devices 7 -x --help\n");
  EXPECT_EQ(answer.status, 7) << "the script's own: " << answer.errors;
  EXPECT_EQ(shell("LOCKSTEP_PYTHON=./python lockstep run train.py").output, "-m lockstep train.py\n");
}

TEST_F(Scripts, WithoutThePackageItIsSaidHowToGetIt) {
  write_python("python", '1');
  write("train.py", "");
  expect_one_line(
      "LOCKSTEP_PYTHON=./python lockstep run train.py",
      "LOCKSTEP_PYTHON=./python is no Python that has the package lockstep; pip install the wheel");
  expect_one_line("LOCKSTEP_PYTHON=./nowhere lockstep run train.py", "./nowhere is no Python");
  expect_one_line("lockstep run nowhere.py", "there is no file \"nowhere.py\"");
  expect_one_line("lockstep run --devices 0 train.py", "0 is not a whole number", 2);
  EXPECT_THAT(shell("lockstep run --help").output, HasSubstr("LOCKSTEP_PYTHON"));
}

}  // namespace
}  // namespace lockstep::cli
