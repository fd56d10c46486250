// What the tests of this folder share: writing programs, and running them over arrays.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cpu/elementwise/jit.h"
#include "backends/cpu/elementwise/kernel.h"
#include "ops/elementwise/program.h"

namespace lockstep::cpu::testing {

using elementwise::Instruction;
using elementwise::Opcode;
using elementwise::ScalarProgram;
using Implementation = ElementwiseOptions::Implementation;
using Streaming = ElementwiseOptions::Streaming;

// Writes programs; each call returns the number of a value.
class Writer {
 public:
  int16_t input(DType dtype) {
    program.inputs.push_back(dtype);
    return again(static_cast<int16_t>(program.inputs.size() - 1));
  }
  // Another instruction that reads an operand the program has already.
  int16_t again(int16_t index) {
    return append({.op = Opcode::input, .dtype = program.inputs[static_cast<size_t>(index)], .index = index});
  }
  int16_t constant(DType dtype, double value) {
    return append({.op = Opcode::constant, .dtype = dtype, .immediate = value});
  }
  int16_t cast(int16_t value, DType dtype) {
    return append({.op = Opcode::cast, .dtype = dtype, .args = {value, -1, -1}});
  }
  int16_t op(Opcode op, std::initializer_list<int16_t> args) {
    Instruction instruction{.op = op};
    std::copy(args.begin(), args.end(), instruction.args.begin());
    const bool compares = op >= Opcode::less && op <= Opcode::not_equal;
    instruction.dtype = compares ? DType::boolean : dtype(*(args.end() - 1));
    return append(instruction);
  }
  void output(int16_t value) { program.outputs.push_back(value); }
  DType dtype(int16_t value) const { return program.instructions[static_cast<size_t>(value)].dtype; }

  ScalarProgram program;

 private:
  int16_t append(const Instruction& instruction) {
    program.instructions.push_back(instruction);
    return static_cast<int16_t>(program.instructions.size() - 1);
  }
};

// f(a), f(a, b) or f(a, b, c) of that many inputs.
inline ScalarProgram one_op(Opcode op, DType dtype) {
  Writer w;
  std::vector<int16_t> args;
  for (int i = 0; i < arity(op); ++i)
    args.push_back(w.input(op == Opcode::select && i == 0 ? DType::boolean : dtype));
  if (args.size() == 1) w.output(w.op(op, {args[0]}));
  if (args.size() == 2) w.output(w.op(op, {args[0], args[1]}));
  if (args.size() == 3) w.output(w.op(op, {args[0], args[1], args[2]}));
  return w.program;
}

inline bool accepts(Opcode op, DType dtype) {
  if (op == Opcode::input || op == Opcode::constant || op == Opcode::cast) return false;
  if (op >= Opcode::logical_and && op <= Opcode::logical_not) return dtype == DType::boolean;
  if (op >= Opcode::less && op <= Opcode::not_equal) return true;
  if (op == Opcode::select) return true;
  if (op >= Opcode::sqrt && op <= Opcode::cos) return is_floating(dtype);
  return dtype != DType::boolean;
}

inline std::vector<DType> all_dtypes() {
  std::vector<DType> result;
  for (int i = 0; i < kNumDTypes; ++i) result.push_back(static_cast<DType>(i));
  return result;
}

// Elements of one dtype in memory of their own.
class Array {
 public:
  Array() = default;
  Array(DType dtype, int64_t size) : dtype_(dtype), bytes_(static_cast<size_t>(size) * size_of(dtype)) {}

  DType dtype() const { return dtype_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size() / size_of(dtype_)); }
  void* data() { return bytes_.data(); }

