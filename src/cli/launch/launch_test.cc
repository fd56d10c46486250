// Jobs as people start them: the real tool with small programs as workers, a stand-in for ssh and one for
// srun.
#include "cli/launch/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/saved_environment_test.h"
#include "cli/launch/messages.h"
#include "cli/tool_test.h"
#include "comm/cluster.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A file of /proc, which has no size before it is read; empty where the process is gone.
std::string of_system(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // reads nothing where the process ends meanwhile
  return text.str();
}

void wait_until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

class Launch : public ToolTest {
 protected:
  // Schedulers and launchers around the tests have no say in them.
  const testing::SavedEnvironment environment_{
      {"TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID",
       "SLURM_PROCID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "LOCKSTEP_WORKERS", "LOCKSTEP_SECRET",
       "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}};

  // An executable file in a folder of PATH.
  void write_program(const std::string& name, const std::string& body) const {
    fs::create_directories(folder_ / ".bin");
    const fs::path file = folder_ / ".bin" / name;
    std::ofstream(file) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(file, fs::perms::owner_all);
  }

  // Runs the command in another folder and with hardly any environment, as a login on another machine would.
  // The connection is a process of its own, and what it has started is in a session of its own.
  void write_ssh() const {
    write_program("ssh", R"(echo "$@" >> ")" + folder_.string() + R"(/ssh_calls"
for command; do :; done
cd /
cat | env -i HOME=/ PATH=/usr/bin:/bin setsid sh -c "$command")");
  }

  // All processes that have this test's folder in one of their arguments and are not one of those that look
  // for them.
  std::vector<int> processes_with(const std::string& argument) const {
    std::vector<int> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const int id = std::atoi(entry.path().filename().c_str());
      if (id <= 0) continue;
      const std::string line = of_system((entry.path() / "cmdline").string());
      if (line.find(argument) != std::string::npos && line.find("launch") == std::string::npos)
        found.push_back(id);
    }
    return found;
  }

  // The tool as a child of its own, to send signals to.
  pid_t start(const std::vector<std::string>& arguments) const {
    for (int rank = 0; rank < 8; ++rank) fs::remove(folder_ / ("there_" + std::to_string(rank)));
    const pid_t child = fork();
    if (child != 0) return child;
    // A shell ignores it for what it starts in the background, and a shell that starts so cannot trap it.
    signal(SIGINT, SIG_DFL);
    if (chdir(folder_.c_str()) != 0) _exit(3);
    setenv("PATH", ((folder_ / ".bin").string() + ":" + std::getenv("PATH")).c_str(), 1);
    if (!freopen("out", "w", stdout) || !freopen("err", "w", stderr)) _exit(3);
    std::vector<char*> words;
    static std::string tool = LOCKSTEP_TOOL, launch = "launch";
    words = {tool.data(), launch.data()};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    execv(LOCKSTEP_TOOL, words.data());
    _exit(4);
  }
  static int status_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // So many workers have made the file that says that they are there.
  void wait_for_workers(int count) const {
    wait_until([&] {
      int there = 0;
      for (int rank = 0; rank < count; ++rank)
        there += fs::exists(folder_ / ("there_" + std::to_string(rank))) ? 1 : 0;
      return there == count;
    });
  }
};

// --- one machine -------------------------------------------------------------------------------------------

TEST_F(Launch, WorkersKnowTheirPlaceAndLinesTheirRank) {
  const Answer answer = shell(
      "lockstep launch -n 3 -- sh -c 'echo \"$LOCKSTEP_RANK of $LOCKSTEP_WORKERS\"; echo wrong >&2; printf "
      "unfinished'");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(lines_of(answer.output),
              UnorderedElementsAre("[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3", "[0] unfinished",
                                   "[1] unfinished", "[2] unfinished"));
  EXPECT_THAT(answer.errors, AllOf(HasSubstr("[0] wrong\n"), HasSubstr("[2] wrong\n"),
                                   HasSubstr("lockstep launch: 3 workers on this machine")));
}

TEST_F(Launch, WhatItSetsIsWhatTheLibraryReads) {
  const Answer answer = shell("lockstep launch -n 2 -- sh -c 'env | grep ^LOCKSTEP_ > vars_$LOCKSTEP_RANK'");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  std::vector<std::string> secrets;
  for (const int rank : {0, 1}) {
    std::map<std::string, std::string> variables;
    for (const std::string& line : lines_of(text("vars_" + std::to_string(rank))))
      variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    const comm::Cluster cluster =
        comm::read_cluster([&](std::string_view name) -> std::optional<std::string> {
          const auto found = variables.find(std::string(name));
          return found == variables.end() ? std::nullopt : std::optional(found->second);
        });
    EXPECT_EQ(cluster.source, comm::ClusterSource::lockstep_launch);
    EXPECT_EQ(cluster.rank, rank);
    EXPECT_EQ(cluster.size, 2);
    EXPECT_TRUE(cluster.address.starts_with("127.0.0.1:")) << cluster.address;
    secrets.push_back(variables["LOCKSTEP_SECRET"]);
  }
  EXPECT_EQ(secrets[0], secrets[1]);
  EXPECT_EQ(secrets[0].size(), 64u);
  shell("lockstep launch -n 1 -- sh -c 'echo $LOCKSTEP_SECRET > other'");
  EXPECT_NE(text("other"), secrets[0] + "\n") << "every job has its own";
  shell("LOCKSTEP_SECRET=ours lockstep launch -n 1 -- sh -c 'echo $LOCKSTEP_SECRET > other'");
  EXPECT_EQ(text("other"), "ours\n");
  write("secret", "of a file\n");
  shell("LOCKSTEP_SECRET_FILE=secret lockstep launch -n 1 -- sh -c 'echo $LOCKSTEP_SECRET > other'");
  EXPECT_EQ(text("other"), "of a file\n");
}

TEST_F(Launch, VariablesOfOtherLaunchersDoNotReachWorkers) {
  const Answer answer =
      shell("TF_CONFIG='{}' MASTER_PORT=7 lockstep launch -n 1 -- sh -c 'echo \"$TF_CONFIG.$MASTER_PORT.\"'");
  EXPECT_EQ(answer.output, "[0] ..\n");
  EXPECT_THAT(answer.errors, HasSubstr("TF_CONFIG,MASTER_PORT are set, for a run of another launcher"));
}

TEST_F(Launch, AMachineIsDividedAmongItsWorkers) {
  const std::string show =
      "sh -c 'echo $(taskset -cp $$ | sed s/.*:.//) $OMP_NUM_THREADS $CUDA_VISIBLE_DEVICES'";
  const Answer two = shell("CUDA_VISIBLE_DEVICES=4,5,6,7 taskset -c 0 lockstep launch -n 2 -- " + show);
  EXPECT_THAT(lines_of(two.output), UnorderedElementsAre("[0] 0 1 4,5", "[1] 0 1 6,7")) << two.errors;
  EXPECT_THAT(two.errors,
              HasSubstr("each has 1 of 1 CPU, 2 workers per CPU and 2 of 4 GPUs; --no-divide: all"));
  const Answer whole =
      shell("CUDA_VISIBLE_DEVICES=4,5 taskset -c 0 lockstep launch -n 2 --no-divide -- " + show);
  EXPECT_THAT(lines_of(whole.output), UnorderedElementsAre("[0] 0 4,5", "[1] 0 4,5"));
  EXPECT_THAT(whole.errors, Not(HasSubstr("each has")));
  const Answer told = shell("OMP_NUM_THREADS=7 taskset -c 0 lockstep launch -n 2 -- " + show);
  EXPECT_THAT(lines_of(told.output), UnorderedElementsAre("[0] 0 7", "[1] 0 7"))
      << "what the user says holds";
}

TEST_F(Launch, AFilePerRank) {
  const Answer answer = shell(
      "lockstep launch -n 2 --log-dir some/logs --show none -- sh -c 'echo out $LOCKSTEP_RANK; echo err "
      ">&2'");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_EQ(answer.output, "");
  EXPECT_THAT(answer.errors, Not(HasSubstr("[1]")));
  for (const char* rank : {"0", "1"})
    EXPECT_THAT(lines_of(text(std::string("some/logs/rank_") + rank + ".log")),
                UnorderedElementsAre(std::string("out ") + rank, "err"));
  EXPECT_EQ(shell("lockstep launch -n 3 --show 1 -- sh -c 'echo $LOCKSTEP_RANK'").output, "[1] 1\n");
}

TEST_F(Launch, LongAndManyLinesArriveWhole) {
  const Answer answer = shell(
      "lockstep launch -n 2 -- sh -c 'yes abcdefghij | head -n 20000; head -c 50000 /dev/zero | tr \"\\\\0\" "
      "x; echo; "
      "printf \"1%%\\r2%%\\r\\n\"'");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  int lines = 0, wide = 0;
  for (const std::string& line : lines_of(answer.output)) {
    lines += line.substr(4) == "abcdefghij" ? 1 : 0;
    wide += line.substr(4) == std::string(50000, 'x') ? 1 : 0;
  }
  EXPECT_EQ(lines, 40000);
  EXPECT_EQ(wide, 2);
  EXPECT_THAT(answer.output, AllOf(HasSubstr("[1] 1%\n"), HasSubstr("[1] 2%\n"), Not(HasSubstr("[1] \n"))));
}

// --- failures ----------------------------------------------------------------------------------------------

TEST_F(Launch, TheFirstFailureIsNamedWithItsLastLines) {
  const Answer answer = shell(
      "lockstep launch -n 3 -- sh -c 'if [ $LOCKSTEP_RANK = 1 ]; then seq 30; echo no memory >&2; exit 7; "
      "fi; exec sleep "
      "1000'");
  EXPECT_EQ(answer.status, 7);
  EXPECT_THAT(answer.errors, AllOf(HasSubstr("lockstep launch: worker 1 (process "),
                                   HasSubstr(" failed first: exit status 7"), HasSubstr("    | 30\n"),
                                   HasSubstr("    | no memory\n"), Not(HasSubstr("    | 10\n"))));
  const Answer killed = shell("lockstep launch -n 1 -- sh -c 'kill -9 $$'");
  EXPECT_EQ(killed.status, 128 + 9);
  EXPECT_THAT(killed.errors,
              AllOf(HasSubstr("signal 9 (SIGKILL)"), HasSubstr("memory"), HasSubstr("It wrote nothing.")));
}

TEST_F(Launch, OneThatEndsWellIsNotMissed) {
  const Answer answer =
      shell("lockstep launch -n 2 -- sh -c '[ $LOCKSTEP_RANK = 1 ] || { sleep 0.2; echo later; }'");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_EQ(answer.output, "[0] later\n");
}

TEST_F(Launch, NoProcessIsLeftBehind) {
  // Workers make children, and one of those hides in a session of its own with a parent that is gone.
  const std::string argument = (folder_ / "left").string();
  write("left", "sleep 1000\n");
  const std::string worker =
      "sh " + argument + " & setsid sh -c \"sh " + argument + " & exit 0\" & : > there_$LOCKSTEP_RANK; ";
  const std::vector<std::string> waiting{"-n", "2", "--", "sh", "-c", worker + "wait; sleep 1000"};
  const auto none_left = [&] { return processes_with(argument).empty(); };

  shell("lockstep launch -n 2 -- sh -c '" + worker + " exit 0'");
  EXPECT_TRUE(none_left()) << "after a good end";
  shell("lockstep launch -n 2 -- sh -c '" + worker + " [ $LOCKSTEP_RANK = 0 ] && exit 3; sleep 1000'");
  EXPECT_TRUE(none_left()) << "after a failure";

  const auto start_and_wait = [&] {
    const pid_t job = start(waiting);
    wait_for_workers(2);
    wait_until([&] { return processes_with(argument).size() >= 4; });
    return job;
  };
  const pid_t stopped = start_and_wait();
  kill(stopped, SIGTERM);
  EXPECT_EQ(status_of(stopped), 128 + SIGTERM);
  EXPECT_TRUE(none_left()) << "after SIGTERM";

  const pid_t killed = start_and_wait();
  kill(killed, SIGKILL);
  EXPECT_EQ(status_of(killed), -SIGKILL);
  wait_until(none_left);  // the agent sees that the launcher is gone

  const pid_t job = start_and_wait();
  const std::vector<std::string> children =
      lines_of(of_system("/proc/" + std::to_string(job) + "/task/" + std::to_string(job) + "/children"));
  ASSERT_EQ(children.size(), 1u);
  kill(std::atoi(children[0].c_str()), SIGKILL);  // the agent
  EXPECT_EQ(status_of(job), 1);
  EXPECT_TRUE(none_left()) << "after the agent was killed";
  EXPECT_THAT(text("err"), HasSubstr("the agent ended with signal 9"));
}

TEST_F(Launch, OutputThatNobodyReadsStopsNoJob) {
  const Answer answer = shell(
      "( lockstep launch -n 2 -- sh -c 'seq 50000; : > done_$LOCKSTEP_RANK'; echo $? > status ) | true");
  EXPECT_EQ(text("status"), "1\n");
  EXPECT_THAT(answer.errors, HasSubstr("could not be written"));
  EXPECT_TRUE(fs::exists(folder_ / "done_0") && fs::exists(folder_ / "done_1"));
}

// --- signals -----------------------------------------------------------------------------------------------

TEST_F(Launch, SignalsArePassedOn) {
  const auto trapping = [](const std::string& signals) {
    return std::vector<std::string>{
        "-n", "2", "--", "sh", "-c", signals + " : > there_$LOCKSTEP_RANK; while :; do sleep 0.02; done"};
  };
  // Preempted: what was to be saved is saved, and the scheduler sees why it ended.
  const pid_t preempted = start(trapping("trap 'echo saved; exit 143' TERM;"));
  wait_for_workers(2);
  kill(preempted, SIGTERM);
  EXPECT_EQ(status_of(preempted), 143);
  EXPECT_THAT(text("out"), AllOf(HasSubstr("[0] saved"), HasSubstr("[1] saved")));
  EXPECT_THAT(text("err"), AllOf(HasSubstr("SIGTERM: passed on"), HasSubstr("the job was stopped by SIGTERM"),
                                 Not(HasSubstr("failed"))));

  const pid_t interrupted = start(trapping("trap 'exit 0' INT;"));
  wait_for_workers(2);
  kill(interrupted, SIGINT);
  EXPECT_EQ(status_of(interrupted), 0) << "all have said that they ended well";

  const pid_t failing = start(trapping("trap 'echo disk full; exit 9' TERM;"));
  wait_for_workers(2);
  kill(failing, SIGTERM);
  EXPECT_EQ(status_of(failing), 9) << "what could not be saved is a failure";

  const pid_t told = start(trapping("trap 'exit 5' USR1;"));
  wait_for_workers(2);
  kill(told, SIGUSR1);
  EXPECT_EQ(status_of(told), 5);
}

TEST_F(Launch, WhoDoesNotEndIsKilled) {
  const std::string stubborn = "trap '' TERM INT; : > there_$LOCKSTEP_RANK; while :; do sleep 0.02; done";
  const pid_t job = start({"-n", "2", "--grace", "0.2", "--", "sh", "-c", stubborn});
  wait_for_workers(2);
  kill(job, SIGTERM);
  EXPECT_EQ(status_of(job), 143);
  EXPECT_THAT(text("err"), HasSubstr("2 workers are still there: killed"));

  const pid_t impatient = start({"-n", "2", "--", "sh", "-c", stubborn});
  wait_for_workers(2);
  kill(impatient, SIGINT);
  wait_until([&] { return text("err").find("SIGINT: passed on") != std::string::npos; });
  kill(impatient, SIGINT);
  EXPECT_EQ(status_of(impatient), 130);
}

TEST_F(Launch, SuspendedAndContinued) {
  const pid_t job = start({"-n", "1", "--", "sh", "-c", "echo $$ > there_0; exec sleep 1000"});
  wait_for_workers(1);
  wait_until([&] { return !text("there_0").empty(); });
  const auto state = [](const std::string& process) {
    const std::string stat = of_system("/proc/" + process + "/stat");
    return stat.empty() ? ' ' : stat.at(stat.rfind(')') + 2);
  };
  const std::string worker = text("there_0").substr(0, text("there_0").find('\n'));
  kill(job, SIGTSTP);
  wait_until([&] { return state(worker) == 'T' && state(std::to_string(job)) == 'T'; });
  kill(job, SIGCONT);
  wait_until([&] { return state(worker) != 'T'; });
  kill(job, SIGTERM);
  EXPECT_EQ(status_of(job), 143);
}

// --- starting again ----------------------------------------------------------------------------------------

TEST_F(Launch, TheJobIsStartedAgain) {
  const Answer answer = shell(
      "lockstep launch -n 2 --restarts 3 --backoff 0.01 --log-dir logs -- sh -c 'echo try $LOCKSTEP_RESTART; "
      "echo "
      "$LOCKSTEP_SECRET >> secrets_$LOCKSTEP_RANK; [ $LOCKSTEP_RANK = 0 ] || [ $LOCKSTEP_RESTART = 2 ] || "
      "exit 4'");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.errors,
              AllOf(HasSubstr("restart 1 of 3, in 0.01 s"), HasSubstr("restart 2 of 3, in 0.02 s"),
                    Not(HasSubstr("restart 3 of 3")), HasSubstr("worker 1 (process")));
  EXPECT_EQ(text("logs/rank_1.log"), "try 0\n");
  EXPECT_EQ(text("logs/rank_1.restart_2.log"), "try 2\n");
  std::vector<std::string> secrets = lines_of(text("secrets_1"));
  std::sort(secrets.begin(), secrets.end());
  EXPECT_EQ(std::unique(secrets.begin(), secrets.end()) - secrets.begin(), 3)
      << "what is left of an earlier attempt cannot join this one";

