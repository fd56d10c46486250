// What the GPU's kernels that read rows by index share.
#pragma once

#include "backends/cuda/defer_error.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/array/lookup.h"

namespace lockstep::cuda {

// int32 or int64 indices, and the deferred error of one that is not in [0, limit).
class Indices {
 public:
  Indices(const KernelRequest& request, int input, int64_t limit)
      : Indices(request, input, limit, {request.op.name}) {}
  Indices(const KernelRequest& request, int input, int64_t limit, IndexName name)
      : wide_(request.dtype(input) == DType::int64),
        input_(input),
        count_(request.shape(input).size()),
        limit_(limit),
        errors_([name, shape = request.shape(input), limit, where = request.where](const DeferredError& e) {
          refuse_index(name, shape, e.position, e.value(), limit, where);
        }) {}

  int64_t count() const { return count_; }

  // In device code: the index at a position; -1, and a note, where it does not exist.
  struct Reader {
    IndexReader indices;
    int64_t limit;
    DeferredError* error;
    __device__ int64_t operator[](int64_t i) const {
      const int64_t index = indices[i];
      if (index >= 0 && index < limit) return index;
      defer_error(error, i, index);
      return -1;
    }
  };
  Reader read(const LaunchArgs& args) const {
    return {{args.inputs[input_], wide_}, limit_, errors_.on(args.stream)};
  }

 private:
  bool wide_;
  int input_;
  int64_t count_, limit_;
  DeferredErrors errors_;
};

// The widest unit that rows of this many bytes, and these pointers, can be moved in.
inline size_t unit_of_rows(int64_t row_bytes, std::initializer_list<const void*> pointers) {
  auto places = static_cast<uint64_t>(row_bytes);
  for (const void* p : pointers) places |= reinterpret_cast<uintptr_t>(p);
  size_t unit = 16;
  while (places % unit != 0) unit /= 2;
  return unit;
}

}  // namespace lockstep::cuda
