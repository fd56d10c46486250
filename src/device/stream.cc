#include "device/stream.h"

#include "device/device_backend.h"

namespace lockstep {

void Stream::wait_for(Stream& other) {
  if (&other == this || !other.asynchronous_) return;
  const std::lock_guard lock(other.handover_mutex_);
  if (!other.handover_) other.handover_ = other.device_.new_event();
  other.handover_->record(other);
  other.handover_->wait(*this);
}

}  // namespace lockstep
