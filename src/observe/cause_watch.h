// Says while a run goes on that it is held up by something else than before.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {

class StepClock;

// One thread at a time. It looks at what came in the last ten seconds, and logs a change once per minute at
// most; what the run begins with is told by its report.
class CauseWatch {
 public:
  // `who` begins the message: "fit". `clock` is not owned; null: Clock::system().
  explicit CauseWatch(std::string who, const Clock* clock = nullptr);

  // After a step. `complete` adds what the step clock does not know: how the run was made, what its input
  // says of itself.
  void look(const StepClock& steps, const std::function<void(RunSummary&)>& complete) {
    if (clock_.now_ns() >= next_ns_) [[unlikely]]
      judge(steps, complete);
  }

  static constexpr int64_t kWindowNs = 10'000'000'000;
  static constexpr int64_t kQuietNs = 60'000'000'000;

 private:
  void judge(const StepClock& steps, const std::function<void(RunSummary&)>& complete);

  const std::string who_;
  const Clock& clock_;
  int64_t next_ns_;
  int64_t quiet_until_ns_ = 0;
  RunSummary last_;
  bool judged_ = false;
  std::string cause_;  // the id of the largest verdict; empty: none
};

}  // namespace lockstep::observe
