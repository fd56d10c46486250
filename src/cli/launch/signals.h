// Signals to this process as something to wait for beside pipes.
#pragma once

#include <csignal>
#include <optional>

namespace lockstep::launch {

// While it lives, signals to stop, to suspend and to go on, and those of children and users, arrive here
// alone. One at a time, on the main thread of a program that has no other.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }  // readable where there is one
  std::optional<int> next();

 private:
  int fd_;
  sigset_t before_;
};

// Whether a process that gets it is to end.
bool asks_to_stop(int signal);

}  // namespace lockstep::launch
