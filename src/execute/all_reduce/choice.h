// Who adds up what the devices of a program hold, and why: for the executor, and for people.
#pragma once

#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/execute/function.h"

namespace lockstep::compile {

enum class SumMethod : uint8_t {
  threads,         // CPUs: the devices' own threads
  kernels,         // GPUs: a kernel on each reads what all hold
  copied_kernels,  // the same, of copies: not every GPU can read the others' memory
  nccl,
};

struct SumChoice {
  SumMethod method = SumMethod::threads;
  std::string reason;
};

// As much of a device as the choice depends on.
struct SumDevice {
  std::string name;
  DeviceKind kind = DeviceKind::gpu;
  int physical = 0;
  bool reads_all = true;  // it can follow pointers into the memory of the others
};

// `missing`: why NCCL cannot be used, empty where it can; asked only where it matters, because that loads it. Throws
// Error(invalid_argument) or Error(unsupported) where NCCL is asked for and cannot be had.
SumChoice choose_sum(std::span<const SumDevice> devices, bool reproducible, CrossDeviceOps asked,
                     const std::function<std::string()>& missing,
                     std::source_location where = std::source_location::current());
SumChoice choose_sum(std::span<Device* const> devices, bool reproducible, CrossDeviceOps asked,
                     std::source_location where = std::source_location::current());

}  // namespace lockstep::compile
