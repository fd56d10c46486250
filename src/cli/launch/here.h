// The line that errors of this folder are given: a person at a terminal is shown none.
#pragma once

#include <source_location>

namespace lockstep::launch {

// Not inline: g++ 12 would keep the data of one file only, and the others could not be linked.
constexpr std::source_location kHere = std::source_location::current();

}  // namespace lockstep::launch
