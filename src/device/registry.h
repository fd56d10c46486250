// The logical devices of the process.
#pragma once

#include <source_location>
#include <span>
#include <string_view>

#include "lockstep/device/device.h"

namespace lockstep {

// Makes the devices at the first call, for which `what` is what the user called: errors name it.
std::span<Device* const> initialized_devices(std::string_view what, std::source_location where);

}  // namespace lockstep