  const Answer never = shell("lockstep launch -n 2 --restarts 1 --backoff 0.01 -- sh -c 'exit 4'");
  EXPECT_EQ(never.status, 4);
  EXPECT_THAT(never.errors, HasSubstr("1 restart did not help"));
  const Answer nothing = shell("lockstep launch -n 2 --restarts 5 -- nowhere");
  EXPECT_EQ(nothing.status, 127);
  EXPECT_THAT(nothing.errors, Not(HasSubstr("restart")));
}

TEST_F(Launch, AStoppedJobIsNotStartedAgain) {
  const pid_t job =
      start({"-n", "2", "--restarts", "3", "--", "sh", "-c", ": > there_$LOCKSTEP_RANK; exec sleep 1000"});
  wait_for_workers(2);
  kill(job, SIGTERM);
  EXPECT_EQ(status_of(job), 143);
  EXPECT_THAT(text("err"), Not(HasSubstr("restart")));
  // Also while it waits for the next attempt.
  const pid_t waiting =
      start({"-n", "1", "--restarts", "3", "--backoff", "1000", "--", "sh", "-c", "exit 1"});
  wait_until([&] { return text("err").find("restart 1 of 3") != std::string::npos; });
  kill(waiting, SIGTERM);
  EXPECT_EQ(status_of(waiting), 143);
}

