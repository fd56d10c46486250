#include "data/stack.h"

#include <algorithm>
#include <cstring>

#include "data/row_gather.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

Shape stacked(int64_t count, Shape shape) {
  shape.insert(0, count);
  return shape;
}

bool are_rows_of_one(std::span<const Item> items) {
  const auto& rows = items[0].rows();
  return rows &&
         std::all_of(items.begin(), items.end(), [&](const Item& item) { return item.rows() == rows; });
}

Element gather(std::span<const Item> items) {
  const Rows& rows = *items[0].rows();
  std::vector<int64_t> numbers;
  numbers.reserve(items.size());
  for (const Item& item : items) numbers.push_back(item.row());
  TensorList batch;
  RowGather gather;
  gather.claim(rows.arrays(), numbers, batch);
  gather.copy(1);
  return {rows.structure(), std::move(batch)};
}

void copy_into(const Tensor& tensor, char* target) {
  const TensorImpl& impl = *tensor.impl();
  if (is_contiguous(impl.spec.shape, impl.strides))
    std::memcpy(target, impl.data(), impl.spec.bytes());
  else
    copy_strided(impl.spec.dtype, impl.spec.shape, impl.data(), impl.strides, target,
                 contiguous_strides(impl.spec.shape));
}

}  // namespace

Element stack(std::span<Item> items, const Stage& stage) {
  if (are_rows_of_one(items)) return gather(items);
  const Element& first = items[0].element();
  TensorList tensors;
  for (const Tensor& tensor : first.flat())
    tensors.push_back(
        Tensor::empty(tensor.dtype(), stacked(static_cast<int64_t>(items.size()), tensor.shape())));
  for (size_t i = 0; i < items.size(); ++i) {
    const Element& element = items[i].element();
    require(element.structure() == first.structure(), ErrorCode::shape_mismatch, stage.where, stage.name,
            ": elements must have one structure, element 0 of the batch is ", first.structure().to_string(),
            " and element ", i, " is ", element.structure().to_string());
    for (size_t leaf = 0; leaf < tensors.size(); ++leaf) {
      const Tensor& tensor = element.flat()[leaf];
      require(tensor.spec() == first.flat()[leaf].spec(), ErrorCode::shape_mismatch, stage.where, stage.name,
              ": elements must have one dtype and shape, part ", first.structure().path(leaf), " is ",
              first.flat()[leaf].spec(), " in element 0 of the batch and ", tensor.spec(), " in element ", i,
              "; padded_batch() pads, a map() before it may crop or resize");
      const size_t bytes = tensor.spec().bytes();
      if (bytes > 0)
        copy_into(tensor.device().kind() == DeviceKind::cpu ? tensor : tensor.to(current_device()),
                  static_cast<char*>(tensors[leaf].impl()->data()) + i * bytes);
    }
  }
  return {first.shared_structure(), std::move(tensors)};
}

bool collect(Cursor& input, int64_t size, bool drop_remainder, std::vector<Item>& kept,
             std::vector<Item>& parts) {
  parts.swap(kept);
  const auto full = static_cast<size_t>(size);
  // Items of an earlier batch are overwritten in place.
  size_t count = parts.size();
  parts.resize(full);
  try {
    while (count < full && input.next(parts[count])) ++count;
  } catch (...) {
    parts.resize(count);
    kept.swap(parts);
    throw;
  }
  kept.clear();
  if (count < full && drop_remainder) count = 0;
  parts.resize(count);
  return count > 0;
}

int64_t batches_of(int64_t elements, int64_t size, bool drop_remainder) {
  if (elements < 0) return elements;
  return drop_remainder ? elements / size : (elements + size - 1) / size;
}

bool batches_are_whole(int64_t elements, int64_t size, bool drop_remainder) {
  return drop_remainder || elements == kInfinite || (elements >= 0 && elements % size == 0);
}

}  // namespace lockstep::data
