// The update of a table of which a step reads few rows: an embedding.
//
// The table's gradient is zero but for the rows that were looked up. Every row is updated all the same, as
// Keras does it (moments decay where no gradient arrives), but no gradient of the table's size is ever made:
// the rows that have one are taken out and updated by themselves, the update passes over the whole table with
// a gradient of 0, and the rows are put back. That spares a pass that writes zeros, one that adds to them,
// and one that reads them.
#pragma once

#include <vector>

#include "graph/kernel.h"
#include "ops/elementwise/program.h"

namespace lockstep {

// Inputs are values [indices..., width...], indices, and then what `program` reads but its input number
// `gradient`, which is what scatter_add makes of values and indices. Each is like the table, or the same for
// all of its rows. Results are like the table, and may be written over an input.
extern const OpDef kSparseUpdate;

struct SparseUpdateAttrs {
  elementwise::ScalarProgram program;  // of an element of the table
  int64_t gradient = 0;
  int64_t rows = 0;  // of the table
  bool operator==(const SparseUpdateAttrs&) const = default;
  void visit(auto&& v) const { v("program", program), v("gradient", gradient), v("rows", rows); }
};

// What the kernels of every kind of device launch.
struct SparseUpdatePlan {
  explicit SparseUpdatePlan(const KernelRequest& request);

  // An operand of the table's shape, of which rows are taken or put back.
  struct Table {
    int operand;  // of the op: inputs, then outputs
    int64_t row_bytes;
    size_t rows_offset;  // of its rows [count, width...] in the workspace
  };

  int64_t count = 0, rows = 0, width = 1;
  DType dtype;  // of values and gradient
  std::vector<Table> taken, put;
  size_t sums_offset = 0;      // of the gradient's rows in the workspace
  size_t workspace_bytes = 0;  // of all rows; what a kernel needs beside them lies behind

  // The update of the rows that have a gradient: shape, strides, and for each operand of the program the
  // op's, or that of the rows in the workspace. Then that of the whole table, whose gradient is a constant.
  struct Pass {
    elementwise::ScalarProgram program;
    Shape shape;
    std::vector<Strides> input_strides, output_strides;
    struct Source {
      int operand = -1;  // of the op; -1: in the workspace
      size_t offset = 0;
    };
    std::vector<Source> operands;

    // The pointers for a launch.
    void bind(const LaunchArgs& args, std::vector<void*>& pointers) const;
  };
  Pass of_rows, of_table;

  // Whether an output may lie over an input of the op.
  bool in_place(int input, int output) const;

 private:
  std::vector<std::pair<int, int>> in_place_;
};

}  // namespace lockstep
