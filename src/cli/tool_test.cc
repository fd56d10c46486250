// The tool itself, as people and scripts call it: what it writes, and what it says when it cannot.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "cli/tool_test.h"
#include "lockstep/base/files.h"
#include "lockstep/base/folder_lock.h"
#include "lockstep/base/json.h"
#include "lockstep/base/terminal.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kRun =
    R"({"model": {"zoo": "mlp", "hidden": [8]}, "data": {"name": "digits", "train_size": 256, "test_size": 64},
        "fit": {"epochs": 2, "batch_size": 64, "verbose": 2}, "output": "out"})";

// --- the terminal ------------------------------------------------------------------------------------------

TEST_F(ToolTest, TheResultIsJsonWhereThatIsAskedFor) {
  write("run.json", kRun);
  const Answer plain = shell("lockstep train run.json");
  ASSERT_EQ(plain.status, 0) << plain.errors;
  EXPECT_THAT(plain.output, AllOf(HasSubstr("test - "), Not(HasSubstr("{\""))));
  const Answer json = shell("lockstep train run.json --json");
  EXPECT_TRUE(Json::parse(json.output).contains("accuracy")) << "nothing but the result";
  const Answer file = shell("lockstep train run.json --json result.json");
  EXPECT_THAT(file.output, AllOf(HasSubstr("test - "), Not(HasSubstr("{\""))));
  EXPECT_TRUE(Json::parse(text("result.json")).contains("accuracy"));
  expect_one_line("lockstep train --json run.json", "lockstep train run.json --json");
  EXPECT_EQ(text("run.json"), kRun);
}

TEST_F(ToolTest, NothingIsWiderThanTheTerminal) {
  write("run.json", kRun);
  for (const int columns : {60, 80})
    for (const char* arguments :
         {"--help", "train --help", "doctor --help", "launch --help", "checkpoint inspect --help",
          "report --help", "watch --help", "evaluate --help", "predict --help", "train run.json",
          "train run.json --threads 1 --devices 2 --reproducible", "doctor --quick", "train nowhere.json",
          "trian"}) {
      const Answer answer = shell("COLUMNS=" + std::to_string(columns) + " lockstep " + arguments);
      std::istringstream lines(answer.output + answer.errors);
      for (std::string line; std::getline(lines, line);) {
        // A word that is wider than the terminal cannot be broken; a path, mostly.
        const bool one_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
        if (!one_word) {
          EXPECT_LE(terminal::width(line), columns) << arguments << ": " << line;
        }
      }
    }
}

TEST_F(ToolTest, MisspeltWordsAreAnsweredWithTheNearest) {
  expect_one_line("lockstep trian run.json", "there is no command \"trian\"; did you mean \"train\"?", 2);
  expect_one_line("lockstep checkpoint inspct x", "did you mean \"inspect\"?", 2);
  expect_one_line("lockstep train --epoch 3", "there is no option \"--epoch\"; did you mean \"--epochs\"?",
                  2);
  expect_one_line("lockstep train lenett", "did you mean \"lenet\"?");
  expect_one_line("lockstep", "--help", 2);
}

TEST_F(ToolTest, RangesAreShort) {
  expect_one_line("lockstep train --epochs -1", "-1 is not a whole number from 0 to 2147483647", 2);
  expect_one_line("lockstep train --epochs 4294967297", "4294967297 is not a whole number", 2);
  expect_one_line("lockstep train --devices 300", "300 is not a whole number from 1 to 256", 2);
  expect_one_line("lockstep train --learning-rate nan", "nan is not a number above 0", 2);
  write("run.json", R"({"model": "mlp", "data": "digits", "fit": {"epochs": 4294967297}})");
  expect_one_line("lockstep train run.json",
                  "fit.epochs: expected an integer from 0 to 2147483647, received 4294967297");
}

TEST_F(ToolTest, TheExampleOfTheHelpWorksAsPasted) {
  const std::string help = shell("lockstep train --help").output;
  EXPECT_THAT(help,
              AllOf(HasSubstr("fit.batch_size"), HasSubstr("data.validation_split"), HasSubstr("backup")));
  std::istringstream lines(help);
  std::string line, pasted;
  while (std::getline(lines, line) && line.find("to be pasted") == std::string::npos) {
  }
  while (std::getline(lines, line) && !line.empty()) pasted += line + "\n";
  ASSERT_THAT(pasted, HasSubstr("lockstep train run.json"));
  const Answer answer = shell(pasted);
  EXPECT_EQ(answer.status, 0) << pasted << answer.errors;
  EXPECT_TRUE(fs::exists(folder_ / "trained/weights.safetensors"));
}

