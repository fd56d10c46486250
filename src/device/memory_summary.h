// A device's memory over a run: what its ledger and its allocator know.
#pragma once

#include "lockstep/device/device.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep {

observe::MemorySummary memory_summary(const Device& device);

}  // namespace lockstep
