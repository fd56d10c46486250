// Writes the meaning of an elementwise op into a scalar program.
//
//   .expand = [](Expander& e) { e.out(1.0 / (1.0 + exp(-e.in(0)))); }
#pragma once

#include <span>
#include <vector>

#include "graph/op.h"
#include "ops/elementwise/program.h"

namespace lockstep::elementwise {

// A value of the program that is being written.
class Scalar {
 public:
  Scalar() = default;
  Scalar(Expander* expander, int16_t value, DType dtype)
      : expander_(expander), value_(value), dtype_(dtype) {}
  Expander& expander() const { return *expander_; }
  int16_t value() const { return value_; }
  DType dtype() const { return dtype_; }

 private:
  Expander* expander_ = nullptr;
  int16_t value_ = -1;
  DType dtype_ = DType::float32;
};

class Expander {
 public:
  // `inputs`: the values of `program` that stand for the op's inputs.
  Expander(ScalarProgram& program, const Attrs& attributes, std::span<const int16_t> inputs)
      : program_(program), attributes_(attributes), inputs_(inputs) {}

  Scalar in(int i) {
    const int16_t value = inputs_[static_cast<size_t>(i)];
    return {this, value, program_.instructions[static_cast<size_t>(value)].dtype};
  }
  Scalar constant(double value, DType dtype);
  void out(Scalar value) { outputs_.push_back(value.value()); }
  std::span<const int16_t> outputs() const { return outputs_; }
  template <class T>
  const T& attrs() const {
    return attributes_.as<T>();
  }

  // Writes a whole program, its inputs standing for the op's and its outputs becoming the op's.
  void inline_program(const ScalarProgram& program);

  Scalar apply(Opcode op, DType result, Scalar a, Scalar b = {}, Scalar c = {});
  // The meaning of another op, of one operand and one result.
  Scalar apply(const OpDef& op, const Attrs& attributes, Scalar a);

 private:
  ScalarProgram& program_;
  const Attrs& attributes_;
  std::span<const int16_t> inputs_;
  std::vector<int16_t> outputs_;
};

// The value of `instruction` in `program`: an equal one that is there already, else a new one.
int16_t append(ScalarProgram& program, const Instruction& instruction);

// The whole program of one op on operands of these dtypes.
ScalarProgram expand(const OpDef& op, const Attrs& attributes, std::span<const DType> inputs);

inline Scalar unary(Opcode op, Scalar a) { return a.expander().apply(op, a.dtype(), a); }
inline Scalar binary(Opcode op, Scalar a, Scalar b) { return a.expander().apply(op, a.dtype(), a, b); }
inline Scalar compare(Opcode op, Scalar a, Scalar b) { return a.expander().apply(op, DType::boolean, a, b); }

inline Scalar operator+(Scalar a, Scalar b) { return binary(Opcode::add, a, b); }
inline Scalar operator-(Scalar a, Scalar b) { return binary(Opcode::sub, a, b); }
inline Scalar operator*(Scalar a, Scalar b) { return binary(Opcode::mul, a, b); }
inline Scalar operator/(Scalar a, Scalar b) { return binary(Opcode::div, a, b); }
inline Scalar operator+(double a, Scalar b) { return b.expander().constant(a, b.dtype()) + b; }
inline Scalar operator-(double a, Scalar b) { return b.expander().constant(a, b.dtype()) - b; }
inline Scalar operator*(double a, Scalar b) { return b.expander().constant(a, b.dtype()) * b; }
inline Scalar operator/(double a, Scalar b) { return b.expander().constant(a, b.dtype()) / b; }
inline Scalar operator+(Scalar a, double b) { return b + a; }
inline Scalar operator-(Scalar a, double b) { return a - a.expander().constant(b, a.dtype()); }
inline Scalar operator*(Scalar a, double b) { return b * a; }
inline Scalar operator-(Scalar a) { return unary(Opcode::neg, a); }
inline Scalar select(Scalar condition, Scalar a, Scalar b) {
  return a.expander().apply(Opcode::select, a.dtype(), condition, a, b);
}

}  // namespace lockstep::elementwise
