#include "data/item.h"

#include "tensor/tensor_impl.h"

namespace lockstep::data {

Rows::Rows(std::shared_ptr<const Structure> structure, TensorList arrays)
    : structure_(std::move(structure)), arrays_(std::move(arrays)), size_(arrays_[0].shape()[0]) {}

Element Rows::row(int64_t index) const {
  TensorList cut;
  cut.reserve(arrays_.size());
  for (const Tensor& array : arrays_) {
    Shape shape = array.shape();
    shape.erase(0);
    cut.push_back(make_view(*array.impl(), {array.dtype(), shape}, contiguous_strides(shape),
                            array.impl()->offset + index * shape.size()));
  }
  return {structure_, std::move(cut)};
}

}  // namespace lockstep::data
