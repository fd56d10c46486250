#include <cooperative_groups.h>

#include <algorithm>

#include "backends/cuda/activation.h"
#include "backends/cuda/check.h"
#include "backends/cuda/small_matmul.h"

namespace lockstep::cuda {
namespace {

namespace cg = cooperative_groups;

// What only the kernel uses is not used where it is compiled for chips without clusters.
constexpr int kThreads = 256;
[[maybe_unused]] constexpr int kWarps = kThreads / 32;
constexpr int kRows = 32;                     // of C in a block: the lanes of a warp
[[maybe_unused]] constexpr int kDepth = 128;  // of the inner dimension in shared memory at once
constexpr int kMaxCluster = 8;

// An element that a thread fetches: of a row of A or a column of B, at `k` of the inner dimension.
struct Place {
  int outer, k;
};

// Each thread has `Per` rows, 32 / Per apart, of one column.
template <int Per>
__global__ void __launch_bounds__(kThreads)
    multiply(const __grid_constant__ StridedMatmul p, Epilogue epilogue, const float* a, const float* b,
             const float* bias, float* c) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters
  constexpr int kColumns = 8 * Per;
  constexpr int kRowStep = kRows / Per;
  __shared__ float left[kDepth][kRows + 1];
  __shared__ float right[kDepth][kColumns + 1];
  __shared__ float partial[kRows * kColumns];

  cg::cluster_group cluster = cg::this_cluster();
  const auto parts = static_cast<int64_t>(cluster.num_blocks());
  const auto part = static_cast<int64_t>(cluster.block_rank());
  const int64_t column0 = static_cast<int64_t>(blockIdx.y) * kColumns;
  const int64_t batch_rows = (p.m + kRows - 1) / kRows;
  const int64_t tile = static_cast<int64_t>(blockIdx.z);
  const int64_t row0 = tile % batch_rows * kRows;
  int64_t rest = tile / batch_rows;
  c += rest * p.m * p.n;
  for (int d = p.batch_rank - 1; d >= 0; --d) {
    const int64_t index = rest % p.batch[d];
    rest /= p.batch[d];
    a += index * p.a_batch[d];
    b += index * p.b_batch[d];
  }
  const int64_t share = (p.k + parts - 1) / parts;
  const int64_t end = min(p.k, (part + 1) * share);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = threadIdx.x % kRowStep, column = threadIdx.x / kRowStep;
  float sums[Per] = {};
  for (int64_t k0 = part * share; k0 < end; k0 += kDepth) {
    const int depth = static_cast<int>(min(static_cast<int64_t>(kDepth), end - k0));
    // Neighbouring lanes read neighbouring elements, whichever way a matrix lies. All are on their way before
    // the first is stored.
    const bool a_by_row = p.a_column == 1, b_by_column = p.b_row == 1;
    const auto a_place = [&](int i) {
      return a_by_row ? Place{warp + i / 4 * kWarps, lane + i % 4 * 32} : Place{lane, warp + i * kWarps};
    };
    const auto b_place = [&](int i) {
      const int flat = static_cast<int>(threadIdx.x) + i * kThreads;
      return b_by_column ? Place{warp + i / 4 * kWarps, lane + i % 4 * 32}
                         : Place{flat % kColumns, flat / kColumns};
    };
    float from_a[kRows * kDepth / kThreads], from_b[kColumns * kDepth / kThreads];
#pragma unroll
    for (int i = 0; i < kRows * kDepth / kThreads; ++i) {
      const Place at = a_place(i);
      from_a[i] = at.k < depth && row0 + at.outer < p.m
                      ? a[(row0 + at.outer) * p.a_row + (k0 + at.k) * p.a_column]
                      : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kColumns * kDepth / kThreads; ++i) {
      const Place at = b_place(i);
      from_b[i] = at.k < depth && column0 + at.outer < p.n
                      ? b[(column0 + at.outer) * p.b_column + (k0 + at.k) * p.b_row]
                      : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kRows * kDepth / kThreads; ++i) left[a_place(i).k][a_place(i).outer] = from_a[i];
#pragma unroll
    for (int i = 0; i < kColumns * kDepth / kThreads; ++i) right[b_place(i).k][b_place(i).outer] = from_b[i];
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < depth; ++k) {
      const float factor = right[k][column];
#pragma unroll
      for (int i = 0; i < Per; ++i) sums[i] = fmaf(left[k][row + i * kRowStep], factor, sums[i]);
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < Per; ++i) partial[(row + i * kRowStep) * kColumns + column] = sums[i];
  cluster.sync();
  // Every block of the cluster finishes its share of the tile.
  const int elements = kRows * kColumns / static_cast<int>(parts);
  for (int i = threadIdx.x; i < elements; i += kThreads) {
    const int at = static_cast<int>(part) * elements + i;
    const int64_t m = row0 + at / kColumns, n = column0 + at % kColumns;
    if (m >= p.m || n >= p.n) continue;
    float held[kMaxCluster];
#pragma unroll
    for (int other = 0; other < kMaxCluster; ++other)
      held[other] = other < parts ? cluster.map_shared_rank(partial, other)[at] : 0.f;
    float sum = held[0];
#pragma unroll
    for (int other = 1; other < kMaxCluster; ++other) sum += held[other];
    if (bias) sum += bias[n];
    c[m * p.n + n] = activated(epilogue, sum);
  }
  cluster.sync();
#endif
}

int64_t batches(const StridedMatmul& p) {
  int64_t count = 1;
  for (int d = 0; d < p.batch_rank; ++d) count *= p.batch[static_cast<size_t>(d)];
  return count;
}

// Beyond this the arithmetic counts, and general kernels with more of it in registers win.
constexpr int64_t kMostProducts = int64_t{4} << 20;
constexpr int64_t kBlocksWanted = 128;
constexpr int64_t kLeastDepth = 24;  // of a block's share of the inner dimension

}  // namespace