TEST_F(Launch, AnElasticWorkerIsStartedAgainAlone) {
  const Answer answer = shell(
      "lockstep launch -n 3 --elastic --restarts 2 --backoff 0.01 -- sh -c 'echo start; if [ $LOCKSTEP_RANK "
      "= 2 ]; then [ "
      "$LOCKSTEP_RESTART = 2 ] && : > go; exit $((2 - LOCKSTEP_RESTART)); fi; while [ ! -e go ]; do sleep "
      "0.02; done'");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(lines_of(answer.output),
              UnorderedElementsAre("[0] start", "[1] start", "[2] start", "[2] start", "[2] start"));
  EXPECT_THAT(answer.errors, HasSubstr("restart 2 of 2: worker 2 alone, in 0.02 s"));
  EXPECT_THAT(answer.errors, ::testing::Not(HasSubstr("failed first")));
  EXPECT_EQ(shell("lockstep launch -n 2 --elastic --restarts 1 --backoff 0.01 -- sh -c 'exit 6'").status, 6);
}

// The run is as good as those who stay to its end.
TEST_F(Launch, AnElasticJobGoesOnWithoutAWorkerThatFailsTooOften) {
  const Answer answer = shell(
      "lockstep launch -n 3 --elastic --restarts 1 --backoff 0.01 -- sh -c 'if [ $LOCKSTEP_RANK = 2 ]; then "
      "[ "
      "$LOCKSTEP_RESTART = 1 ] && : > go; exit 3; fi; while [ ! -e go ]; do sleep 0.02; done; sleep 0.2'");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.errors, HasSubstr("no restarts are left; the others go on without it"));
}

