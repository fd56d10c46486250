// Tensors over memory that belongs to somebody else.
//
//   auto rows = std::make_shared<std::vector<float>>(...);
//   Tensor x = from_blob(rows->data(), {DType::float32, {examples, 784}}, rows);
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
// new elements are read by what is under way; what was computed before does not change. A compiled function
// that captures the tensor has a copy of its elements as they are when it is compiled.
Tensor from_blob(const void* data, const TensorSpec& spec, std::shared_ptr<const void> owner = nullptr,
                 std::source_location where = std::source_location::current());

// The owner of the memory may write there again without anybody's noticing: tensors and views that still read
// it, beside this one, have a copy of its elements from here on. The first owner is held until they are gone,
// for another thread may be reading there. This handle is none afterwards. Tensors with memory of their own
// stay as they are.
void give_back(Tensor&& tensor);

}  // namespace lockstep
