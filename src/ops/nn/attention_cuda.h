// What the kernels of attention share: where its operands lie, and which scores count.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/elements.h"
#include "ops/nn/attention.h"
#include "ops/random/random_cuda.h"

namespace lockstep::cuda {

// A mask or bias that broadcasts to [batch, heads, queries, keys]: strides are 0 where it does.
struct ScoreTerm {
  const void* data = nullptr;  // null: there is none
  int64_t batch = 0, head = 0, query = 0, key = 0;

  __device__ int64_t at(int64_t n, int64_t h, int64_t q, int64_t k) const {
    return n * batch + h * head + q * query + k * key;
  }
};

struct AttentionProblem {
  int64_t batch, heads, key_heads, queries, keys, dim, value_dim;
  float scale;
  double wide_scale;  // the same for float64
  bool causal;
  ScoreTerm mask, bias;
  RandomRows random;  // of dropout
  uint32_t threshold = 0;
  float keep_scale = 1;  // 1: there is no dropout
  double wide_keep_scale = 1;

  __host__ __device__ bool drops() const { return threshold > 0; }
  __device__ int64_t group() const { return heads / key_heads; }
  // Row `row` of head `head` of a tensor [batch, rows, heads, columns].
  static __device__ int64_t row_at(int64_t n, int64_t rows, int64_t row, int64_t heads, int64_t head,
                                   int64_t columns) {
    return ((n * rows + row) * heads + head) * columns;
  }
  __device__ bool sees(int64_t n, int64_t h, int64_t q, int64_t k) const {
    if (q >= queries || k >= keys || (causal && k > q)) return false;
    return !mask.data || static_cast<const bool*>(mask.data)[mask.at(n, h, q, k)];
  }
  template <class T>
  __device__ Real<T> bias_at(int64_t n, int64_t h, int64_t q, int64_t k) const {
    return bias.data ? static_cast<Real<T>>(static_cast<const T*>(bias.data)[bias.at(n, h, q, k)])
                     : Real<T>(0);
  }
  template <class C>
  __device__ C scale_as() const {
    return sizeof(C) == 8 ? static_cast<C>(wide_scale) : static_cast<C>(scale);
  }
  template <class C>
  __device__ C keep_scale_as() const {
    return sizeof(C) == 8 ? static_cast<C>(wide_keep_scale) : static_cast<C>(keep_scale);
  }
  // The row of the random tensor [batch * heads * queries, keys].
  __device__ uint64_t random_row(uint64_t first_row, int64_t n, int64_t h, int64_t q) const {
    return first_row + static_cast<uint64_t>((n * heads + h) * queries + q);
  }
};

// On the tensor cores, for 16-bit floats and heads of at most 128 dimensions; sums are float32.
bool attention_fits_tensor_cores(const AttentionProblem& problem, DType dtype);
void attend_on_tensor_cores(const AttentionProblem& problem, DType dtype, const void* query, const void* key,
                            const void* value, void* result, float* log_sum_exp, cudaStream_t stream);
// `dots` are those of the result's rows with their gradients, [batch, heads, queries].
void attention_gradients_on_tensor_cores(const AttentionProblem& problem, DType dtype, const void* query,
                                         const void* key, const void* value, const void* gradient,
                                         const float* log_sum_exp, const float* dots, void* dquery,
                                         void* dkey, void* dvalue, cudaStream_t stream);

// One thread per row, for short sequences of narrow heads in float32, without mask, bias and dropout. Memory
// is aligned to 16 bytes.
bool attention_fits_rows(const AttentionProblem& problem, DType dtype);
void attend_by_rows(const AttentionProblem& problem, const float* query, const float* key, const float* value,
                    float* result, float* log_sum_exp, cudaStream_t stream);
void attention_gradients_by_rows(const AttentionProblem& problem, const float* query, const float* key,
                                 const float* value, const float* result, const float* gradient,
                                 const float* log_sum_exp, float* dquery, float* dkey, float* dvalue,
                                 cudaStream_t stream);

}  // namespace lockstep::cuda