// --- what was trained --------------------------------------------------------------------------------------

TEST_F(ToolTest, WhatWasTrainedIsEvaluatedAndPredictsWithOneCommand) {
  write("run.json", kRun);
  ASSERT_EQ(shell("lockstep train run.json").status, 0);
  const Answer plain = shell("lockstep evaluate out");
  EXPECT_EQ(plain.status, 0) << plain.errors;
  EXPECT_THAT(plain.output, HasSubstr("on the validation examples - accuracy: "));
  EXPECT_EQ(shell("lockstep evaluate run.json").output, plain.output);
  const Json logs = Json::parse(shell("lockstep evaluate out --json --on train").output);
  EXPECT_TRUE(logs.contains("loss"));
  // To standard output, or to a file that others read.
  const Answer lines = shell("lockstep predict out");
  EXPECT_EQ(std::count(lines.output.begin(), lines.output.end(), '\n'), 64);
  const Json first = Json::parse(lines.output.substr(0, lines.output.find('\n')));
  EXPECT_EQ(first.items().size(), 10u);
  const Json written = Json::parse(shell("lockstep predict out --output p.npy --json").output);
  EXPECT_EQ(written.dump(), R"({"output":"p.npy","shapes":{"prediction":[64,10]}})");
  EXPECT_EQ(text("p.npy").size(), 128u + 64 * 10 * 4);
  EXPECT_THAT(shell("lockstep predict out --output p.csv").output,
              HasSubstr("prediction of shape [64,10] written to p.csv"));
  EXPECT_THAT(text("p.csv"), ::testing::StartsWith("prediction_0,prediction_1,"));
}

TEST_F(ToolTest, WhatIsMissingIsNamedBeforeAnythingIsComputed) {
  write("run.json", kRun);
  expect_one_line("lockstep evaluate run.json", "there is no \"out/weights.safetensors\"");
  expect_one_line("lockstep evaluate nowhere", "nowhere");
  fs::create_directories(folder_ / "empty");
  expect_one_line("lockstep predict empty", "holds no run.json");
  ASSERT_EQ(shell("lockstep train run.json").status, 0);
  expect_one_line("lockstep predict out --output p.xlsx", "ends in .npy, .csv, .jsonl or .safetensors");
  expect_one_line("lockstep predict out --output nowhere/p.csv", "--output: ");
  expect_one_line("lockstep predict out --data nowhere.csv", "nowhere.csv");
  expect_one_line("lockstep predict out --data x --on train", "--on", 2);
  fs::remove(folder_ / "out/model.json");
  expect_one_line("lockstep evaluate out", "model.json");
  EXPECT_EQ(shell("lockstep evaluate run.json > /dev/full").status, 1);
}

// --- what cannot be read or written ------------------------------------------------------------------------

TEST_F(ToolTest, PathsThatLeadNowhereAreOneLine) {
  fs::create_symlink("loop", folder_ / "loop");
  fs::create_directories(folder_ / "folder");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0666), 0);
  const std::string long_name(5000, 'x');
  for (const char* command : {"lockstep train ", "lockstep checkpoint inspect "}) {
    const bool train = std::string(command).starts_with("lockstep train");
    expect_one_line(command + std::string("loop") + (train ? "" : " --json > /dev/null"),
                    train ? "Too many levels" : "");
    expect_one_line(command + long_name, train ? "too long" : "");
  }
  expect_one_line("lockstep train folder", "it is a folder");
  expect_one_line("lockstep train pipe", "it is a pipe");
  expect_one_line("lockstep train /dev/zero", "it is a device");
  for (const char* name : {"loop", "folder", "pipe", "/dev/zero", "loop/x"}) {
    const auto run = [&](const std::string& member) {
      write("run.json", R"({"model": "mlp", "data": {"name": "digits", "train_size": 32, "test_size": 8}, )" +
                            member + "}");
    };
    run(std::string(R"("initial_weights": ")") + name + "\"");
    expect_one_line("lockstep train run.json", "");
    write("run.json", std::string(R"({"model": "mlp", "data": {"csv": ")") + name + "\"}}");
    expect_one_line("lockstep train run.json", "data: ");
    write("run.json", std::string(R"({"model": "mlp", "data": {"text": ")") + name + "\"}}");
    expect_one_line("lockstep train run.json", "data: ");
    write("run.json", std::string(R"({"model": "mlp", "data": {"image_folder": ")") + name + "\"}}");
    expect_one_line("lockstep train run.json", "data: ");
  }
  write("run.json", "{\"model\": \"mlp\", \"data\": \"digits\", \"output\": \"a\\u0000b\"}");
  expect_one_line("lockstep train run.json", "output: expected text without a NUL character");
  write("run.json", "{\"model\": \"mlp\", \"data\": \"digits\", \"seed\": 1, \"seed\": 2}");
  expect_one_line("lockstep train run.json", "the key \"seed\" is there twice");
}

