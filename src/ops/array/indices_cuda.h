// What the GPU's kernels that read rows by index share.
#pragma once

#include "backends/cuda/defer_error.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "ops/array/lookup.h"

namespace lockstep::cuda {

// Where element number i of `shape` stands.
inline Dims position_in(const Shape& shape, int64_t i) {
  Dims place = Dims::filled(shape.rank(), 0);
  for (int d = shape.rank() - 1; d >= 0; --d) {
    place[d] = i % shape[d];
    i /= shape[d];
  }
  return place;
}

// int32 or int64 indices, and the deferred error of one that is not in [0, limit).
class Indices {
 public:
  // `labels`: what errors call them.
  Indices(const KernelRequest& request, int input, int64_t limit, bool labels = false)
      : wide_(request.dtype(input) == DType::int64),
        input_(input),
        count_(request.shape(input).size()),
        limit_(limit),
        errors_([shape = request.shape(input), op = request.op.name, where = request.where, limit,
                 labels](const DeferredError& error) {
          fail(ErrorCode::invalid_argument, where, labels ? "labels" : op, ": the ",
               labels ? "label" : "index", " at position ", position_in(shape, error.position), " is ",
               index_text(error.value()), ", but there are ", limit, labels ? " classes" : " rows",
               limit > 0 ? detail::concat(labels ? ": labels" : ": indices", " run from 0 to ", limit - 1)
                         : "");
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
