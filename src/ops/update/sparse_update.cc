#include "ops/update/sparse_update.h"

#include <algorithm>

#include "ops/elementwise/ops.h"

namespace lockstep {
namespace {

Shape table_shape(const Shape& values, const Shape& indices, int64_t rows) {
  Shape shape = {rows};
  for (int i = indices.rank(); i < values.rank(); ++i) shape.push_back(values[i]);
  return shape;
}

// An input that has no rows of its own: it is read for every row alike.
bool same_for_rows(const Shape& input, const Shape& table) {
  return input.rank() < table.rank() || (input[0] == 1 && table[0] != 1);
}

SpecList infer_sparse_update(const InferContext& c) {
  const auto& [program, gradient, rows] = c.attrs<SparseUpdateAttrs>();
  const Shape &values = c.shape(0), &indices = c.shape(1);
  c.check(c.inputs.size() == program.inputs.size() + 1, ErrorCode::invalid_argument, "takes ",
          program.inputs.size() + 1, " inputs, received ", c.inputs.size());
  c.check(gradient >= 0 && gradient < static_cast<int64_t>(program.inputs.size()),
          ErrorCode::invalid_argument, "the program has no input ", gradient);
  c.check(c.dtype(0) == program.inputs[static_cast<size_t>(gradient)], ErrorCode::dtype_mismatch,
          "the values must be of the gradient's dtype ", program.inputs[static_cast<size_t>(gradient)],
          ", received ", c.inputs[0]);
  c.check(c.dtype(0) != DType::boolean, ErrorCode::dtype_mismatch, "takes numbers, received ", c.inputs[0]);
  c.check(c.dtype(1) == DType::int32 || c.dtype(1) == DType::int64, ErrorCode::dtype_mismatch,
          "indices must be int32 or int64, received ", c.inputs[1]);
  c.check(rows >= 0, ErrorCode::invalid_argument, "the number of rows is not negative, received ", rows);
  c.check(values.rank() >= indices.rank() && values.first(indices.rank()) == indices,
          ErrorCode::shape_mismatch, "values must begin with the indices' shape ", indices, ", received ",
          values);
  const Shape table = table_shape(values, indices, rows);
  for (size_t i = 0, input = 2; i < program.inputs.size(); ++i) {
    if (static_cast<int64_t>(i) == gradient) continue;
    const TensorSpec& spec = c.inputs[input++];
    c.check(spec.dtype == program.inputs[i], ErrorCode::dtype_mismatch, "input ", i,
            " of the program must be of dtype ", program.inputs[i], ", received ", spec);
    c.check(spec.shape == table || (same_for_rows(spec.shape, table) &&
                                    broadcast(spec.shape, table, "sparse_update", c.where) == table),
            ErrorCode::shape_mismatch, "input ", i, " of the program must be like the table ", table,
            " or the same for its rows, received ", spec);
  }
  SpecList results;
  for (const int16_t value : program.outputs)
    results.push_back({program.instructions[static_cast<size_t>(value)].dtype, table});
  return results;
}

// The sums, and the program for the rows that have one and once more for all.
Cost cost_sparse_update(const InferContext& c, std::span<const TensorSpec> outputs) {
  Cost cost = cost_elementwise(c, outputs);
  const int64_t table = outputs.empty() ? 0 : outputs[0].shape.size(), values = c.shape(0).size();
  cost.flops = values + (table + values) * elementwise::arithmetic(c.attrs<SparseUpdateAttrs>().program);
  return cost;
}

// The program with a constant in the place of an input.
elementwise::ScalarProgram with_zero(elementwise::ScalarProgram program, int64_t input) {
  for (elementwise::Instruction& instruction : program.instructions) {
    if (instruction.op != elementwise::Opcode::input || instruction.index < input) continue;
    if (instruction.index > input)
      --instruction.index;
    else
      instruction = {.op = elementwise::Opcode::constant, .dtype = instruction.dtype};
  }
  program.inputs.erase(program.inputs.begin() + input);
  return program;
}

}  // namespace

constinit const OpDef kSparseUpdate{.name = "sparse_update",
                                    .min_inputs = 2,
                                    .max_inputs = -1,
                                    .infer = infer_sparse_update,
                                    .cost = cost_sparse_update,
                                    .traits = {.updates_in_place = true}};

namespace {
const RegisterOp registered(kSparseUpdate);
}

SparseUpdatePlan::SparseUpdatePlan(const KernelRequest& request)
    : count(request.shape(1).size()), rows(request.attrs<SparseUpdateAttrs>().rows), dtype(request.dtype(0)) {
  const auto& [program, gradient, _] = request.attrs<SparseUpdateAttrs>();
  const Shape table = table_shape(request.shape(0), request.shape(1), rows);
  for (int i = 1; i < table.rank(); ++i) width *= table[i];
  Shape some = table;
  some[0] = count;
  of_rows.program = program;
  of_rows.shape = some;
  of_table.program = with_zero(program, gradient);
  of_table.shape = table;
  const auto take_workspace = [&](DType element) {
    const size_t offset = workspace_bytes;
    workspace_bytes += (static_cast<size_t>(count * width) * size_of(element) + 255) / 256 * 256;
    return offset;
  };
  const auto operand = [&](int number, DType element, bool output) {
    const Table entry{number, width * static_cast<int64_t>(size_of(element)), take_workspace(element)};
    (output ? put : taken).push_back(entry);
    (output ? of_rows.output_strides : of_rows.input_strides).push_back(contiguous_strides(some));
    (output ? of_table.output_strides : of_table.input_strides).push_back(contiguous_strides(table));
    of_rows.operands.push_back({-1, entry.rows_offset});
    of_table.operands.push_back({number});
  };
  const auto inputs = static_cast<int>(request.inputs.size());
  for (int i = 0, input = 2; i < static_cast<int>(program.inputs.size()); ++i) {
    if (i == gradient) {
      sums_offset = take_workspace(dtype);
      of_rows.input_strides.push_back(contiguous_strides(some));
      of_rows.operands.push_back({-1, sums_offset});
      continue;
    }
    const OperandLayout& layout = request.inputs[static_cast<size_t>(input)];
    if (same_for_rows(layout.spec.shape, table)) {
      for (Pass* pass : {&of_rows, &of_table}) {
        pass->input_strides.push_back(broadcast_strides(layout.spec.shape, layout.strides, pass->shape));
        pass->operands.push_back({input});
      }
    } else {
      operand(input, layout.spec.dtype, false);
    }
    ++input;
  }
  for (int o = 0; o < static_cast<int>(request.outputs.size()); ++o) {
    const DType element = request.outputs[static_cast<size_t>(o)].spec.dtype;
    operand(inputs + o, element, true);
    for (const Table& t : taken)
      if (size_of(request.dtype(t.operand)) == size_of(element)) in_place_.emplace_back(t.operand, o);
  }
}

void SparseUpdatePlan::Pass::bind(const LaunchArgs& args, std::vector<void*>& pointers) const {
  for (size_t i = 0; i < operands.size(); ++i)
    pointers[i] = operands[i].operand >= 0 ? args.inputs[operands[i].operand]
                                           : static_cast<char*>(args.workspace) + operands[i].offset;
}

bool SparseUpdatePlan::in_place(int input, int output) const {
  return std::find(in_place_.begin(), in_place_.end(), std::pair(input, output)) != in_place_.end();
}

}  // namespace lockstep
