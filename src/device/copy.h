// Copies between devices.
#pragma once

#include <cstddef>

#include "lockstep/device/device.h"

namespace lockstep {

// `bytes` from one device's memory to another's, counted on both. Where one has no memory they are only
// counted.
void copy_across(Device& from, const void* source, Device& to, void* target, size_t bytes);

}  // namespace lockstep
