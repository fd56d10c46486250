#include "device/device_backend.h"

namespace lockstep {

DeviceBackend::DeviceBackend(DeviceKind kind, int index, int threads)
    : kind_(kind),
      index_(index),
      threads_(threads),
      name_("/" + std::string(lockstep::name(kind)) + ":" + std::to_string(index)),
      ledger_(name_, index) {}

DeviceBackend::~DeviceBackend() = default;

std::unique_ptr<CapturedGraph> DeviceBackend::capture_graph(std::span<const CapturedLaunch>) {
  return nullptr;
}

DeviceCounters DeviceBackend::counters() const {
  return {kernels_.load(), flops_.load(), bytes_in_.load(), bytes_out_.load()};
}

void DeviceBackend::reset_counters() { kernels_ = flops_ = bytes_in_ = bytes_out_ = 0; }

}  // namespace lockstep
