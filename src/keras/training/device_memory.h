// How much memory a device has.
#pragma once

#include <cstdint>
#include <span>

#include "device/gpu_driver.h"

namespace lockstep::keras {

// Bytes: the device's limit, else all of the GPU (one of `gpus`) that it is or is a share of, or of the host.
int64_t memory_of(const Device& device, std::span<const PhysicalGpu> gpus = machine_gpus().list);

}  // namespace lockstep::keras
