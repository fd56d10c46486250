#include "execute/run_ahead.h"

namespace lockstep::execute {

RunAhead::RunAhead(Device& device, RunAheadOptions options)
    : device_(device), options_(options), queues_(device.stream() != nullptr) {}

void RunAhead::wait() const { device_.wait_until(marks_[(marked_ - options_.depth) % marks_.size()]); }

void RunAhead::queued(int64_t runs) {
  if (!queues_) return;
  unmarked_ += runs;
  if (unmarked_ < options_.runs_per_mark) return;
  marks_[marked_++ % marks_.size()] = device_.mark();
  unmarked_ = 0;
}

}  // namespace lockstep::execute
