// Arguments of ops: a tensor or a variable (read where it stands), and the line of the call, so that
// errors name the caller's file and line even for operators such as a + b.
#pragma once

#include <concepts>
#include <source_location>

#include "lockstep/graph/variable.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class TensorArg {
 public:
  // NOLINTBEGIN(google-explicit-constructor): conversion at the call is the purpose
  TensorArg(const Tensor& tensor, std::source_location where = std::source_location::current())
      : tensor_(tensor), where_(where) {}
  TensorArg(const Variable& variable, std::source_location where = std::source_location::current())
      : tensor_(variable.value(where)), where_(where) {}
  // NOLINTEND(google-explicit-constructor)

  const Tensor& tensor() const { return tensor_; }
  // The same, where an op named `op` looks at it before it is emitted: none is an error of that op.
  const Tensor& tensor(const char* op) const;
  std::source_location where() const { return where_; }

 protected:
  explicit TensorArg(std::source_location where) : where_(where) {}

 private:
  Tensor tensor_;
  std::source_location where_;
};

// One side of a binary op: also a number, which takes the other side's dtype.
class OperandArg : public TensorArg {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  OperandArg(const Tensor& tensor, std::source_location where = std::source_location::current())
      : TensorArg(tensor, where) {}
  OperandArg(const Variable& variable, std::source_location where = std::source_location::current())
      : TensorArg(variable, where) {}
  template <class T>
  requires std::integral<T> || std::floating_point<T> OperandArg(
      T number, std::source_location where = std::source_location::current())
      : TensorArg(where), number_(static_cast<double>(number)), is_number_(true) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_number() const { return is_number_; }
  double number() const { return number_; }

 private:
  double number_ = 0;
  bool is_number_ = false;
};

}  // namespace lockstep
