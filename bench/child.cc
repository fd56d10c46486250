#include "bench/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <source_location>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

std::source_location here(std::source_location where = std::source_location::current()) { return where; }

}  // namespace

Child::Child(std::string name, const std::vector<std::string>& command) : name_(std::move(name)) {
  signal(SIGPIPE, SIG_IGN);  // a child that has died is an error of its own answer only
  int to_child[2], from_child[2];
  require(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(from_child, O_CLOEXEC) == 0, ErrorCode::io, here(),
          "peers: no pipe: ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
  if (error != 0) {
    pid_ = -1;
    close_pipes();
    fail(ErrorCode::not_found, here(), "peers: cannot start ", command[0], ": ", std::strerror(error));
  }
}

Child::~Child() {
  close_pipes();
  if (pid_ < 0) return;
  for (int waited_ms = 0; waitpid(pid_, nullptr, WNOHANG) == 0; waited_ms += 10) {
    if (waited_ms == 2000) kill(pid_, SIGKILL);
    usleep(10000);
  }
}

void Child::ask(const nlohmann::json& request) {
  const std::string line = request.dump() + "\n";
  require(write(in_, line.data(), line.size()) == static_cast<ssize_t>(line.size()), ErrorCode::io, here(),
          "peers: ", name_, " has ended");
}

nlohmann::json Child::receive(std::chrono::seconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  size_t newline;
  while ((newline = received_.find('\n')) == std::string::npos) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd ready{.fd = out_, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) == 0) {
      kill(pid_, SIGKILL);
      fail(ErrorCode::io, here(), "peers: ", name_, " gave no answer in ", patience.count(), " s");
    }
    char text[4096];
    const ssize_t n = read(out_, text, sizeof text);
    require(n > 0, ErrorCode::io, here(), "peers: ", name_, " ended without an answer");
    received_.append(text, static_cast<size_t>(n));
  }
  nlohmann::json message = nlohmann::json::parse(received_.substr(0, newline));
  received_.erase(0, newline + 1);
  return message;
}

void Child::close_pipes() {
  for (int* fd : {&in_, &out_})
    if (*fd >= 0) close(std::exchange(*fd, -1));
}

}  // namespace lockstep::bench
