#include "keras/training/interrupt.h"

#include <atomic>
#include <csignal>

namespace lockstep::keras {
namespace {

std::atomic<int> depth{0};
std::atomic<int> asked{0};  // the signal; 0: none
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void on_interrupt(int signal) {
  asked = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() : outermost_(depth++ == 0) {
  if (!outermost_) return;
  asked = 0;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction now {};
    sigaction(kSignals[i], nullptr, &now);
    if (now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = on_interrupt;
    sigaction(kSignals[i], &ours, nullptr);
    installed_[i] = true;
  }
}

Interrupt::~Interrupt() {
  --depth;
  for (size_t i = 0; i < std::size(kSignals); ++i)
    if (installed_[i]) std::signal(kSignals[i], SIG_DFL);
}

int Interrupt::signal() { return asked; }

}  // namespace lockstep::keras