TEST_F(ToolTest, WhatIsToBeWrittenIsOpenedBeforeTraining) {
  write("run.json", kRun);
  write("file", "");
  for (const char* flag : {"--step-log nowhere/x", "--trace nowhere/x", "--json nowhere/x",
                           "--tensorboard file/x", "--output file", "--output /proc/x", "--backup file"}) {
    const Answer answer = shell(std::string("lockstep train run.json ") + flag);
    EXPECT_EQ(answer.status, 1) << flag;
    EXPECT_THAT(answer.output, Not(HasSubstr("Epoch"))) << flag;
    EXPECT_EQ(std::count(answer.errors.begin(), answer.errors.end(), '\n'), 1) << answer.errors;
  }
}

TEST_F(ToolTest, ResultsDoNotOverwriteTheRunFile) {
  write("run.json", kRun);
  fs::create_symlink("run.json", folder_ / "link");
  for (const char* flag : {"--json", "--step-log", "--trace", "--report"})
    for (const char* name : {"run.json", "./run.json", "link"})
      expect_one_line(std::string("lockstep train run.json ") + flag + " " + name,
                      "would overwrite the run file");
  EXPECT_EQ(read_file((folder_ / "run.json").string()), kRun);
}

TEST_F(ToolTest, TemporaryFilesThatHaveNoPlaceAreOneLine) {
  write("run.json", kRun);
  for (const char* call : {"train mlp --report page.html", "scale run.json --devices 1"})
    expect_one_line(
        std::string("TMPDIR=/nowhere lockstep ") + call,
        "no folder can be made in \"/nowhere\": No such file or directory; TMPDIR names another place");
}

TEST_F(ToolTest, ANameThatIsEmptyIsNoPlaceForAResult) {
  for (const char* call : {"train mlp --output", "train mlp --backup", "train mlp --step-log",
                           "train mlp --trace", "train mlp --tensorboard", "train mlp --report",
                           "predict out --output", "evaluate out --data", "launch -n 2 --log-dir"})
    expect_one_line(std::string("lockstep ") + call + " ''", "the name is empty", 2);
}

TEST_F(ToolTest, APipeIsWaitedForWithAWord) {
  write("run.json", kRun);
  for (const char* flag : {"--step-log", "--trace"}) {
    const Answer answer = shell(std::string("rm -f pipe; mkfifo pipe; lockstep train run.json ") + flag +
                                " pipe > /dev/null 2> errors & "
                                "until grep -q 'pipe that nobody reads yet' errors; do sleep 0.05; done; "
                                "cat pipe; wait $!");
    EXPECT_EQ(answer.status, 0) << flag << answer.errors;
    EXPECT_FALSE(answer.output.empty()) << flag;
  }
}

TEST_F(ToolTest, AFullDiskLosesNoRun) {
  write("run.json", kRun);
  struct Case {
    const char* line;
    const char* says;
  };
  for (const Case& c : {Case{"lockstep train run.json > /dev/full", "standard output"},
                        Case{"lockstep train run.json --json > /dev/full", "--json"},
                        Case{"lockstep train run.json >&-", "standard output"},
                        Case{"lockstep train run.json --json >&-", "--json"},
                        Case{"lockstep train run.json --step-log /dev/full", "--step-log"},
                        Case{"lockstep train run.json --trace /dev/full", "--trace"},
                        Case{"lockstep train run.json --json /dev/full", "--json"}}) {
    fs::remove_all(folder_ / "out");
    const Answer answer = shell(c.line);
    EXPECT_EQ(answer.status, 1) << c.line << answer.errors;
    EXPECT_THAT(answer.errors, HasSubstr(c.says)) << c.line;
    EXPECT_TRUE(fs::exists(folder_ / "out/weights.safetensors")) << c.line;
  }
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  // The reader has gone before the first line.
  const Answer closed = shell("( lockstep train run.json; echo $? > status ) | true");
  EXPECT_EQ(text("status"), "1\n") << closed.errors;
  EXPECT_EQ(shell("lockstep train --schema > /dev/full").status, 1);
  EXPECT_EQ(shell("lockstep --help > /dev/full").status, 1);
  EXPECT_EQ(shell("lockstep doctor --quick --json > /dev/full").status, 1);
}

