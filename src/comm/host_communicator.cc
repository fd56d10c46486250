#include "comm/host_communicator.h"

#include "lockstep/base/error.h"

namespace lockstep::comm {

void HostCommunicator::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted()) return;
    reason_ = reason;
    aborted_.store(true, std::memory_order_release);
  }
  interrupt();
}

void HostCommunicator::fail_aborted() const {
  const std::lock_guard lock(mutex_);
  fail(ErrorCode::io, std::source_location::current(), engine_, ", rank ", rank_, " of ", size_, ": ",
       reason_);
}

void HostCommunicator::fail_of(const char* what, const char* why) const {
  fail(ErrorCode::io, std::source_location::current(), engine_, ", rank ", rank_, " of ", size_, ": ", what,
       " failed: ", why);
}

}  // namespace lockstep::comm