// --- over ssh ----------------------------------------------------------------------------------------------

TEST_F(Launch, HostsAreReachedBySsh) {
  write_ssh();
  // A name that no machine has: the parts of one are shorter.
  const std::string unknown(70, 'x');
  const Answer answer = shell("lockstep launch --hosts a:2,b:1 --address " + unknown + " -- true");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.errors,
              AllOf(HasSubstr(": the name " + unknown + ", where rank 0 is to be met, is not known on"),
                    HasSubstr("--address")));

  const Answer good = shell(
      "export NCCL_DEBUG=INFO PRIVATE=x; lockstep launch --hosts a:2,me@b:1 --address "
      "10.1.2.3:12345 --env EXTRA='a b' -- sh -c 'echo $LOCKSTEP_RANK:$NCCL_DEBUG:$PRIVATE:$EXTRA; "
      "echo $LOCKSTEP_ADDRESS; pwd'");
  ASSERT_EQ(good.status, 0) << good.errors;
  for (const char* rank : {"0", "1", "2"}) {
    const std::string prefix = std::string("[") + rank + "] ";
    EXPECT_THAT(good.output,
                AllOf(HasSubstr(prefix + rank + ":INFO::a b\n"), HasSubstr(prefix + "10.1.2.3:12345\n"),
                      HasSubstr(prefix + fs::canonical(folder_).string() + "\n")));
  }
  EXPECT_THAT(text("ssh_calls"),
              AllOf(HasSubstr("BatchMode=yes"), HasSubstr("-- a exec "), HasSubstr("-- me@b exec ")));
  // Neither the secret nor what the user's variables hold is on a command line for all to see.
  EXPECT_THAT(text("ssh_calls"), AllOf(Not(HasSubstr("SECRET")), Not(HasSubstr("a b"))));
}

