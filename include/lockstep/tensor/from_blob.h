// Tensors over memory that belongs to somebody else: as long as they live, or for the time of a call.
//
//   auto rows = std::make_shared<std::vector<float>>(...);
//   Tensor x = lend(rows->data(), {DType::float32, {examples, 784}}, rows);
//   model.fit({x, y});
//   give_back(std::move(x));   // whoever still holds the tensor has a copy from here on
#pragma once

#include <memory>
#include <source_location>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A tensor that reads the elements at `data` where they lie: host memory, row-major, aligned to the size of
// an element. `owner` is held as long as the tensor or a view of it is, and dropped by whichever thread lets
// go of the last of them; without one, the memory has to outlive them all. The tensor is on the current
// device where that is a CPU, else on the first CPU, and its bytes are in no device's account.
//
// The library never writes there. Whoever owns the memory may, and it is then undefined which of the old and
// new elements are read by what is under way; what was computed before does not change. numpy() shows what
// is written there. A compiled function that captures the tensor has a copy of its elements as they are when
// it is compiled.
Tensor from_blob(const void* data, const TensorSpec& spec, std::shared_ptr<const void> owner = nullptr,
                 std::source_location where = std::source_location::current());

// The same until give_back(), before which the owner does not write there: numpy() of such a tensor and of
// its views is a copy until then, so what it gave never changes.
Tensor lend(const void* data, const TensorSpec& spec, std::shared_ptr<const void> owner = nullptr,
            std::source_location where = std::source_location::current());

// The tensor on this device, with memory that is nobody else's: of a tensor that is lent, or elsewhere, a
// copy.
Tensor owned(const Tensor& tensor, Device& device,
             std::source_location where = std::source_location::current());

// The owner of the memory may write there again without anybody's noticing: tensors and views that still read
// it, beside this one, have a copy from here on, and `owner` is let go. The copy is of all elements, also for
// a view of few of them. Where there is no room for it this throws Error(out_of_memory), and nothing was
// given back: the handle is the tensor that it was. Otherwise it is none afterwards. Tensors with memory of
// their own stay as they are.
//
// Any thread may call it, one at a time for the memory of one tensor. Another one that computes with the
// tensor or a view meanwhile may go on reading where the elements were, as does whoever holds data() or, of
// from_blob(), numpy(): the memory has to outlive those, and they see what is written there.
void give_back(Tensor&& tensor);

}  // namespace lockstep
