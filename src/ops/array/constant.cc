// Tensors of what a program writes down, and parts of tensors as a program names them.
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/tensor/tensor_like.h"

namespace lockstep {

Tensor convert_to_tensor(const TensorLike& value, std::optional<DType> dtype) {
  Tensor tensor = value.tensor(dtype);
  require(tensor.defined(), ErrorCode::invalid_argument, value.where(),
          "convert_to_tensor: the tensor is none");
  require(!dtype || tensor.dtype() == *dtype, ErrorCode::dtype_mismatch, value.where(),
          "convert_to_tensor: a tensor of dtype ", dtype.value_or(tensor.dtype()), " is wanted, received ",
          tensor.spec(), "; cast() it first");
  return tensor;
}

Tensor constant(const TensorLike& value, std::optional<DType> dtype, std::optional<Shape> shape) {
  Tensor tensor = value.tensor(dtype);
  require(tensor.defined(), ErrorCode::invalid_argument, value.where(), "constant: the tensor is none");
  if (dtype && tensor.dtype() != *dtype) tensor = cast({tensor, value.where()}, *dtype);
  if (!shape || tensor.shape() == *shape) return tensor;
  if (tensor.size() == 1) return broadcast_to({reshape({tensor, value.where()}, {}), value.where()}, *shape);
  return reshape({tensor, value.where()}, *shape);
}

Tensor Tensor::operator[](Located<int64_t> index) const {
  const Shape& whole = shape(index.where);
  require(whole.rank() > 0, ErrorCode::invalid_argument, index.where, "[", index.value,
          "]: a scalar has no elements to choose from; item<T>() reads its value");
  const int64_t position = index.value < 0 ? index.value + whole[0] : index.value;
  require(position >= 0 && position < whole[0], ErrorCode::invalid_argument, index.where, "[", index.value,
          "] is outside of the first dimension of ", whole);
  Dims begin = Dims::filled(whole.rank(), 0), size = Dims::filled(whole.rank(), -1);
  begin[0] = position;
  size[0] = 1;
  return squeeze({slice({*this, index.where}, begin, size), index.where}, {0});
}

Tensor shape(const TensorArg& x, DType out_type) {
  const Shape& sizes = x.tensor("shape").shape();
  require(is_integer(out_type), ErrorCode::dtype_mismatch, x.where(),
          "shape: out_type must be an integer, received ", out_type);
  const Tensor all =
      Tensor::from(std::vector<int64_t>(sizes.begin(), sizes.end()), {sizes.rank()}, x.where());
  return out_type == DType::int64 ? all : cast({all, x.where()}, out_type);
}

}  // namespace lockstep
