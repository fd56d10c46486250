// The logical devices of this test program.
#pragma once

#include <vector>

#include "lockstep/device/device.h"

namespace lockstep {

// The first `count` devices, of one thread each; there are eight.
std::vector<Device*> first_devices(int count);

// A device of two threads.
Device& two_thread_device();

}  // namespace lockstep
