#include "keras/operands.h"

#include "keras/written_tensors.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {

Tensor floating(const Tensor& x) { return is_floating(x.dtype()) ? x : cast(x, DType::float32); }
Tensor truth(const Tensor& x) { return x.dtype() == DType::boolean ? x : not_equal(x, 0.0); }

DType common_dtype(DType a, DType b) {
  if (a == b) return a;
  const auto kind = [](DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; };
  if (kind(a) != kind(b)) return kind(a) > kind(b) ? a : b;
  if (size_of(a) != size_of(b)) return size_of(a) > size_of(b) ? a : b;
  return is_floating(a) ? DType::float32 : DType::int32;
}

const Json& Operands::argument(size_t i, const char* name) const {
  static const Json none;
  if (i < arguments_.positional().items().size()) return arguments_.positional().at(i);
  const Json* found = name ? arguments_.named().find(name) : nullptr;
  return found ? *found : none;
}

TensorList Operands::tensors() const {
  const Json& list = argument(0).is_list() ? argument(0) : arguments_.positional();
  TensorList all;
  for (const Json& item : list.items()) all.push_back(tensor_of(item));
  return promoted(std::move(all));
}

OperandArg Operands::operand(size_t i, const char* name) const {
  const Json& given = argument(i, name);
  if (given.is_bool()) return given.as_bool() ? 1.0 : 0.0;
  if (given.is_number()) return given.as_double();
  return tensor_of(given);
}

std::pair<OperandArg, OperandArg> Operands::pair(size_t i, size_t j) const {
  const OperandArg a = operand(i), b = operand(j);
  if (a.is_number() || b.is_number()) return {beside(a, argument(j)), beside(b, argument(i))};
  const DType dtype = common_dtype(a.tensor().dtype(), b.tensor().dtype());
  return {cast(a.tensor(), dtype), cast(b.tensor(), dtype)};
}

Tensor Operands::along_axis(int& at) const {
  at = axis(0);
  return has("axis") ? tensor(0) : reshape(tensor(0), {-1});
}

Tensor Operands::tensor_of(const Json& given) const {
  if (const Json* input = given.find("input")) return tensors_[static_cast<size_t>(input->as_int())];
  if (const Tensor constant = read_tensor(given); constant.defined()) return constant;
  if (given.is_bool()) return cast(Tensor::scalar(given.as_bool() ? 1.0F : 0.0F), DType::boolean);
  if (given.is_int()) return Tensor::scalar(static_cast<int32_t>(given.as_int()));
  return Tensor::scalar(static_cast<float>(given.as_double()));
}

OperandArg Operands::beside(const OperandArg& x, const Json& number) {
  if (x.is_number() || is_floating(x.tensor().dtype()) || !number.is_number()) return x;
  if (!number.is_int()) return cast(x.tensor(), DType::float32);
  return x.tensor().dtype() == DType::boolean ? OperandArg(cast(x.tensor(), DType::int32)) : x;
}

TensorList Operands::promoted(TensorList tensors) {
  if (tensors.empty()) return tensors;
  DType dtype = tensors[0].dtype();
  for (const Tensor& x : tensors) dtype = common_dtype(dtype, x.dtype());
  for (Tensor& x : tensors)
    if (x.dtype() != dtype) x = cast(x, dtype);
  return tensors;
}

Dims list_setting(const Operands& o, const char* name, const Dims& otherwise) {
  Dims values = otherwise;
  if (o.has(name)) from_json(o.setting(name, Json()), values);
  return values;
}

}  // namespace lockstep::keras
