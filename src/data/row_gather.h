// Rows from anywhere in arrays in host memory, gathered into batches: every byte is copied once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// Finding memory and copying are two calls, so that a thread which knows nothing of devices can do the
// second.
class RowGather {
 public:
  // These rows of each array (contiguous, in host memory) become the next batch. Its memory is that of
  // `batch` where that fits and nobody else holds it, else new, on the host device of the calling thread. The
  // arrays and the numbers have to stay until copy() has returned.
  void claim(const TensorList& arrays, std::span<const int64_t> rows, TensorList& batch);
  // Does not throw, and touches nothing but the memory that was claimed.
  void copy(int threads) const;

 private:
  struct Copy {
    const char* source;
    char* target;
    size_t row_bytes;
  };

  std::vector<Copy> copies_;
  std::span<const int64_t> rows_;
};

}  // namespace lockstep::data
