#include "observe/cause_watch.h"

#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::observe {

CauseWatch::CauseWatch(std::string who, const Clock* clock)
    : who_(std::move(who)),
      clock_(clock != nullptr ? *clock : Clock::system()),
      next_ns_(clock_.now_ns() + kWindowNs) {}

void CauseWatch::judge(const StepClock& steps, const std::function<void(RunSummary&)>& complete) {
  const int64_t now_ns = clock_.now_ns();
  next_ns_ = now_ns + kWindowNs;
  RunSummary now = steps.summary();
  complete(now);
  const RunSummary window = between(last_, now);
  const int64_t made = observe::steps(window), before = observe::steps(now) - made;
  if (made <= kMinSteps) return;  // the window goes on
  last_ = std::move(now);
  const std::vector<Verdict> verdicts = observe::judge(window);
  const std::string cause = verdicts.empty() ? "" : verdicts[0].id;
  const bool first = !std::exchange(judged_, true);
  if (first || cause == cause_) {
    cause_ = cause;
    return;
  }
  // Not said yet, it is still a change when the minute is over.
  if (now_ns < quiet_until_ns_) return;
  quiet_until_ns_ = now_ns + kQuietNs;
  if (verdicts.empty())
    log(LogLevel::info, who_, ": from about step ", before, " on the run is no longer ", cause_);
  else
    log(LogLevel::warning, who_, ": from about step ", before, " on the run is ", cause, ": ",
        verdicts[0].cause, "; ", verdicts[0].evidence, "; fix: ", verdicts[0].fix,
        "; gain: ", verdicts[0].gain);
  cause_ = cause;
}

}  // namespace lockstep::observe