  double get(int64_t i) const {
    return dispatch(dtype_, [&]<class T>() -> double {
      if constexpr (std::is_same_v<T, bool>) {
        return bytes_[static_cast<size_t>(i)] != std::byte{0} ? 1 : 0;
      } else {
        T value;
        std::memcpy(&value, bytes_.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
        if constexpr (std::is_class_v<T>)
          return static_cast<double>(static_cast<float>(value));
        else
          return static_cast<double>(value);
      }
    });
  }
  int64_t get_integer(int64_t i) const {
    int64_t value = 0;
    std::memcpy(&value, bytes_.data() + static_cast<size_t>(i) * size_of(dtype_), size_of(dtype_));
    return dtype_ == DType::int32 ? static_cast<int32_t>(value) : value;
  }
  template <class T>
  void put(int64_t i, T value) {
    std::memcpy(bytes_.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  // Converted to the dtype; must fit where that is an integer.
  void set(int64_t i, double value) {
    dispatch(dtype_, [&]<class T>() {
      if constexpr (std::is_class_v<T>)
        put(i, T(static_cast<float>(value)));
      else
        put(i, static_cast<T>(value));
    });
  }
  // Equal to the last bit, except that any NaN equals any NaN.
  bool same(int64_t i, const Array& other, int64_t j) const {
    const size_t size = size_of(dtype_);
    if (std::memcmp(bytes_.data() + static_cast<size_t>(i) * size,
                    other.bytes_.data() + static_cast<size_t>(j) * size, size) == 0)
      return true;
    return is_floating(dtype_) && std::isnan(get(i)) && std::isnan(other.get(j));
  }
  bool operator==(const Array& other) const {
    if (dtype_ != other.dtype_ || size() != other.size()) return false;
    for (int64_t i = 0; i < size(); ++i)
      if (!same(i, other, i)) return false;
    return true;
  }

 private:
  DType dtype_ = DType::float32;
  std::vector<std::byte> bytes_;
};

// Values that break things, then random ones of all magnitudes and small ones.
inline Array interesting(DType dtype, int64_t size, uint32_t seed) {
  std::mt19937_64 random(seed);
  Array result(dtype, size);
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t kind = random() % 8;
    if (is_floating(dtype)) {
      static const double special[] = {0.0,    -0.0,  1,      -1,     0.5,     -0.5,     1.5,       2.5,
                                       -2.5,   1e-40, -1e-40, 1e30,   -1e30,   INFINITY, -INFINITY, NAN,
                                       3.4e38, 88.7,  -103.9, 0x1p31, -0x1p31, 255.5};
      if (kind == 0)
        result.set(i, special[random() % std::size(special)]);
      else if (kind <= 2)
        dispatch(dtype, [&]<class T>() {
          if constexpr (!std::is_same_v<T, bool>) {
            const uint64_t bits = random();
            std::memcpy(static_cast<std::byte*>(result.data()) + static_cast<size_t>(i) * sizeof(T), &bits,
                        sizeof(T));
          }
        });
      else
        result.set(i, std::uniform_real_distribution<double>(-4, 4)(random));
    } else if (dtype == DType::boolean) {
      result.set(i, static_cast<double>(random() % 2));
    } else if (kind <= 1) {
      dispatch(dtype, [&]<class T>() {
        if constexpr (std::integral<T> && !std::is_same_v<T, bool>) {
          const T special[] = {
              std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T{0}, T{1}, static_cast<T>(-1),
              static_cast<T>(random())};
          result.put(i, special[random() % std::size(special)]);
        }
      });
    } else {
      result.set(i, static_cast<double>(random() % 12) - (dtype == DType::uint8 ? 0 : 5));
    }
  }
  return result;
}

inline std::vector<Array> interesting_inputs(const ScalarProgram& program, int64_t size, uint32_t seed) {
  std::vector<Array> result;
  for (const DType dtype : program.inputs) result.push_back(interesting(dtype, size, seed++ * 977 + 13));
  return result;
}

// Contiguous arrays in, contiguous arrays out.
inline std::vector<Array> run(const ScalarProgram& program, std::vector<Array> inputs, int64_t size,
                              Implementation implementation, int threads = 1) {
  std::vector<Array> outputs;
  for (const int16_t output : program.outputs)
    outputs.emplace_back(program.instructions[static_cast<size_t>(output)].dtype, size);
  std::vector<void*> operands;
  for (Array& a : inputs) operands.push_back(a.data());
  for (Array& a : outputs) operands.push_back(a.data());
  const std::vector<Strides> in(inputs.size(), Strides{1});
  const std::vector<Strides> out(outputs.size(), Strides{1});
  prepare_elementwise(program, Shape{size}, in, out, threads, {.implementation = implementation})
      ->run(operands.data());
  return outputs;
}

// The compiled implementations that this machine runs.
inline std::vector<Implementation> compiled() {
  std::vector<Implementation> result;
  if (jit::is_supported(jit::Isa::avx2)) result.push_back(Implementation::avx2);
  if (jit::is_supported(jit::Isa::avx512)) result.push_back(Implementation::avx512);
  return result;
}

inline std::vector<Implementation> everything() {
  std::vector<Implementation> result = compiled();
  result.push_back(Implementation::interpreter);
  return result;
}

inline std::string name(Implementation implementation) {
  switch (implementation) {
    case Implementation::avx512: return "avx512";
    case Implementation::avx2: return "avx2";
    case Implementation::interpreter: return "interpreter";
    case Implementation::automatic: break;
  }
  return "automatic";
}

// How far `got` is from `want`, in units in the last place of T.
template <std::floating_point T>
double ulps(T got, long double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : INFINITY;
  const T nearest = static_cast<T>(want);
  if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : INFINITY;
  using Limits = std::numeric_limits<T>;
  int exponent = 0;
  std::frexp(want, &exponent);
  const int unit = std::max(exponent - Limits::digits, Limits::min_exponent - Limits::digits);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / std::ldexp(1.0L, unit));
}

}  // namespace lockstep::cpu::testing
