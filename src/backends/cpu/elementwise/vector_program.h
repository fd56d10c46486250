// Vector code before it has registers: straight-line, each instruction one machine operation (or a
// few) over a vector of 32-bit lanes, or half as many 64-bit ones.
//
// A scalar program is lowered to this form, transcendental functions are written in it, and then
// everything shares one register allocator and one assembler. Values are numbered by the
// instruction that makes them; how the bits of a value are read is up to each use.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backends/cpu/elementwise/block.h"

namespace lockstep::cpu::jit {

enum class Isa : uint8_t { avx2, avx512 };

// 32-bit lanes in a vector: the elements that one pass through the code computes.
constexpr int lanes(Isa isa) { return isa == Isa::avx512 ? 16 : 8; }

// What the lanes of a value are. A mask says yes or no for 32-bit lanes, a mask64 for 64-bit ones.
enum class Lane : uint8_t { f32, i32, f64, i64, mask, mask64 };

constexpr bool is_mask(Lane lane) { return lane == Lane::mask || lane == Lane::mask64; }
constexpr bool is_wide(Lane lane) { return lane == Lane::f64 || lane == Lane::i64; }
constexpr bool is_float(Lane lane) { return lane == Lane::f32 || lane == Lane::f64; }

// Values of 64-bit lanes come in two parts: 0 holds the elements of the lower 32-bit lanes, 1 those
// of the upper. Operations that go from or to one of them have it as their immediate.
// clang-format off
enum class Op : uint8_t {
  constant,  // `bits` in every lane; for masks 0 or ~0

  // Reading operand `operand`, one element per lane, or one element for all lanes (splat). 8- and
  // 16-bit integers are extended with zeros, float16 becomes f32, bytes that are not 0 set a mask.
  load8, load16, load32, load64, load_half, load_mask,
  splat8, splat16, splat32, splat64, splat_half, splat_mask,
  // Writing a to it, keeping the low bits.
  store8, store16, store32, store64, store_half, store_mask,

  add, sub, mul, div, sqrt,
  maximum,      // a > b ? a : b, so b where either is NaN or both are zeros
  minimum,      // a < b ? a : b
  fma,          // a * b + c
  fnma,         // c - a * b
  round,        // immediate: Rounding
  scale,        // a * 2^b for integral b, rounded once; AVX-512 only
  exponent,     // floor(log2(|a|)); AVX-512 only
  significand,  // |a| times the power of two that brings it into [0.75, 1.5); AVX-512 only

  bit_and, bit_or, bit_xor, bit_andn,           // bit_andn: ~a & b
  shift_left, shift_right, shift_right_signed,  // by the immediate

  compare,  // to a mask; immediate: Predicate
  select,   // a ? b : c, a being a mask
  mask_and, mask_or, mask_xor, mask_andn, mask_not,
  mask_part,  // mask to mask64
  mask_join,  // mask64 parts to mask

  to_i32_trunc,   // f32; out of range gives the lowest integer
  to_f32,         // i32
  round_half,     // f32 to the nearest float16, as f32
  widen,          // f32 to f64, i32 to i64 (AVX-512 only); immediate: part
  widen_to_f64,   // i32; immediate: part
  narrow,         // f64 to f32, i64 to i32 (AVX-512 only); a and b are the parts
  narrow_to_i32,  // f64, truncated; a and b are the parts
  narrow_to_f32,  // i64; a and b are the parts; AVX-512 only
  to_i64_trunc,   // f64; AVX-512 only
  to_f64,         // i64; AVX-512 only

