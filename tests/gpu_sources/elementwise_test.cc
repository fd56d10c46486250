// Elementwise kernels, groups of them, and updates of tables, as text that compiles.
#include <cstdlib>
#include <set>

#include "compile/passes/fusion.h"
#include "gpu/small_nets.h"
#include "gpu_sources/gpu_sources.h"
#include "graph/emit.h"
#include "lockstep/base/error.h"
#include "sparse_tables.h"

namespace lockstep::testing {
namespace {

using elementwise::Instruction;
using elementwise::Opcode;
using elementwise::ScalarProgram;

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int i = 0; i < kNumDTypes; ++i) all.push_back(static_cast<DType>(i));
  return all;
}

using ElementwiseSources = GpuSources;

// Every opcode that takes operands of this dtype, each in a result of its own.
ScalarProgram all_of(DType dtype, std::set<Opcode>& met) {
  ScalarProgram program;
  program.inputs = {dtype, dtype, DType::boolean};
  for (int16_t i = 0; i < 3; ++i)
    program.instructions.push_back(
        {.op = Opcode::input, .dtype = program.inputs[static_cast<size_t>(i)], .index = i});
  const auto add = [&](const Instruction& instruction) {
    ScalarProgram longer = program;
    longer.instructions.push_back(instruction);
    longer.outputs.push_back(static_cast<int16_t>(program.instructions.size()));
    try {
      validate(longer);
    } catch (const Error&) {
      return;  // not of this dtype
    }
    met.insert(instruction.op);
    program = longer;
  };
  for (const DType to : all_dtypes()) add({.op = Opcode::cast, .dtype = to, .args = {0, -1, -1}});
  add({.op = Opcode::constant, .dtype = dtype, .immediate = 1});
  for (int i = 0; i < elementwise::kNumOpcodes; ++i) {
    const auto op = static_cast<Opcode>(i);
    Instruction instruction{.op = op, .dtype = dtype};
    if (op == Opcode::input || op == Opcode::constant || op == Opcode::cast) continue;
    if (op == Opcode::select) instruction.args[0] = 2;
    for (int k = op == Opcode::select ? 1 : 0; k < elementwise::arity(op); ++k)
      instruction.args[static_cast<size_t>(k)] = static_cast<int16_t>(k % 2);
    add(instruction);
    if (dtype == DType::boolean) continue;
    instruction.dtype = DType::boolean;  // comparisons
    add(instruction);
  }
  met.insert(Opcode::input);
  return program;
}

TEST_F(ElementwiseSources, EveryOpcodeOfEveryDType) {
  const DeviceScope scope(gpu());
  std::set<Opcode> met;
  for (const DType dtype : all_dtypes()) {
    SCOPED_TRACE(name(dtype));
    const ScalarProgram program = all_of(dtype, met);
    const TensorList inputs = {Tensor::empty(dtype, {4, 7}), Tensor::empty(dtype, {1, 7}),
                               Tensor::empty(DType::boolean, {4, 1})};
    const int before = launches_of("elementwise");
    emit(compile::kFused, inputs, compile::FusedAttrs{program, {4, 7}, {}}, std::source_location::current());
    EXPECT_EQ(launches_of("elementwise"), before + 1);
  }
  EXPECT_EQ(met.size(), static_cast<size_t>(elementwise::kNumOpcodes));
}

TEST_F(ElementwiseSources, UpdatesThatAreOneLaunch) {
  const DeviceScope scope(gpu());
  setenv("LOCKSTEP_WHOLE_STEP_FUSION", "0", 1);
  keras::Sequential model = made(Net{.hidden = {8, 8}, .inputs = 5});
  const int before = driver().made().groups;
  model.train_on_batch(
      keras::Batch{{models::random_inputs({32, 5}, 1)}, {models::random_labels(32, 10, 1)}, {}});
  EXPECT_GT(driver().made().groups, before);
}

TEST_F(ElementwiseSources, UpdatesOfTables) {
  const DeviceScope scope(gpu());
  for (const TableCase& c : table_cases()) {
    if (c.name != "sgd" && c.name != "amsgrad" && c.name != "in_16_bits") continue;
    SCOPED_TRACE(c.name);
    TrainedTable table(c);
    const int before = driver().made().table_updates;
    table.train(How::sparse);
    EXPECT_NE(table.explained().find("sparse_update"), std::string::npos) << table.explained();
    EXPECT_GT(driver().made().table_updates, before);
  }
}

// That the tests above can fail.
TEST_F(ElementwiseSources, AWrongNameDoesNotCompile) {
  const std::string head = "extern \"C\" __global__ void elementwise(float* x) { *x = ";
  driver().compile(head + "sqrtf(*x); }", "elementwise");
  try {
    driver().compile(head + "square_root(*x); }", "elementwise");
    ADD_FAILURE() << "it was compiled";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("\"square_root\" is undefined"), std::string::npos) << error.message();
  }
  EXPECT_THROW(driver().compile(head + "cosf(*x); }", "elementwise_"), Error) << "there is no such kernel";
}

}  // namespace
}  // namespace lockstep::testing
