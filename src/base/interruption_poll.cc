#include "base/interruption_poll.h"

#include <algorithm>
#include <atomic>

#include "lockstep/base/interruption.h"

namespace lockstep {
namespace {

std::atomic<void (*)()> interruption_check = nullptr;

}  // namespace

void set_interruption_check(void (*check)()) { interruption_check.store(check, std::memory_order_release); }

void InterruptionPoll::look() {
  using std::chrono::milliseconds;
  constexpr int kMostCalls = 1 << 14;
  const Clock::time_point now = Clock::now();
  if (now - looked_ < milliseconds(1))
    stride_ = std::min(2 * stride_, kMostCalls);
  else if (now - looked_ > milliseconds(10))
    stride_ = std::max(stride_ / 2, 1);
  looked_ = now;
  calls_ = 0;
  if (now - asked_ < milliseconds(100)) return;
  asked_ = now;
  if (auto* check = interruption_check.load(std::memory_order_acquire)) check();
}

}  // namespace lockstep
