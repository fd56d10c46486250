// What an operation of keras.ops is given.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "keras/fields.h"
#include "keras/operation_layer.h"
#include "lockstep/base/json.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

// Integers and booleans as float32, and numbers as whether they are not 0.
Tensor floating(const Tensor& x);
Tensor truth(const Tensor& x);

// What values of both become when they meet: floats before integers before booleans, then the wider.
DType common_dtype(DType a, DType b);

// The tensors of the call, its arguments and its settings.
class Operands {
 public:
  Operands(const TensorList& tensors, const OperationArguments& arguments, const Json& config)
      : tensors_(tensors), arguments_(arguments), config_(config) {}

  // The argument at this place, or of this name; null where there is none.
  const Json& argument(size_t i, const char* name = nullptr) const;
  size_t arguments() const { return arguments_.positional().items().size(); }
  bool given(size_t i, const char* name) const { return !argument(i, name).is_null(); }

  Tensor tensor(size_t i, const char* name = nullptr) const { return tensor_of(argument(i, name)); }
  // Of a list among the arguments.
  static Tensor element(const Operands& o, const Json& given) { return o.tensor_of(given); }
  // The elements of a list that is the only argument, or all arguments, brought to one dtype.
  TensorList tensors() const;

  // A tensor, or a number, which takes the dtype of what it meets.
  OperandArg operand(size_t i, const char* name = nullptr) const;
  // Two of them, brought to one dtype.
  std::pair<OperandArg, OperandArg> pair(size_t i, size_t j) const;

  // A setting; null and none are the default.
  template <class T>
  T setting(const char* name, T value) const {
    if (const Json* found = config_.find(name); found && !found->is_null()) from_json(*found, value);
    return value;
  }
  bool has(const char* name) const {
    const Json* found = config_.find(name);
    return found && !found->is_null();
  }
  ReduceOptions reduction() const {
    return {.axis = setting("axis", std::vector<int64_t>()), .keepdims = setting("keepdims", false)};
  }
  int axis(int64_t otherwise = -1) const { return static_cast<int>(setting("axis", otherwise)); }
  double number(const char* name, double otherwise) const { return setting(name, otherwise); }

  // The argument as its operation takes it where no axis is set: as one vector.
  Tensor along_axis(int& at) const;

 private:
  Tensor tensor_of(const Json& given) const;
  // A tensor beside a number: integers that meet a fraction become floats.
  static OperandArg beside(const OperandArg& x, const Json& number);
  static TensorList promoted(TensorList tensors);

  const TensorList& tensors_;
  const OperationArguments& arguments_;
  const Json& config_;
};

// `otherwise` where the setting is none.
Dims list_setting(const Operands& o, const char* name, const Dims& otherwise);

}  // namespace lockstep::keras
