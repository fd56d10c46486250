// Products of float32 matrices on tensor cores at float32's accuracy (tf32x3.h): about twice as fast on
// Hopper as in float32 arithmetic.
#pragma once

#include <memory>
#include <optional>

#include "backends/cuda/strided_matmul.h"
#include "backends/cuda/tf32x3_plan.h"
#include "graph/op.h"

namespace lockstep::cuda {

class Tf32x3Matmul {
 public:
  // Nothing where the product is not one for this kernel: matrices of which neither dimension is dense, more
  // than 2^31 elements, or so thin that tiles would be empty.
  static std::optional<Tf32x3Matmul> make(const StridedMatmul& product);

  size_t workspace_bytes() const { return plan_.workspace_bytes(size_); }
  // C = act(A B + bias + addend), what is null left out; C may be the addend. Queues it.
  void launch(const float* a, const float* b, const float* bias, const float* addend, Epilogue epilogue,
              float* c, void* workspace, cudaStream_t stream) const;

 private:
  StridedMatmul product_;
  tf32x3::ProductSize size_;
  tf32x3::Plan plan_;
};

}  // namespace lockstep::cuda
