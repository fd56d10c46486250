#include "backends/cpu/elementwise/vector_program.h"

#include <algorithm>
#include <bit>

namespace lockstep::cpu::jit {

bool is_load(Op op) { return op >= Op::load8 && op <= Op::load_mask; }
bool is_splat(Op op) { return op >= Op::splat8 && op <= Op::splat_mask; }
bool is_store(Op op) { return op >= Op::store8 && op <= Op::store_mask; }

int Builder::append(VectorInstruction instruction) {
  if (instruction.op == Op::constant || is_splat(instruction.op)) {
    instruction.invariant = true;
  } else if (!is_load(instruction.op) && !is_store(instruction.op)) {
    instruction.invariant = std::ranges::all_of(instruction.args, [&](int arg) {
      return arg < 0 || program_.code[static_cast<size_t>(arg)].invariant;
    });
  }
  program_.code.push_back(instruction);
  return static_cast<int>(program_.code.size()) - 1;
}

Vec Builder::constant(uint64_t bits, Lane lane) {
  const int kind = is_mask(lane) ? 2 : is_wide(lane) ? 1 : 0;
  const auto [entry, is_new] = constants_.try_emplace({bits, kind}, -1);
  if (is_new) {
    VectorInstruction instruction;
    instruction.lane = lane;
    instruction.is_mask = is_mask(lane);
    instruction.bits = bits;
    entry->second = append(instruction);
  }
  return {this, entry->second, lane};
}

Vec Builder::f32(float value) { return constant(std::bit_cast<uint32_t>(value), Lane::f32); }
Vec Builder::i32(int32_t value) { return constant(static_cast<uint32_t>(value), Lane::i32); }
Vec Builder::f64(double value) { return constant(std::bit_cast<uint64_t>(value), Lane::f64); }
Vec Builder::i64(int64_t value) { return constant(static_cast<uint64_t>(value), Lane::i64); }
Vec Builder::mask(bool value, Lane lane) { return constant(value ? ~uint64_t{0} : 0, lane); }

Vec Builder::load(int operand, Op op, Lane lane, int part) {
  VectorInstruction instruction;
  instruction.op = op;
  instruction.lane = lane;
  instruction.is_mask = is_mask(lane);
  instruction.immediate = static_cast<uint8_t>(part);
  instruction.operand = static_cast<int16_t>(operand);
  return {this, append(instruction), lane};
}

void Builder::store(int operand, Op op, Vec value, int part) {
  VectorInstruction instruction;
  instruction.op = op;
  instruction.lane = value.lane;
  instruction.immediate = static_cast<uint8_t>(part);
  instruction.operand = static_cast<int16_t>(operand);
  instruction.args[0] = value.id;
  append(instruction);
}

Vec Builder::emit(Op op, Lane lane, Lane result, std::initializer_list<Vec> args, Details details) {
  VectorInstruction instruction;
  instruction.op = op;
  instruction.lane = lane;
  instruction.is_mask = is_mask(result);
  instruction.immediate = details.immediate;
  instruction.function = details.function;
  std::ranges::transform(args, instruction.args.begin(), &Vec::id);
  return {this, append(instruction), result};
}

void remove_dead_code(VectorProgram& program) {
  std::vector<char> alive(program.code.size(), 0);
  for (size_t i = program.code.size(); i-- > 0;) {
    const VectorInstruction& instruction = program.code[i];
    if (is_store(instruction.op)) alive[i] = 1;
    if (!alive[i]) continue;
    for (const int arg : instruction.args)
      if (arg >= 0) alive[static_cast<size_t>(arg)] = 1;
  }
  std::vector<int> moved(program.code.size(), -1);
  size_t next = 0;
  for (size_t i = 0; i < program.code.size(); ++i) {
    if (!alive[i]) continue;
    moved[i] = static_cast<int>(next);
    VectorInstruction instruction = program.code[i];
    for (int& arg : instruction.args)
      if (arg >= 0) arg = moved[static_cast<size_t>(arg)];
    program.code[next++] = instruction;
  }
  program.code.resize(next);
}

namespace {

Vec same(Op op, std::initializer_list<Vec> args, uint8_t immediate = 0) {
  const Vec& first = *args.begin();
  return first.builder->emit(op, first.lane, first.lane, args, {.immediate = immediate});
}

}  // namespace

Vec operator+(Vec a, Vec b) { return same(Op::add, {a, b}); }
Vec operator-(Vec a, Vec b) { return same(Op::sub, {a, b}); }
Vec operator*(Vec a, Vec b) { return same(Op::mul, {a, b}); }
Vec operator/(Vec a, Vec b) { return same(Op::div, {a, b}); }
Vec operator&(Vec a, Vec b) { return same(is_mask(a.lane) ? Op::mask_and : Op::bit_and, {a, b}); }
Vec operator|(Vec a, Vec b) { return same(is_mask(a.lane) ? Op::mask_or : Op::bit_or, {a, b}); }
Vec operator^(Vec a, Vec b) { return same(is_mask(a.lane) ? Op::mask_xor : Op::bit_xor, {a, b}); }
Vec operator!(Vec mask) { return same(Op::mask_not, {mask}); }

Vec and_not(Vec a, Vec b) {
  const Op op = is_mask(a.lane) ? Op::mask_andn : Op::bit_andn;
  return a.builder->emit(op, a.lane, a.lane, {b, a}, {});
}

Vec shift_left(Vec a, int bits) { return same(Op::shift_left, {a}, static_cast<uint8_t>(bits)); }
Vec shift_right(Vec a, int bits) { return same(Op::shift_right, {a}, static_cast<uint8_t>(bits)); }
Vec shift_right_signed(Vec a, int bits) {
  return same(Op::shift_right_signed, {a}, static_cast<uint8_t>(bits));
}

Vec raw_maximum(Vec a, Vec b) { return same(Op::maximum, {a, b}); }
Vec raw_minimum(Vec a, Vec b) { return same(Op::minimum, {a, b}); }
Vec sqrt(Vec a) { return same(Op::sqrt, {a}); }
Vec fma(Vec a, Vec b, Vec c) { return same(Op::fma, {a, b, c}); }
Vec fnma(Vec a, Vec b, Vec c) { return same(Op::fnma, {a, b, c}); }
Vec round(Vec a, Rounding mode) { return same(Op::round, {a}, mode); }

Vec compare(Vec a, Predicate predicate, Vec b) {
  const Lane result = is_wide(a.lane) ? Lane::mask64 : Lane::mask;
  return a.builder->emit(Op::compare, a.lane, result, {a, b}, {.immediate = predicate});
}

Vec is_nan(Vec a) { return compare(a, kUnordered, a); }

Vec select(Vec mask, Vec a, Vec b) {
  return mask.builder->emit(Op::select, a.lane, a.lane, {mask, a, b}, {});
}

Vec patch(Vec result, Vec mask, LaneFunction function, Vec a, Vec b) {
  return result.builder->emit(Op::patch, result.lane, result.lane, {result, a, b, mask},
                              {.function = function});
}

Vec sign_bit(Vec a) {
  Builder& b = *a.builder;
  return a & (is_wide(a.lane) ? as(a.lane, b.i64(INT64_MIN)) : as(a.lane, b.i32(INT32_MIN)));
}

Vec abs(Vec a) {
  Builder& b = *a.builder;
  return a & (is_wide(a.lane) ? as(a.lane, b.i64(INT64_MAX)) : as(a.lane, b.i32(INT32_MAX)));
}

Vec negate(Vec a) {
  Builder& b = *a.builder;
  return a ^ (is_wide(a.lane) ? as(a.lane, b.i64(INT64_MIN)) : as(a.lane, b.i32(INT32_MIN)));
}

Vec constant_like(Vec a, double value) {
  Builder& b = *a.builder;
  switch (a.lane) {
    case Lane::f32: return b.f32(static_cast<float>(value));
    case Lane::f64: return b.f64(value);
    case Lane::i32: return b.i32(static_cast<int32_t>(value));
    case Lane::i64: return b.i64(static_cast<int64_t>(value));
    default: return b.mask(value != 0, a.lane);
  }
}

}  // namespace lockstep::cpu::jit
