// Where the elements of datasets are made.
#pragma once

#include "lockstep/device/device.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// The current device where that is a CPU, else the first CPU.
inline Device& host_device() {
  Device& current = current_device();
  return current.kind() == DeviceKind::cpu ? current : device_by_name("/CPU:0");
}

}  // namespace lockstep::data
