#include "gpu/ranks.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "comm/free_address_test.h"
#include "lockstep/base/error.h"

namespace lockstep::testing {
namespace {

constexpr const char* kFlag = "--as-rank";

std::map<std::string, Scenario>& scenarios() {
  static std::map<std::string, Scenario> all;
  return all;
}

std::string read_all(int fd) {
  std::string text;
  char bytes[4096];
  for (ssize_t count = 0; (count = read(fd, bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(count));
  return text;
}

}  // namespace

RegisterScenario::RegisterScenario(const char* name, Scenario scenario) { scenarios()[name] = scenario; }

int run_as_rank(int argc, char** argv) {
  if (argc != 6 || std::strcmp(argv[1], kFlag) != 0) return -1;
  try {
    scenarios().at(argv[2])(std::atoi(argv[3]), std::atoi(argv[4]), argv[5]);
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

std::vector<RankResult> run_ranks(const char* scenario, int size, double seconds) {
  const std::string address = comm::free_address();
  struct Rank {
    pid_t pid = 0;
    int output = -1;
  };
  std::vector<Rank> ranks(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    // NCCL takes two ranks on one GPU for a mistake, unless they are on different machines.
    setenv("NCCL_HOSTID", ("rank" + std::to_string(r)).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_DEBUG", "WARN", 0);
    const std::string rank = std::to_string(r), count = std::to_string(size);
    const char* const arguments[] = {"gpu_tests",   kFlag,           scenario, rank.c_str(),
                                     count.c_str(), address.c_str(), nullptr};
    FILE* file = std::tmpfile();
    const int fd = dup(fileno(file));
    std::fclose(file);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    posix_spawn_file_actions_adddup2(&actions, fd, 2);
    Rank& started = ranks[static_cast<size_t>(r)];
    started.output = fd;
    if (posix_spawn(&started.pid, "/proc/self/exe", &actions, nullptr, const_cast<char* const*>(arguments),
                    environ) != 0)
      started.pid = 0;
    posix_spawn_file_actions_destroy(&actions);
  }
  for (const char* name : {"NCCL_HOSTID", "NCCL_SOCKET_IFNAME"}) unsetenv(name);

  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::vector<RankResult> results(ranks.size());
  size_t left = ranks.size();
  bool killed = false;
  while (left > 0) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      int status = 0;
      if (ranks[r].pid == 0 || waitpid(ranks[r].pid, &status, WNOHANG) != ranks[r].pid) continue;
      ranks[r].pid = 0;
      --left;
      results[r].status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      lseek(ranks[r].output, 0, SEEK_SET);
      results[r].output = read_all(ranks[r].output) + (killed ? "\nkilled: it took too long" : "");
      close(ranks[r].output);
    }
    if (!killed && std::chrono::steady_clock::now() > until) {
      killed = true;
      for (const Rank& rank : ranks)
        if (rank.pid != 0) kill(rank.pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return results;
}

}  // namespace lockstep::testing
