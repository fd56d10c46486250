// The digits run on several logical devices.
//
// fit() drives one device; this trains the same model through a replicated step instead, each device on its slice of
// every batch.
#pragma once

#include "cli/run.h"

namespace lockstep::cli {

// As carry_out(), for a run whose data is the built-in digits. `reproducible`: the same bits on any number of devices.
Json carry_out_replicated(const RunFile& run, bool reproducible, const RunReports& reports);

}  // namespace lockstep::cli
