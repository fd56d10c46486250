// Copies elements between two layouts of one shape on a GPU: prepared once, launched many times.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "lockstep/tensor/shape.h"

namespace lockstep::cuda {

// Runs of memory are moved in the widest units that the layouts and pointers allow; where source and target
// are dense along different dimensions, through square tiles in shared memory.
class StridedCopy {
 public:
  // Strides in elements; a source stride of 0 repeats an element. Targets of different elements do not
  // overlap.
  StridedCopy(const Shape& shape, const Strides& source, const Strides& target, DType dtype);

  void run(const void* source, void* target, cudaStream_t stream) const;

 private:
  struct Dim {
    int64_t size, source, target;
  };
  bool transposes() const;
  bool in_pairs(const void* source, const void* target) const;
  size_t unit_of(const void* source, const void* target) const;

  std::vector<Dim> dims_;  // by the target's strides, smallest last; without sizes of 1
  int64_t elements_ = 0;
  size_t width_ = 0;
  int lanes_ = -1;  // of dims_: along which the source is dense, where that is not the last
};

}  // namespace lockstep::cuda
