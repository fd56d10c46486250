// Carrying out a run: model, data, compile, fit, and the files it leaves.
#pragma once

#include <cstdio>
#include <string>

#include "cli/run_file.h"
#include "lockstep/distribute/strategy.h"

namespace lockstep::cli {

// What the command line adds to a run.
struct RunReports {
  std::string trained = {};      // what was asked for: the path of a run file, or a network
  std::FILE* out = stdout;       // progress, of the chief; fit's own bar always goes to standard output
  std::string step_log = {};     // a CSV of every step's own loss
  std::string tensorboard = {};  // a folder
  std::string record = {};       // a folder for the run's record; empty: its output
  bool tests = true;             // whether the model is tested, while it learns and at the end
};

// Trains under the strategy, prints how it goes and the report on the run, writes the run's files and gives
// the result: loss and metrics (of the validation examples where there are some), examples_per_s, devices,
// ...; where a signal ended training, its number as "signal"; where something could not be written although
// training went on, what as "problems". All that is to be written is opened before training begins. Throws
// Error where the run cannot be carried out. A strategy that prints reports itself (StrategyOptions::report)
// would print this one twice.
Json carry_out(const RunFile& run, const distribute::Strategy& strategy, const RunReports& reports);

// The model that the run starts from, not compiled unless its JSON says how.
keras::Model make_model(const RunFile& run);

}  // namespace lockstep::cli
