// The checks of the machine: from what was seen to what is wrong, why, and what to do. No check looks at
// anything but its arguments.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "doctor/surroundings.h"
#include "lockstep/doctor/doctor.h"

namespace lockstep::doctor {

struct CheckInfo {
  std::string_view name;
  std::string_view finds;  // one line, for the documentation
};

// Every name that a Finding can have. docs/doctor.md explains each.
std::span<const CheckInfo> all_checks();

// Problems first, in the order of all_checks() otherwise.
std::vector<Finding> diagnose(const Surroundings& seen);

// The same for runs that were made.
std::vector<Finding> diagnose(const std::vector<Trial>& trials);

// By severity, else as they stand.
void put_problems_first(std::vector<Finding>& findings);

}  // namespace lockstep::doctor
