#include "keras/training/interrupt.h"

#include <atomic>
#include <csignal>

namespace lockstep::keras {
namespace {

std::atomic<int> depth{0};
std::atomic<bool> asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void on_interrupt(int signal) {
  asked = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() : outermost_(depth++ == 0) {
  if (!outermost_) return;
  asked = false;
  struct sigaction now {};
  sigaction(SIGINT, nullptr, &now);
  if (now.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_handler = on_interrupt;
  sigaction(SIGINT, &ours, nullptr);
  installed_ = true;
}

Interrupt::~Interrupt() {
  --depth;
  if (installed_) std::signal(SIGINT, SIG_DFL);
}

bool Interrupt::requested() { return asked; }

}  // namespace lockstep::keras
