// Attention by cuDNN's own kernels, which use what a GPU has beyond mma.sync.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "backends/cuda/cudnn_graph.h"
#include "lockstep/device/config.h"
#include "ops/nn/attention_cuda.h"

namespace lockstep::cuda {

// Attention of 16-bit floats without mask, bias or dropout, by cuDNN; operands lie as [batch, rows, heads,
// columns].
class CudnnAttention {
 public:
  // Null where cuDNN has no algorithm for it.
  static std::unique_ptr<CudnnAttention> find(const AttentionProblem& problem, DType dtype);

  size_t workspace_bytes() const { return graph_->workspace_bytes(); }
  void launch(const void* query, const void* key, const void* value, void* result, float* log_sum_exp,
              void* workspace, cudaStream_t stream) const;

 private:
  float scale_ = 1;
  bool causal_ = false;
  std::unique_ptr<CudnnGraph> graph_;
};

// Gives the same bits every time. cuDNN's algorithms that do hold the gradients of all scores: 6.4 GB for 12
// heads of 16,384 queries. What would be more than `most` bytes of workspace is made one part after the
// other: of a causal problem chunks of keys, for the queries that see them, and where these are not enough,
// groups of examples or heads. Without op determinism (config::enable_op_determinism) all is one graph, which
// adds up the gradients of queries in float32 as they come, unless cuDNN wants more than `most` for that one.
class CudnnAttentionGradients {
 public:
  static std::unique_ptr<CudnnAttentionGradients> find(const AttentionProblem& problem, DType dtype,
                                                       size_t most = kMostWorkspace);

  // The dots of the result's rows with their gradients, parts or sums of the gradients of queries, and
  // cuDNN's.
  size_t workspace_bytes() const { return 256 + sums_bytes_ + partial_bytes_ + graph_bytes_; }
  void launch(const void* query, const void* key, const void* value, const void* result,
              const float* log_sum_exp, const void* gradient, void* dquery, void* dkey, void* dvalue,
              void* workspace, cudaStream_t stream) const;

 private:
  static constexpr size_t kMostWorkspace = size_t{2} << 30;

  // What one launch of cuDNN's takes at most.
  struct Cut {
    int64_t examples, heads, keys;
  };
  // Examples and heads: the first, how many, and the graphs for their chunks of keys.
  struct Group {
    int64_t example, head, examples, heads;
    std::vector<const CudnnGraph*> graphs;
  };
  struct Found {
    int64_t examples, heads, queries;
    std::unique_ptr<CudnnGraph> graph;
  };

  CudnnAttentionGradients(const AttentionProblem& problem, DType dtype) : problem_(problem), dtype_(dtype) {}
  bool add_groups(const Cut& cut);  // false: cuDNN has no algorithm
  const CudnnGraph* graph_for(const AttentionProblem& part, bool partial);

  AttentionProblem problem_;
  DType dtype_;
  bool in_order_ = config::op_determinism_enabled();
  int64_t chunk_ = 0;  // keys
  size_t sums_bytes_ = 0, partial_bytes_ = 0, graph_bytes_ = 0;
  std::vector<Found> graphs_;
  std::vector<Group> groups_;
};

}  // namespace lockstep::cuda
