// A run's examples, read and brought to what its model takes.
#pragma once

#include "cli/run_file.h"
#include "lockstep/keras/model.h"

namespace lockstep::cli {

struct RunData {
  keras::Batch train;
  keras::Batch validation;  // of no examples where there are none
  // Where the training examples are from, with the names of the columns or classes that were found there:
  // other examples are read by these, in whatever order they have them.
  Source source = {};
};

// The source, in which columns of a table and classes of a folder that it does not name itself are those of
// another one of its kind.
Source read_like(Source source, const Source& other);

int64_t examples_in(const keras::Batch& examples);
// The first `count` of them from `begin` on.
keras::Batch rows(const keras::Batch& examples, int64_t begin, int64_t count);
inline keras::Data data_of(const keras::Batch& examples) {
  return {examples.x, examples.y, examples.sample_weight};
}

struct LoadOptions {
  bool labels = true;   // false: they are not looked at, and need not be there
  bool shuffle = true;  // false: files of folders in the order of their names
};

// Reads the examples and brings them to what the model takes: integer inputs get int32, others float32
// (float64 where the model takes that), scaled; where an example's size fits the model's input its shape is
// made to fit. x, y and sample_weight are in the order of the model's inputs and outputs.
RunData load_data(const RunFile& run, const keras::Model& model, const LoadOptions& options = {});

}  // namespace lockstep::cli
