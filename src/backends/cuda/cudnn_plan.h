// Convolutions of cuDNN: planned once, launched many times.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

class CudnnGraph;

enum class CudnnDirection : uint8_t { forward, backprop_input, backprop_filter };

// Images are (batch, spatial dimensions..., channels), filters (out channels, spatial dimensions..., in
// channels of a group), both dense. Spatial members have one entry a dimension.
struct CudnnConvolution {
  CudnnDirection direction = CudnnDirection::forward;
  DType dtype = DType::float32;
  int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  std::vector<int64_t> input, output, window, strides, dilations, before, after;
};

// A convolution with the first algorithm of cuDNN's ranking that gives the same bits every time and, in
// float32, does not round its operands, unless TF32 is allowed. Nothing is measured, so the choice depends on
// the problem alone.
class CudnnPlan {
 public:
  // Null where cuDNN has no such algorithm.
  static std::unique_ptr<CudnnPlan> find(const CudnnConvolution& convolution, std::source_location where);
  ~CudnnPlan();

  size_t workspace_bytes() const;
  // images and results as `direction` names them; what it computes is written. Pointers are aligned to 16
  // bytes.
  void launch(void* x, void* filter, void* y, void* workspace, cudaStream_t stream) const;

 private:
  explicit CudnnPlan(std::unique_ptr<CudnnGraph> graph);
  std::unique_ptr<CudnnGraph> graph_;
};

}  // namespace lockstep::cuda
