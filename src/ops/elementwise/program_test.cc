#include "ops/elementwise/program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::elementwise {
namespace {

ScalarProgram sum_of_two() {
  ScalarProgram program;
  program.inputs = {DType::float32, DType::float32};
  program.instructions = {{.op = Opcode::input, .dtype = DType::float32, .index = 0},
                          {.op = Opcode::input, .dtype = DType::float32, .index = 1},
                          {.op = Opcode::add, .dtype = DType::float32, .args = {0, 1, -1}}};
  program.outputs = {2};
  return program;
}

ErrorCode refusal(const ScalarProgram& program) {
  try {
    validate(program);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "accepted:\n" << program;
  return ErrorCode::internal;
}

TEST(ScalarProgram, EveryOpcodeHasANameOfItsOwnAndAnArity) {
  std::set<std::string> names;
  for (int i = 0; i < kNumOpcodes; ++i) {
    const auto op = static_cast<Opcode>(i);
    names.insert(name(op));
    EXPECT_GE(arity(op), 0);
    EXPECT_LE(arity(op), 3);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumOpcodes));
  EXPECT_STREQ(name(Opcode::less_equal), "less_equal");
  EXPECT_STREQ(name(Opcode::select), "select");
  EXPECT_EQ(arity(Opcode::constant), 0);
  EXPECT_EQ(arity(Opcode::erf), 1);
  EXPECT_EQ(arity(Opcode::mod), 2);
  EXPECT_EQ(arity(Opcode::select), 3);
}

TEST(ScalarProgram, PrintsOneLinePerInstruction) {
  ScalarProgram program = sum_of_two();
  program.instructions.push_back({.op = Opcode::constant, .dtype = DType::float32, .immediate = 0.5});
  program.instructions.push_back({.op = Opcode::less, .dtype = DType::boolean, .args = {2, 3, -1}});
  program.outputs = {2, 4};
  std::ostringstream out;
  out << program;
  EXPECT_EQ(out.str(),
            "%0 = input float32 #0\n"
            "%1 = input float32 #1\n"
            "%2 = add float32 %0 %1\n"
            "%3 = constant float32 0.5\n"
            "%4 = less bool %2 %3\n"
            "store %2 %4\n");
}

TEST(ScalarProgram, HashAndEqualityFollowEveryField) {
  const ScalarProgram base = sum_of_two();
  EXPECT_EQ(base, sum_of_two());
  EXPECT_EQ(hash(base), hash(sum_of_two()));
  const auto differs = [&](auto change) {
    ScalarProgram other = sum_of_two();
    change(other);
    EXPECT_NE(base, other);
    EXPECT_NE(hash(base), hash(other));
  };
  differs([](ScalarProgram& p) { p.inputs[1] = DType::float16; });
  differs([](ScalarProgram& p) { p.inputs.push_back(DType::float32); });
  differs([](ScalarProgram& p) { p.instructions[2].op = Opcode::sub; });
  differs([](ScalarProgram& p) { p.instructions[2].dtype = DType::float64; });
  differs([](ScalarProgram& p) { p.instructions[2].args = {1, 0, -1}; });
  differs([](ScalarProgram& p) { p.instructions[1].index = 0; });
  differs([](ScalarProgram& p) { p.outputs = {1}; });
  differs([](ScalarProgram& p) { p.outputs = {2, 2}; });
}

TEST(ScalarProgram, ConstantsAreComparedByTheirBits) {
  const auto constant = [](double value) {
    ScalarProgram program;
    program.instructions = {{.op = Opcode::constant, .dtype = DType::float32, .immediate = value}};
    program.outputs = {0};
    return program;
  };
  EXPECT_EQ(constant(NAN), constant(NAN));
  EXPECT_NE(constant(0.0), constant(-0.0));
  EXPECT_NE(hash(constant(0.0)), hash(constant(-0.0)));
  EXPECT_NE(hash(constant(1.0)), hash(constant(2.0)));
}

TEST(ScalarProgram, AcceptsWhatIsWellFormed) {
  EXPECT_NO_THROW(validate(sum_of_two()));
  EXPECT_NO_THROW(validate(ScalarProgram{}));
}

TEST(ScalarProgram, RefusesArgumentsThatAreNotEarlierValues) {
  for (const int16_t arg : {int16_t{2}, int16_t{3}, int16_t{-1}}) {
    ScalarProgram program = sum_of_two();
    program.instructions[2].args[1] = arg;
    EXPECT_EQ(refusal(program), ErrorCode::invalid_argument);
  }
  ScalarProgram program = sum_of_two();
  program.instructions[2].args[2] = 0;
  EXPECT_EQ(refusal(program), ErrorCode::invalid_argument);
}

TEST(ScalarProgram, RefusesOperandsThatDoNotExistOrAreOfAnotherDtype) {
  ScalarProgram program = sum_of_two();
  program.instructions[0].index = 2;
  EXPECT_EQ(refusal(program), ErrorCode::invalid_argument);
  program = sum_of_two();
  program.inputs[0] = DType::bfloat16;
  EXPECT_EQ(refusal(program), ErrorCode::dtype_mismatch);
  program = sum_of_two();
  program.outputs = {3};
  EXPECT_EQ(refusal(program), ErrorCode::invalid_argument);
}

TEST(ScalarProgram, RefusesDtypesThatDoNotFitTheOpcode) {
  const auto with = [](Opcode op, DType operand, DType result) {
    ScalarProgram program = sum_of_two();
    program.inputs = {operand, operand};
    program.instructions[0].dtype = program.instructions[1].dtype = operand;
    program.instructions[2].op = op;
    program.instructions[2].dtype = result;
    if (arity(op) == 1) program.instructions[2].args = {0, -1, -1};
    return program;
  };
  EXPECT_EQ(refusal(with(Opcode::add, DType::boolean, DType::boolean)), ErrorCode::dtype_mismatch);
  EXPECT_EQ(refusal(with(Opcode::add, DType::float32, DType::float64)), ErrorCode::dtype_mismatch);
  EXPECT_EQ(refusal(with(Opcode::exp, DType::int32, DType::int32)), ErrorCode::dtype_mismatch);
  EXPECT_EQ(refusal(with(Opcode::less, DType::float32, DType::float32)), ErrorCode::dtype_mismatch);
  EXPECT_EQ(refusal(with(Opcode::logical_and, DType::int32, DType::int32)), ErrorCode::dtype_mismatch);
  EXPECT_NO_THROW(validate(with(Opcode::less, DType::boolean, DType::boolean)));
  EXPECT_NO_THROW(validate(with(Opcode::floor, DType::int64, DType::int64)));
  EXPECT_NO_THROW(validate(with(Opcode::cast, DType::int64, DType::boolean)));

  ScalarProgram mixed = sum_of_two();
  mixed.inputs[1] = mixed.instructions[1].dtype = DType::int32;
  EXPECT_EQ(refusal(mixed), ErrorCode::dtype_mismatch);

  ScalarProgram select = sum_of_two();
  select.instructions.push_back({.op = Opcode::select, .dtype = DType::float32, .args = {2, 0, 1}});
  EXPECT_EQ(refusal(select), ErrorCode::dtype_mismatch);
  select.instructions[2] = {.op = Opcode::less, .dtype = DType::boolean, .args = {0, 1, -1}};
  EXPECT_NO_THROW(validate(select));
}

TEST(ScalarProgram, RefusesMoreOperandsThanAKernelTakes) {
  ScalarProgram program = sum_of_two();
  program.inputs.resize(kMaxOperands - 1, DType::float32);
  EXPECT_NO_THROW(validate(program));
  program.inputs.push_back(DType::float32);
  EXPECT_EQ(refusal(program), ErrorCode::invalid_argument);
}

TEST(ScalarProgram, MessagesShowTheInstruction) {
  ScalarProgram program = sum_of_two();
  program.instructions[2].args[1] = 7;
  try {
    validate(program);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("%2 = add float32 %0 %7"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace lockstep::elementwise
