// Where and when something was written down: the machine's name and the time of day.
//
// What is measured takes lockstep/base/clock.h, which never goes back.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// As the system calls this machine; "localhost" where it has no name.
std::string host_name();

// By the machine's clock, which somebody may set.
int64_t milliseconds_since_1970();
double seconds_since_1970();

}  // namespace lockstep
