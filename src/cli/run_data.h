// The examples of a run.
#pragma once

#include "cli/run_file.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::cli {

struct RunData {
  keras::datasets::Examples train;
  keras::datasets::Examples validation;  // undefined where there are none
};

// Reads the examples and brings them to what the model takes: integer inputs get int32, others float32, scaled; where
// an example's size fits the model's input its shape is made to fit.
RunData load_data(const RunFile& run, const keras::Model& model);

}  // namespace lockstep::cli
