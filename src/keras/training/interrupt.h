// Ctrl-C, and a system that wants the machine back, stop a run after the step that is under way.
#pragma once

#include <array>
#include <csignal>
#include <iterator>

namespace lockstep::keras {

// While one lives, the first SIGINT or SIGTERM only sets signal(); the second does what it did before.
// Handlers of the program's own are left alone. Nests: the outermost counts.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static int signal();  // 0: none came

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};

  bool outermost_;
  std::array<bool, std::size(kSignals)> installed_{};
};

}  // namespace lockstep::keras