TEST_F(Launch, ArgumentsArriveAsTheyAre) {
  write_ssh();
  const std::string odd = R"odd('' ' ' 'a  b' "it's" '"' '$HOME' '`id`' '\' '*' ';' '&' '|' '%41' -- -n )odd"
                          R"odd("$(printf 'x\ny')" "$(printf '\344')")odd";
  const Answer here = shell("printf '<%s>\n' " + odd +
                            " > expected; lockstep launch --hosts a:1 -- sh -c "
                            "'printf \"<%s>\\n\" \"$@\" > received' sh " +
                            odd);
  EXPECT_EQ(here.status, 0) << here.errors;
  EXPECT_EQ(text("received"), text("expected"));
}

TEST_F(Launch, WhySshFailsIsSaidWithTheFix) {
  const auto expect = [&](const std::string& script, const char* says) {
    write_program("ssh", script);
    const Answer answer = shell("lockstep launch --hosts a:1,far:1 -- true");
    EXPECT_EQ(answer.status, 1) << script;
    EXPECT_THAT(answer.errors, AllOf(HasSubstr("lockstep launch: "), HasSubstr(says))) << script;
  };
  expect("echo 'far: Permission denied (publickey,password).' >&2; exit 255", "ssh-copy-id");
  expect("echo 'Host key verification failed.' >&2; exit 255", "Connect once by hand");
  expect("echo 'ssh: Could not resolve hostname far: Name or service not known' >&2; exit 255", "misspelt");
  expect("echo 'ssh: connect to host far port 22: Connection refused' >&2; exit 255", "Does sshd run there?");
  expect("echo 'ssh: connect to host far port 22: Connection timed out' >&2; exit 255", "does not answer");
  expect("echo 'sh: 1: exec: lockstep: not found' >&2; exit 127", "--tool");
  expect("exit 255", "ssh -o BatchMode=yes");
}

