#include "backends/cpu/elementwise/code_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/elementwise/kernel_testing.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu::testing {
namespace {

const std::vector<Access> kContiguous(3, Access::contiguous);

CodeKind best_kind() {
  const auto best = jit::best_isa();
  return !best ? CodeKind::interpreter : *best == jit::Isa::avx512 ? CodeKind::avx512 : CodeKind::avx2;
}

ScalarProgram times_constant(double value) {
  Writer w;
  w.output(w.op(Opcode::mul, {w.input(DType::float32), w.constant(DType::float32, value)}));
  return w.program;
}

TEST(CodeCache, CompilesAProgramOnce) {
  CodeCache cache(10);
  const auto first = cache.find(one_op(Opcode::add, DType::float32), kContiguous, best_kind(), false);
  const auto second = cache.find(one_op(Opcode::add, DType::float32), kContiguous, best_kind(), false);
  EXPECT_EQ(first, second);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(CodeCache, TellsApartWhatNeedsOtherCode) {
  CodeCache cache(10);
  const ScalarProgram program = one_op(Opcode::add, DType::float32);
  const auto base = cache.find(program, kContiguous, best_kind(), false);
  EXPECT_NE(base, cache.find(one_op(Opcode::sub, DType::float32), kContiguous, best_kind(), false));
  EXPECT_NE(base, cache.find(program, kContiguous, CodeKind::interpreter, false));
  if (best_kind() != CodeKind::interpreter) {
    EXPECT_NE(base, cache.find(program, kContiguous, best_kind(), true));
    const std::vector<Access> broadcast = {Access::contiguous, Access::broadcast, Access::contiguous};
    EXPECT_NE(base, cache.find(program, broadcast, best_kind(), false));
  }
}

TEST(CodeCache, ComparesConstantsByTheirBits) {
  CodeCache cache(10);
  const std::vector<Access> two(2, Access::contiguous);
  const auto find = [&](double value) { return cache.find(times_constant(value), two, best_kind(), false); };
  EXPECT_NE(find(0.0), find(-0.0));
  EXPECT_EQ(find(NAN), find(NAN));
  EXPECT_EQ(cache.size(), 3u);
}

TEST(CodeCache, DropsTheProgramNotUsedLongest) {
  CodeCache cache(2);
  const std::vector<Access> two(2, Access::contiguous);
  const auto find = [&](double value) { return cache.find(times_constant(value), two, best_kind(), false); };
  const auto one = find(1);
  const auto other = find(2);
  EXPECT_EQ(find(1), one);  // now 2 is the one not used longest
  find(3);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(find(1), one);
  EXPECT_NE(find(2), other);

  // What was dropped still runs for whoever holds it.
  float x[3] = {1, 2, 3};
  float y[3] = {};
  Block block;
  block.rows = 1;
  block.columns = 3;
  block.operands[0] = {reinterpret_cast<std::byte*>(x), 0, 4};
  block.operands[1] = {reinterpret_cast<std::byte*>(y), 0, 4};
  other->run(block);
  EXPECT_EQ(y[2], 6);
}

TEST(CodeCache, RefusesInvalidPrograms) {
  CodeCache cache(10);
  ScalarProgram program = one_op(Opcode::add, DType::float32);
  program.instructions[2].args[0] = 5;
  EXPECT_THROW(cache.find(program, kContiguous, best_kind(), false), Error);
  EXPECT_EQ(cache.size(), 0u);
}

TEST(CodeCache, ServesManyThreadsAtOnce) {
  CodeCache cache(16);
  std::vector<std::vector<std::shared_ptr<const BlockCode>>> found(4);
  const std::vector<Access> two(2, Access::contiguous);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < found.size(); ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i)
          found[t].push_back(cache.find(times_constant(i % 8), two, best_kind(), false));
      });
  }
  EXPECT_EQ(cache.size(), 8u);
  for (const auto& codes : found)
    for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i], found[0][i % 8]);
}

}  // namespace
}  // namespace lockstep::cpu::testing