  patch,  // a, with function(b, c) in the lanes where d, a mask, is set
};
// clang-format on

enum Rounding : uint8_t { kNearest = 8, kFloor = 9, kCeil = 10, kTruncate = 11 };

// The processor's encodings; integers know `equal` and `greater` alone.
enum Predicate : uint8_t {
  kEqual = 0,
  kUnordered = 3,
  kNotEqual = 4,
  kLess = 17,
  kLessEqual = 18,
  kNotLess = 21,
  kNotLessEqual = 22,
  kNotGreaterEqual = 25,
  kGreaterEqual = 29,
  kGreater = 30,
};

// Computes result[i] = f(a[i], b[i]) for the lanes whose bit is set.
using LaneFunction = void (*)(void* result, const void* a, const void* b, uint32_t set);

struct VectorInstruction {
  Op op = Op::constant;
  Lane lane = Lane::f32;  // of the operands, where op works on several kinds
  uint8_t immediate = 0;
  bool is_mask = false;    // the result is one
  bool invariant = false;  // the same for all elements of a row
  int16_t operand = -1;
  std::array<int, 4> args = {-1, -1, -1, -1};
  uint64_t bits = 0;
  LaneFunction function = nullptr;
};

struct VectorProgram {
  Isa isa = Isa::avx512;
  std::vector<DType> operands;  // element types in memory, inputs then outputs
  std::vector<Access> accesses;
  std::vector<VectorInstruction> code;
};

bool is_load(Op op);
bool is_splat(Op op);
bool is_store(Op op);

class Builder;

// A value being built on, with the way its lanes are to be read.
struct Vec {
  Builder* builder = nullptr;
  int id = -1;
  Lane lane = Lane::f32;
};

class Builder {
 public:
  explicit Builder(VectorProgram& program) : program_(program) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Isa isa() const { return program_.isa; }
  const VectorInstruction& definition(Vec v) const { return program_.code[static_cast<size_t>(v.id)]; }

  Vec f32(float value);
  Vec i32(int32_t value);
  Vec f64(double value);
  Vec i64(int64_t value);
  Vec mask(bool value, Lane lane = Lane::mask);

  Vec load(int operand, Op op, Lane lane, int part = 0);
  void store(int operand, Op op, Vec value, int part = 0);

  struct Details {
    uint8_t immediate = 0;
    LaneFunction function = nullptr;
  };
  // Lane is how the operation reads its operands, `result` how its result is to be read.
  Vec emit(Op op, Lane lane, Lane result, std::initializer_list<Vec> args, Details details);

 private:
  Vec constant(uint64_t bits, Lane lane);
  int append(VectorInstruction instruction);

  VectorProgram& program_;
  std::map<std::pair<uint64_t, int>, int> constants_;
};

// Drops what no store depends on.
void remove_dead_code(VectorProgram& program);

inline Vec as(Lane lane, Vec v) { return {v.builder, v.id, lane}; }

Vec operator+(Vec a, Vec b);
Vec operator-(Vec a, Vec b);
Vec operator*(Vec a, Vec b);
Vec operator/(Vec a, Vec b);
Vec operator&(Vec a, Vec b);  // bits, or masks
Vec operator|(Vec a, Vec b);
Vec operator^(Vec a, Vec b);
Vec operator!(Vec mask);
Vec and_not(Vec a, Vec b);  // a without b
Vec shift_left(Vec a, int bits);
Vec shift_right(Vec a, int bits);
Vec shift_right_signed(Vec a, int bits);

// As the machine does them: see Op.
Vec raw_maximum(Vec a, Vec b);
Vec raw_minimum(Vec a, Vec b);
Vec sqrt(Vec a);
Vec fma(Vec a, Vec b, Vec c);
Vec fnma(Vec a, Vec b, Vec c);
Vec round(Vec a, Rounding mode);

Vec compare(Vec a, Predicate predicate, Vec b);
Vec is_nan(Vec a);
Vec select(Vec mask, Vec a, Vec b);
Vec patch(Vec result, Vec mask, LaneFunction function, Vec a, Vec b);

Vec abs(Vec a);       // floats
Vec negate(Vec a);    // floats
Vec sign_bit(Vec a);  // floats: that bit alone
Vec constant_like(Vec a, double value);

}  // namespace lockstep::cpu::jit
