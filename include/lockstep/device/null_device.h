// The null device: a device without memory or arithmetic.
//
// Tensors on it have a shape and take (counted) space but hold no elements; functions are traced,
// planned and "run" without computing. So it answers what a program would cost anywhere else: shapes,
// flops, bytes and peak memory, for models far larger than this machine.
//
//   DeviceScope scope(null_device());
//   Variable w(Tensor::empty(DType::float32, {50000, 50000}));
//   ProgramStatistics statistics = step.statistics(x, y);
#pragma once

#include "lockstep/device/device.h"

namespace lockstep {

// One for the process; not among logical_devices().
Device& null_device();

}  // namespace lockstep
