#include "keras/training/agreement.h"

#include <algorithm>

#include "comm/connection.h"
#include "comm/workers.h"

namespace lockstep::keras {

Agreement::Wishes Agreement::after_step(const Wishes& own) {
  if (!strategy_.workers()) return own;
  return ++steps_ < next_ ? Wishes() : settle(own);
}

Agreement::Wishes Agreement::settle(const Wishes& own) {
  if (!strategy_.workers()) return own;
  constexpr double kSeconds = 0.25;
  constexpr int64_t kMost = 1000;
  const auto now = std::chrono::steady_clock::now();
  const double each =
      std::chrono::duration<double>(now - asked_).count() / static_cast<double>(std::max<int64_t>(1, steps_));
  const std::string part =
      comm::MessageWriter().put(own.stop).put(int32_t{own.signal}).put(own.newcomers).put(each).take();
  Wishes all;
  double slowest = 1e-6;
  for (const std::string& one : strategy_.workers()->gather("whether the run goes on", part)) {
    comm::MessageReader reader(one);
    all.stop = reader.get<bool>() || all.stop;
    all.signal = std::max<int>(all.signal, reader.get<int32_t>());
    all.newcomers = reader.get<bool>() || all.newcomers;
    slowest = std::max(slowest, reader.get<double>());
  }
  next_ = std::clamp(static_cast<int64_t>(kSeconds / slowest), int64_t{1}, kMost);
  steps_ = 0;
  asked_ = std::chrono::steady_clock::now();
  return all;
}

}  // namespace lockstep::keras
