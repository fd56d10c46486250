#include "execute/staged_input.h"

#include "device/copy.h"

namespace lockstep::execute {
namespace {

constexpr size_t kPrefetched = 256 << 10;  // bytes from which on a copy beside the computation pays

}  // namespace

StagedInput::StagedInput(Device& device)
    : device_(&device), captures_graphs_(backend_of(device).captures_graphs()) {}

Stream& StagedInput::stream() const { return backend_of(*device_).compute_stream(); }

bool StagedInput::is_usual(const void* source) {
  for (const void*& place : usual_) {
    if (!place) place = source;
    if (place == source) return true;
  }
  return false;
}

void* StagedInput::bring(Device& from, void* source, size_t bytes) {
  const bool here = &from == device_;
  if (here && (!captures_graphs_ || is_usual(source))) return source;
  if (!copy_ || copy_->bytes() < bytes)
    copy_ = std::make_unique<Storage>(*device_, bytes, std::source_location::current());
  void* const target = copy_->data();
  if (here) {
    stream().copy(target, source, bytes);
  } else if (from.kind() == DeviceKind::cpu && bytes >= kPrefetched) {
    // The device still computes with what the last run left there: the copy from the host overlaps with that.
    const Storage prefetched(*device_, bytes, std::source_location::current(), true);
    copy_across(from, source, *device_, prefetched.data(), bytes);
    stream().copy(target, prefetched.data(), bytes);
  } else {
    copy_across(from, source, *device_, target, bytes);
  }
  return target;
}

}  // namespace lockstep::execute