TEST_F(Launch, RemoteWorkersEndWithTheConnection) {
  write_ssh();
  const std::string argument = (folder_ / "left").string();
  write("left", "sleep 1000\n");
  const pid_t job =
      start({"--hosts", "a:2", "--", "sh", "-c", "sh " + argument + " & : > there_$LOCKSTEP_RANK; wait"});
  wait_for_workers(2);
  wait_until([&] { return processes_with(argument).size() >= 4; });
  // The end of ssh that is on this machine: in the launcher's group of processes for it, the agent in one of
  // its own.
  const std::vector<std::string> children =
      lines_of(of_system("/proc/" + std::to_string(job) + "/task/" + std::to_string(job) + "/children"));
  ASSERT_FALSE(children.empty());
  kill(-std::atoi(children[0].c_str()), SIGKILL);
  EXPECT_EQ(status_of(job), 1);
  wait_until([&] { return processes_with(argument).empty(); });
  EXPECT_THAT(text("err"), HasSubstr("the connection to a is lost, and with it workers 0-1"));
}

TEST_F(Launch, AnAgentThatHearsNothingEndsEverything) {
  // As where the network is cut: the connection stays open, and nobody speaks.
  write("left", "echo worker; sleep 1000\n");
  const launch::Preparation preparation{.ranks = {0},
                                        .workers = 1,
                                        .program = {"sh", (folder_ / "left").string()},
                                        .folder = folder_.string(),
                                        .silence_s = 0.3};
  write("lines", to_line(preparation) + to_line(launch::Start{.address = "a:1", .workers = {{0, {}}}}));
  const Answer answer =
      shell("mkfifo in; { cat lines; exec sleep 1000; } > in & lockstep launch-agent < in; kill $!");
  EXPECT_THAT(answer.output, HasSubstr("worker"));
  EXPECT_TRUE(processes_with((folder_ / "left").string()).empty());
}

