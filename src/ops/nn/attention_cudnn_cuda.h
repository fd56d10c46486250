// Attention by cuDNN's own kernels, which use what a GPU has beyond mma.sync.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "backends/cuda/cudnn_graph.h"
#include "ops/nn/attention_cuda.h"

namespace lockstep::cuda {

// Of 16-bit floats without mask, bias or dropout; operands lie as [batch, rows, heads, columns].
class CudnnAttention {
 public:
  // None where cuDNN has no algorithm for it.
  static std::unique_ptr<CudnnAttention> find(const AttentionProblem& problem, DType dtype);

  size_t workspace_bytes() const { return graph_->workspace_bytes(); }
  void launch(const void* query, const void* key, const void* value, void* result, float* log_sum_exp,
              void* workspace, cudaStream_t stream) const;

 private:
  float scale_ = 1;
  std::unique_ptr<CudnnGraph> graph_;
};

// Gives the same bits every time.
class CudnnAttentionGradients {
 public:
  static std::unique_ptr<CudnnAttentionGradients> find(const AttentionProblem& problem, DType dtype);

  size_t workspace_bytes() const;
  void launch(const void* query, const void* key, const void* value, const void* result,
              const float* log_sum_exp, const void* gradient, void* dquery, void* dkey, void* dvalue,
              void* workspace, cudaStream_t stream) const;

 private:
  float scale_ = 1;
  size_t sums_bytes_ =
      0;  // of the dots of the result's rows with their gradients, in front of cuDNN's workspace
  std::unique_ptr<CudnnGraph> graph_;
};

}  // namespace lockstep::cuda
