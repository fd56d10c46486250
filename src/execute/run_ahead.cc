#include "execute/run_ahead.h"

#include "device/device_backend.h"

namespace lockstep::execute {

RunAhead::RunAhead(Stream& stream, RunAheadOptions options) : stream_(stream), options_(options) {
  for (auto& mark : marks_) mark = stream.device().new_event();
}

void RunAhead::wait() const { marks_[(marked_ - options_.depth) % marks_.size()]->synchronize(); }

void RunAhead::queued(int64_t runs) {
  if (!stream_.asynchronous()) return;  // marks would take a small step longer, and nobody waits for them
  unmarked_ += runs;
  if (unmarked_ < options_.runs_per_mark) return;
  marks_[marked_++ % marks_.size()]->record(stream_);
  unmarked_ = 0;
}

}  // namespace lockstep::execute