// --- under Slurm -------------------------------------------------------------------------------------------

class LaunchUnderSlurm : public Launch {
 protected:
  void SetUp() override {
    Launch::SetUp();
    // Every task gets all of the input; their lines are mixed.
    write_program("srun", R"(echo "$@" > srun_call
while [ "${1#--}" != "$1" ]; do case $1 in --ntasks=*) tasks=${1#--ntasks=};; esac; shift; done
fifos=
for task in $(seq 0 $((tasks - 1))); do
  mkfifo fifo_$task
  SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$tasks "$@" < fifo_$task &
  fifos="$fifos fifo_$task"
done
tee $fifos > /dev/null
wait
rm $fifos)");
  }
};

TEST_F(LaunchUnderSlurm, TasksAreTheWorkers) {
  const Answer answer = shell(
      "export SLURM_JOB_ID=7 SLURM_NTASKS=3 SLURM_JOB_NUM_NODES=1 SLURM_PROCID=0; lockstep launch -- sh -c "
      "'echo "
      "$LOCKSTEP_RANK $SLURM_PROCID $SLURM_STEP_ID; head -c 3000 /dev/zero | tr \"\\\\0\" y'");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(lines_of(answer.output),
              UnorderedElementsAre("[0] 0 0 0", "[1] 1 1 0", "[2] 2 2 0", "[0] " + std::string(3000, 'y'),
                                   "[1] " + std::string(3000, 'y'), "[2] " + std::string(3000, 'y')));
  EXPECT_THAT(text("srun_call"), HasSubstr("--ntasks=3"));
  const Answer fails = shell(
      "export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=2; lockstep launch -- sh -c '[ "
      "$LOCKSTEP_RANK = 3 "
      "] && { echo bad; exit 11; }; exec sleep 1000'");
  EXPECT_EQ(fails.status, 11) << fails.errors;
  EXPECT_THAT(fails.errors, AllOf(HasSubstr("worker 3 (process "), HasSubstr("    | bad")));
}

TEST_F(LaunchUnderSlurm, ThisMachineWhereThatIsAskedForOrSrunHasGivenIt) {
  for (const char* line :
       {"export SLURM_JOB_ID=7; lockstep launch --no-slurm -n 2 -- sh -c 'echo $SLURM_STEP_ID'",
        "export SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1; lockstep launch -n 2 "
        "-- sh -c 'echo $SLURM_STEP_ID'"}) {
    const Answer answer = shell(line);
    EXPECT_EQ(answer.status, 0) << answer.errors;
    EXPECT_THAT(lines_of(answer.output), UnorderedElementsAre("[0] ", "[1] "));
    EXPECT_FALSE(fs::exists(folder_ / "srun_call"));
  }
  fs::remove(folder_ / ".bin/srun");
  // The machine may have an srun of its own.
  expect_one_line(
      "SLURM_JOB_ID=7 PATH=.bin .bin/lockstep launch -n 2 -- /bin/true 2>&1 | sed 's/ launch:/:/' >&2; exit "
      "1",
      "--no-slurm");
}

// --- mistakes ----------------------------------------------------------------------------------------------

