// From what was seen to what is shown.
#pragma once

#include <vector>

#include "doctor/surroundings.h"
#include "lockstep/doctor/doctor.h"

namespace lockstep::doctor {

// For people.
std::vector<Section> sections_of(const Surroundings& seen);
// For programs: everything.
Json facts_of(const Surroundings& seen);

// Sections, facts and the findings of all checks; no runs.
Report report_on(const Surroundings& seen);

}  // namespace lockstep::doctor