bool is_small_matmul(DType dtype, const StridedMatmul& p) {
  return dtype == DType::float32 && p.m * p.n * p.k * batches(p) <= kMostProducts &&
         (p.m + kRows - 1) / kRows * batches(p) <= 65535;
}

SmallMatmulPlan plan_small_matmul(const StridedMatmul& p) {
  SmallMatmulPlan plan;
  const int64_t tiles = (p.m + kRows - 1) / kRows * batches(p);
  const auto blocks = [&](int per) { return tiles * ((p.n + 8 * per - 1) / (8 * per)); };
  while (plan.rows_per_thread < 4 && blocks(2 * plan.rows_per_thread) * kMaxCluster >= kBlocksWanted &&
         p.n > 8 * plan.rows_per_thread)
    plan.rows_per_thread *= 2;
  while (plan.cluster < kMaxCluster && blocks(plan.rows_per_thread) * plan.cluster < kBlocksWanted &&
         p.k / (2 * plan.cluster) >= kLeastDepth)
    plan.cluster *= 2;
  return plan;
}

void launch_small_matmul(const SmallMatmulPlan& plan, const StridedMatmul& p, Epilogue epilogue,
                         const float* a, const float* b, const float* bias, float* c, cudaStream_t stream) {
  const int columns = 8 * plan.rows_per_thread;
  const auto tiles = static_cast<unsigned>((p.m + kRows - 1) / kRows * batches(p));
  if (tiles == 0 || p.n == 0) return;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(plan.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(plan.cluster), static_cast<unsigned>((p.n + columns - 1) / columns), tiles);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto launch = [&](auto* kernel) {
    check(cudaLaunchKernelEx(&config, kernel, p, epilogue, a, b, bias, c), "launch of a small matmul");
  };
  switch (plan.rows_per_thread) {
    case 1: return launch(multiply<1>);
    case 2: return launch(multiply<2>);
    default: return launch(multiply<4>);
  }
}

}  // namespace lockstep::cuda
