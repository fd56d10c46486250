// Ctrl-C that stops a run after the step that is under way.
#pragma once

#include <csignal>

namespace lockstep::keras {

// While one lives, the first SIGINT only sets requested(); the second does what it did before. Handlers of
// the program's own are left alone. Nests: the outermost counts.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool requested();

 private:
  bool outermost_;
  bool installed_ = false;
};

}  // namespace lockstep::keras