TEST_F(Launch, MistakesAreOneLine) {
  expect_one_line("lockstep launch -n 0 -- true", "0 is not a whole number from 1", 2);
  expect_one_line("lockstep launch -n 2", "there is no program to start");
  expect_one_line("lockstep launch -- true", "how many workers? Write -n 4");
  expect_one_line("lockstep launch -n 2 --restart 3 -- true", "did you mean \"--restarts\"?", 2);
  expect_one_line("lockstep launch -n 2 true -- false", "there is a word before --: \"true\"", 2);
  expect_one_line("lockstep launch --hosts a:0 -- true",
                  "must be a whole number of at least 1, received \"0\"");
  expect_one_line("lockstep launch --hosts a:2,,b -- true", "there is an empty entry");
  expect_one_line("lockstep launch --hosts a:1,a:1 -- true", "a is there twice; write a:2");
  expect_one_line("lockstep launch --hosts a:1,localhost:1 -- true",
                  "is another machine on each of the hosts");
  expect_one_line("lockstep launch --hosts a:1,b:1 -n 3 -- true", "-n 3 is more than the 2 workers");
  expect_one_line("lockstep launch --hosts=-oProxyCommand=x:1 -- true", "an option of ssh, not a host");
  expect_one_line("lockstep launch -n 2 --show 2 -- true", "ranks from 0 to 1");
  expect_one_line("lockstep launch -n 2 --env NOWHERE -- true", "--env NOWHERE=VALUE");
  expect_one_line("lockstep launch -n 2 --address :9 -- true", "the host is missing");
  expect_one_line("lockstep launch -n 2 --address x:99999 -- true", "from 1 to 65535");
  expect_one_line("OMPI_COMM_WORLD_SIZE=2 lockstep launch -n 2 -- true",
                  "mpirun has started 2 of these already");
  expect_one_line("SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=4 lockstep launch -n 2 -- true",
                  "srun has started 4");
  expect_one_line("LOCKSTEP_RANK=0 LOCKSTEP_WORKERS=4 lockstep launch -n 2 -- true",
                  "lockstep launch has started 4");
  write("file", "");
  expect_one_line("lockstep launch -n 2 --log-dir file/x -- true", "file");
}

TEST_F(Launch, WhatIsWrongWithTheProgramIsSaid) {
  const auto expect = [&](const char* program, int status, const char* says) {
    const Answer answer = shell(std::string("lockstep launch -n 2 -- ") + program);
    EXPECT_EQ(answer.status, status) << program << answer.errors;
    EXPECT_THAT(answer.errors, HasSubstr(says)) << program;
    EXPECT_EQ(std::count(answer.errors.begin(), answer.errors.end(), '\n'),
              status == 127 || says[0] != '#' ? 1 : 2)
        << answer.errors;
  };
  expect("nowhere", 127, "there is no program nowhere in the folders of PATH");
  expect("./nowhere", 127, "there is no program ./nowhere (in the folder ");
  write("train", "#!/bin/sh\n");
  expect("train", 127, "called as ./train");
  expect("./train", 126, "chmod +x ./train");
  write("train.py", "print(1)\n");
  expect("./train.py", 126, "start it as python3 ./train.py");
  expect(".bin/../.bin", 126, "is a folder");
  fs::create_symlink("loop", folder_ / "loop");
  expect("loop/x", 127, "there is no program loop/x (Too many levels of symbolic links)");
  expect(("/" + std::string(5000, 'a')).c_str(), 127, "(File name too long)");
}

TEST_F(Launch, AFolderThatIsNotThereIsNamedWithTheReason) {
  const Answer answer = shell("lockstep launch -n 2 --directory /nowhere -- true");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.errors, HasSubstr("the folder /nowhere cannot be worked in on "));
  EXPECT_THAT(answer.errors, HasSubstr(": No such file or directory; name another with --directory"));
}

TEST_F(Launch, ADryRunSaysWhatWouldBeStarted) {
  const Answer answer = shell(
      "lockstep launch --hosts a:1,b:2 --env X=1 --dry-run -- ./train 'a b'; lockstep launch -n 2 --dry-run "
      "-- true");
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.output,
              AllOf(HasSubstr("on b, 2 workers:"), HasSubstr("ssh -T -o BatchMode=yes"),
                    HasSubstr("LOCKSTEP_RANK=2 LOCKSTEP_WORKERS=3 LOCKSTEP_ADDRESS='a:<a free port>'"),
                    HasSubstr("X=1 "), HasSubstr("./train 'a b'"), HasSubstr("taskset -c")));
}

}  // namespace
}  // namespace lockstep::cli
