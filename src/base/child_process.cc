#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <thread>

#include "base/file.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThrew = 3;

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(kThrew);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

[[noreturn]] void be_the_child(
    int descriptor, const std::function<void(const std::function<void(std::string_view)>&)>& work) {
  int status = 0;
  try {
    work([descriptor](std::string_view text) { write_all(descriptor, text); });
  } catch (...) {
    status = kThrew;
  }
  _exit(status);
}

// Reads until the end of the child's output; false where the deadline came first.
bool read_until(int descriptor, Clock::time_point deadline, std::string& output) {
  char buffer[4096];
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count == 0) return true;
    if (count < 0 && errno != EINTR) return true;
    if (count > 0) output.append(buffer, static_cast<size_t>(count));
  }
}

// The child's status; nothing where it does not end in time, as one that a driver holds in the kernel.
bool wait_for(pid_t child, int& status, Clock::time_point deadline) {
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) return false;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

ChildResult run_in_child(const std::function<void(const std::function<void(std::string_view)>& write)>& work,
                         double timeout_s) {
  ChildResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.mishap = "could not be started: " + system_message(errno);
    return result;
  }
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    be_the_child(ends[1], work);
  }
  close(ends[1]);
  if (child < 0) {
    result.mishap = "could not be started: " + system_message(errno);
    close(ends[0]);
    return result;
  }
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  const bool in_time = read_until(ends[0], Clock::now() + limit, result.output);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  const bool ended = wait_for(child, status, Clock::now() + std::chrono::seconds(1));
  if (!in_time)
    result.mishap = detail::concat("did not answer within ", timeout_s, " s");
  else if (!ended)
    result.mishap = "fell silent and does not end";
  else if (WIFSIGNALED(status))
    result.mishap =
        detail::concat("died of signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  else if (WEXITSTATUS(status) != 0)
    result.mishap = detail::concat("gave up with status ", WEXITSTATUS(status));
  result.finished = result.mishap.empty();
  result.ended = in_time && ended;
  return result;
}

}  // namespace lockstep
