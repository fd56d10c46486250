// Programs that nobody would write, to find what nobody thought of.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <vector>

#include "backends/cpu/elementwise/kernel_testing.h"

namespace lockstep::cpu::testing {
namespace {

struct Wishes {
  int instructions = 30;
  std::vector<DType> dtypes;
  bool approximate = false;  // with functions whose last bits differ between implementations
};

bool is_approximate(Opcode op) { return op == Opcode::pow || (op >= Opcode::exp && op <= Opcode::cos); }

ScalarProgram random_program(const Wishes& wishes, uint32_t seed) {
  std::mt19937 random(seed);
  Writer w;
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t i = 0; i < 1 + pick(6); ++i) w.input(wishes.dtypes[pick(wishes.dtypes.size())]);
  const auto value_of = [&](DType dtype) -> int16_t {
    std::vector<int16_t> found;
    for (size_t i = 0; i < w.program.instructions.size(); ++i)
      if (w.program.instructions[i].dtype == dtype) found.push_back(static_cast<int16_t>(i));
    // Mostly recent ones, so that chains grow long; sometimes old ones, so that values live long.
    if (found.empty() || pick(12) == 0) {
      if (pick(3) != 0)
        return w.constant(dtype, dtype == DType::boolean ? 1.0 : static_cast<double>(pick(7)) - 2);
      return w.cast(static_cast<int16_t>(pick(w.program.instructions.size())), dtype);
    }
    return pick(4) ? found[found.size() - 1 - pick(std::min<size_t>(found.size(), 4))]
                   : found[pick(found.size())];
  };
  while (w.program.instructions.size() < static_cast<size_t>(wishes.instructions)) {
    const auto op = static_cast<Opcode>(pick(elementwise::kNumOpcodes));
    const DType dtype = wishes.dtypes[pick(wishes.dtypes.size())];
    if (op == Opcode::cast) {
      w.cast(value_of(dtype), wishes.dtypes[pick(wishes.dtypes.size())]);
      continue;
    }
    if (!accepts(op, dtype) || (!wishes.approximate && is_approximate(op) && is_floating(dtype))) continue;
    if (op == Opcode::select)
      w.op(op, {value_of(DType::boolean), value_of(dtype), value_of(dtype)});
    else if (arity(op) == 2)
      w.op(op, {value_of(dtype), value_of(dtype)});
    else
      w.op(op, {value_of(dtype)});
  }
  const size_t outputs = 1 + pick(5);
  for (size_t i = 0; i < outputs; ++i)
    w.output(static_cast<int16_t>(i == 0 ? w.program.instructions.size() - 1
                                         : pick(w.program.instructions.size())));
  return w.program;
}

std::string text(const ScalarProgram& program) {
  std::ostringstream out;
  out << program;
  return out.str();
}

void expect_same(const ScalarProgram& program, uint32_t seed, Implementation one, Implementation other) {
  const int64_t size = 1 + static_cast<int64_t>(seed * 7919 % 90);
  const std::vector<Array> inputs = interesting_inputs(program, size, seed);
  const std::vector<Array> expected = run(program, inputs, size, one);
  const std::vector<Array> got = run(program, inputs, size, other);
  for (size_t o = 0; o < got.size(); ++o)
    for (int64_t i = 0; i < size; ++i)
      ASSERT_TRUE(got[o].same(i, expected[o], i))
          << "seed " << seed << ": " << name(other) << " gives " << got[o].get(i) << ", " << name(one) << ' '
          << expected[o].get(i) << " for output " << o << " element " << i << " of\n"
          << text(program);
}

TEST(RandomPrograms, CompiledCodeAgreesWithTheInterpreter) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    Wishes wishes{.instructions = 5 + static_cast<int>(seed % 80), .dtypes = all_dtypes()};
    if (seed % 3 == 0) wishes.dtypes = {DType::float32, DType::boolean};
    if (seed % 3 == 1)
      wishes.dtypes = {DType::float32, DType::bfloat16, DType::int32, DType::boolean, DType::uint8};
    const ScalarProgram program = random_program(wishes, seed);
    for (const Implementation implementation : compiled())
      ASSERT_NO_FATAL_FAILURE(expect_same(program, seed, Implementation::interpreter, implementation));
  }
}

TEST(RandomPrograms, LongProgramsAgreeToo) {
  for (uint32_t seed = 1000; seed < 1025; ++seed) {
    const ScalarProgram program = random_program({.instructions = 400, .dtypes = all_dtypes()}, seed);
    for (const Implementation implementation : compiled())
      ASSERT_NO_FATAL_FAILURE(expect_same(program, seed, Implementation::interpreter, implementation));
  }
}

TEST(RandomPrograms, BothInstructionSetsComputeTheSameBits) {
  if (compiled().size() < 2) GTEST_SKIP() << "this processor runs one instruction set";
  for (uint32_t seed = 2000; seed < 2150; ++seed) {
    std::vector<DType> dtypes = all_dtypes();
    std::erase(dtypes, DType::int64);  // which AVX2 leaves to the interpreter
    const ScalarProgram program =
        random_program({.instructions = 60, .dtypes = dtypes, .approximate = true}, seed);
    ASSERT_NO_FATAL_FAILURE(expect_same(program, seed, Implementation::avx2, Implementation::avx512));
  }
}

TEST(RandomPrograms, AFusedProgramGivesTheBitsOfItsOpsRunOneByOne) {
  for (uint32_t seed = 3000; seed < 3060; ++seed) {
    const ScalarProgram program = random_program(
        {.instructions = 25, .dtypes = {DType::float32, DType::int32, DType::boolean}, .approximate = true},
        seed);
    constexpr int64_t kSize = 53;
    const std::vector<Array> inputs = interesting_inputs(program, kSize, seed);
    for (const Implementation implementation : everything()) {
      std::vector<Array> values;
      for (const Instruction& i : program.instructions) {
        ScalarProgram single;
        Instruction instruction = i;
        std::vector<Array> args;
        if (i.op == Opcode::input) {
          values.push_back(inputs[static_cast<size_t>(i.index)]);
          continue;
        }
        for (int16_t& arg : instruction.args) {
          if (arg < 0) continue;
          const Array& value = values[static_cast<size_t>(arg)];
          arg = static_cast<int16_t>(args.size());
          single.inputs.push_back(value.dtype());
          single.instructions.push_back({.op = Opcode::input, .dtype = value.dtype(), .index = arg});
          args.push_back(value);
        }
        single.instructions.push_back(instruction);
        single.outputs = {static_cast<int16_t>(single.instructions.size() - 1)};
        values.push_back(run(single, args, kSize, implementation)[0]);
      }
      const std::vector<Array> fused = run(program, inputs, kSize, implementation);
      for (size_t o = 0; o < fused.size(); ++o)
        ASSERT_TRUE(fused[o] == values[static_cast<size_t>(program.outputs[o])])
            << "seed " << seed << " by " << name(implementation) << " output " << o << " of\n"
            << text(program);
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu::testing