TEST_F(ToolTest, AFolderHasOneWriter) {
  write("run.json", kRun);
  for (const char* flag : {"--output", "--backup"}) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      const FolderLock lock((folder_ / "shared").string());
      if (::write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    expect_one_line(std::string("lockstep train run.json ") + flag + " shared",
                    "is being written by process " + std::to_string(child));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(shell(std::string("lockstep train run.json ") + flag + " shared").status, 0);
  }
}

TEST_F(ToolTest, ThreadsThatCannotBeMadeAreOneLine) {
  expect_one_line("lockstep train --threads 100000", "not a whole number from 0 to 1024", 2);
}

TEST_F(ToolTest, MemoryThatThereIsNotIsOneLine) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer adds a line of its own";
#endif
  write("run.json", R"({"model": {"zoo": "mlp", "hidden": [4000000000, 4000000000]}, "data": "digits"})");
  expect_one_line("lockstep train run.json", "");
  write("run.json", R"({"model": {"zoo": "mlp", "hidden": [9000000000000000]}, "data": "digits"})");
  expect_one_line("lockstep train run.json", "");
  write("run.json", R"({"model": "mlp", "data": {"name": "digits", "train_size": 9000000000000000}})");
  expect_one_line("lockstep train run.json", "");
}

// --- going on ----------------------------------------------------------------------------------------------

TEST_F(ToolTest, SigtermSavesAsCtrlCDoes) {
  write("run.json", R"({"model": {"zoo": "mlp", "hidden": [8]}, "output": "out",
      "data": {"name": "digits", "train_size": 256, "test_size": 64}, "fit": {"epochs": 100000, "verbose": 2}})");
  const Answer answer = shell(
      "lockstep train run.json > log & "
      "until grep -q 'Epoch 3/' log; do sleep 0.05; done; kill -TERM $!; wait $!");
  EXPECT_EQ(answer.status, 128 + SIGTERM) << answer.errors;
  EXPECT_TRUE(fs::exists(folder_ / "out/weights.safetensors"));
  EXPECT_GE(Json::parse(text("out/history.json")).at("loss").items().size(), 2u);
}

class ToolKill : public ToolTest {
 protected:
  pid_t start(const std::string& output, const std::string& backup) const {
    const pid_t child = fork();
    if (child != 0) return child;
    if (chdir(folder_.c_str()) != 0) _exit(3);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    execl(LOCKSTEP_TOOL, "lockstep", "train", "run.json", "--output", output.c_str(), "--backup",
          backup.c_str(), "--step-log", (output + ".csv").c_str(), nullptr);
    _exit(4);
  }
  // Whether it ended well; else it was killed.
  static bool finished(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return false;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
  }

  void kill_at_random(int kills, int epochs) {
    write("run.json", R"({"model": {"zoo": "mlp", "hidden": [16], "dropout": 0.2},
        "data": {"name": "digits", "train_size": 512, "test_size": 64},
        "fit": {"epochs": )" +
                          std::to_string(epochs) + R"(, "batch_size": 32, "verbose": 0}})");
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(finished(start("alone", "backup_alone")));
    const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
    std::mt19937 random(23);  // NOLINT(cert-msc51-cpp): the same moments every time, as far as that goes
    std::uniform_real_distribution<double> moment(0, 1.1 * whole.count());
    int runs = 0;
    for (int done = 0; done < kills || runs == 0;) {
      const pid_t child = start("killed", "backup");
      if (done < kills) {
        std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
        kill(child, SIGKILL);
      }
      if (!finished(child)) {
        ++done;
        continue;
      }
      ASSERT_FALSE(HasFailure());
      for (const char* file : {"/weights.safetensors", "/history.json", "/model.json", ".csv"})
        ASSERT_EQ(text(std::string("killed") + file), text(std::string("alone") + file))
            << file << " after " << done;
      ++runs;
      EXPECT_TRUE(fs::is_empty(folder_ / "backup"))
          << "a run that has ended needs no backup, and leaves no draft";
      fs::remove_all(folder_ / "killed");
      fs::remove(folder_ / "killed.csv");
    }
  }
};

TEST_F(ToolKill, KilledAndStartedAgainARunEndsWithTheSameBits) { kill_at_random(4, 8); }
TEST_F(ToolKill, LongAHundredKills) { kill_at_random(100, 30); }

}  // namespace
}  // namespace lockstep::cli
