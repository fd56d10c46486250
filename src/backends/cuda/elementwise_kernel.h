// A scalar program over tensors on the GPU: one launch.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "backends/cuda/runtime_code.h"
#include "lockstep/tensor/shape.h"
#include "ops/elementwise/program.h"

namespace lockstep::cuda {

// One launch at a time. An output may lie over an input of the same layout.
class ElementwiseKernel {
 public:
  // `strides`: in elements, of the inputs as they are read over `shape`, then of the outputs.
  ElementwiseKernel(const elementwise::ScalarProgram& program, const Shape& shape,
                    std::span<const Strides> strides);
  // `operands`: inputs, then outputs.
  void launch(void* const* operands, cudaStream_t stream) const;

 private:
  RuntimeKernel function_;
  size_t operands_ = 0;
  int width_ = 1;
  std::vector<size_t> alignments_;  // that vectors need, by operand; 1: none
  int64_t inner_ = 1, size_ = 0;
  unsigned most_blocks_ = 1;
  size_t inner_word_ = 0, units_word_ = 0;
  mutable std::vector<uint64_t> arguments_;
};

}  // namespace lockstep::cuda
