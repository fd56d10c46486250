// Where elements that come from the host are made.
#pragma once

#include <source_location>

#include "lockstep/device/device.h"

namespace lockstep {

// The current device where that is a CPU, else the first CPU.
inline Device& host_device(std::source_location where = std::source_location::current()) {
  Device& current = current_device(where);
  return current.kind() == DeviceKind::cpu ? current : device_by_name("/CPU:0", where);
}

}  // namespace lockstep
