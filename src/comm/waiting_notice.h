// What a process says in the log while it waits for others.
#pragma once

#include "comm/connection.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {

// Says for whom this process waits, at once after a few seconds and then every few.
class WaitingNotice {
 public:
  template <class Who>
  void say(const Who& who) {
    if (SteadyClock::now() < next_) return;
    next_ = in_seconds(kSeconds);
    log(LogLevel::info, "group: for ",
        std::chrono::duration_cast<std::chrono::seconds>(SteadyClock::now() - began_).count(),
        " s waiting for ", who());
  }

 private:
  static constexpr double kSeconds = 5;
  const Moment began_ = SteadyClock::now();
  Moment next_ = in_seconds(kSeconds);
};

}  // namespace lockstep::comm
