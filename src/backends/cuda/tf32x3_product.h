// A product of two matrices by tf32x3.h's tiles: how it is cut over the GPU, and its launch. For files that
// nvcc compiles; sources of operands are those of tf32x3.h, and give what is theirs of a batch of products by
// `of_batch(index)`.
#pragma once

#include <algorithm>

#include "backends/cuda/activation.h"
#include "backends/cuda/check.h"
#include "backends/cuda/index.h"
#include "backends/cuda/tf32x3.h"
#include "backends/cuda/tf32x3_plan.h"

namespace lockstep::cuda::tf32x3 {

using LargeCut = Cut<128, 128, 2, 4, 1>;
using SmallCut = Cut<64, 64, 2, 2, 4>;
static_assert(LargeCut::kRows == kLargeTile && WarpGroupCut::kRows == kLargeTile &&
              SmallCut::kRows == kSmallTile && kDepth == kPlanDepth);

// A call: it is long, and seldom asked for.
static __device__ __noinline__ float activated_elsewhere(Epilogue epilogue, float x) {
  return activated(epilogue, x);
}

// act(x + bias[column] + addend[element]); what is null is left out.
struct Finish {
  const float* bias = nullptr;
  const float* addend = nullptr;
  Epilogue epilogue = Epilogue::none;

  __device__ float operator()(float x, int column, int64_t element) const {
    if (bias) x += bias[column];
    if (addend) x += addend[element];
    return epilogue == Epilogue::none ? x : activated_elsewhere(epilogue, x);
  }
};

// Rows of a tile that a thread has under way at the same time.
inline constexpr int kRowsAtOnce = 4;

// Stores a tile of C, finished; `row0` and `column0` are its first, `c` and the addend begin with the
// product's.
template <class C>
__device__ inline void store_tile(const SumsTile<C>& tile, const Finish& finish, float* c, int row0,
                                  int column0, const ProductSize& size) {
  constexpr int kUnits = C::kColumns / 4, kStep = C::kThreads / kUnits;
  static_assert(C::kThreads % kUnits == 0 && C::kRows % (kStep * kRowsAtOnce) == 0);
  const int at = static_cast<int>(threadIdx.x) % kUnits * 4, column = column0 + at;
  const int own = min(4, size.n - column);
  if (own <= 0) return;
  const auto aligned = [](const float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  // Four neighbours at once, where they lie so.
  const bool whole = size.n % 4 == 0 && aligned(c) && aligned(finish.addend);
  float bias[4] = {};
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (finish.bias && e < own) bias[e] = finish.bias[column + e];
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) / kUnits; first < C::kRows; first += kStep * kRowsAtOnce) {
    float x[kRowsAtOnce][4], more[kRowsAtOnce][4] = {};
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int row = first + r * kStep;
      const float4 four = *reinterpret_cast<const float4*>(tile.at(row, at));
      x[r][0] = four.x, x[r][1] = four.y, x[r][2] = four.z, x[r][3] = four.w;
      if (!finish.addend || row0 + row >= size.m) continue;
      const float* const from = finish.addend + static_cast<int64_t>(row0 + row) * size.n + column;
      if (whole) {
        const float4 read = *reinterpret_cast<const float4*>(from);
        more[r][0] = read.x, more[r][1] = read.y, more[r][2] = read.z, more[r][3] = read.w;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (e < own) more[r][e] = from[e];
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int row = row0 + first + r * kStep;
      if (row >= size.m) break;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (finish.bias) x[r][e] += bias[e];
        if (finish.addend) x[r][e] += more[r][e];
      }
      if (finish.epilogue == Epilogue::relu) {
#pragma unroll
        for (float& one : x[r]) one = activated(Epilogue::relu, one);
      } else if (finish.epilogue != Epilogue::none) {
#pragma unroll
        for (float& one : x[r]) one = activated_elsewhere(finish.epilogue, one);
      }
      float* const to = c + static_cast<int64_t>(row) * size.n + column;
      if (whole) {
        *reinterpret_cast<float4*>(to) = make_float4(x[r][0], x[r][1], x[r][2], x[r][3]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (e < own) to[e] = x[r][e];
      }
    }
  }
}

template <class C, class A, class B>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    multiply_tiles(const __grid_constant__ A all_a, const __grid_constant__ B all_b, ProductSize size,
                   int share, Finish finish, float* c, float* parts) {
  extern __shared__ __align__(1024) unsigned char shared[];
  auto& memory = *reinterpret_cast<Memory<C, A, B>*>(shared);
  const int across = (size.n + C::kColumns - 1) / C::kColumns;
  const int row0 = static_cast<int>(blockIdx.x) / across * C::kRows;
  const int column0 = static_cast<int>(blockIdx.x) % across * C::kColumns;
  const int begin = static_cast<int>(blockIdx.y) * share, end = min(size.k, begin + share);
  const auto& a = all_a.of_batch(static_cast<int>(blockIdx.z));
  const auto& b = all_b.of_batch(static_cast<int>(blockIdx.z));
  Sums<C> sums;
  tile_sums(sums, memory, a, b, row0, column0, begin, end);
  const SumsTile<C> tile = put_sums(sums, memory, a, b, row0, column0, begin, end);
  const int64_t product = static_cast<int64_t>(size.m) * size.n;
  const int64_t first = static_cast<int64_t>(blockIdx.z) * product;
  if (gridDim.y > 1) {
    c = parts + static_cast<int64_t>(blockIdx.y) * gridDim.z * product;
    finish = Finish{};
  }
  if (finish.addend) finish.addend += first;
  store_tile(tile, finish, c + first, row0, column0, size);
}

// Where the inner dimension was split (split-K): the sums of all parts, in their order.
static __global__ void add_parts(const float* parts, int count, int64_t elements, Divider columns,
                                 Finish finish, float* c) {
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    float sum = parts[i];
    for (int part = 1; part < count; ++part) sum += parts[part * elements + i];
    c[i] = finish(sum, static_cast<int>(i - columns.quotient(i) * columns.divisor()), i);
  }
}

// Queues it. `c` is [batches, m, n], aligned to 8 bytes; `parts` has plan.workspace_bytes().
template <class A, class B>
void launch_product(const Plan& plan, const ProductSize& size, const A& a, const B& b, const Finish& finish,
                    float* c, float* parts, cudaStream_t stream) {
  const auto launch = [&]<class C>() {
    const size_t shared = sizeof(Memory<C, A, B>);
    auto* const kernel = multiply_tiles<C, A, B>;
    // Of this kernel on this GPU: with every launch, for a program may use several.
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
          "cudaFuncSetAttribute");
    const dim3 grid(static_cast<unsigned>(plan.tiles(size)), static_cast<unsigned>(plan.parts),
                    static_cast<unsigned>(size.batches));
    kernel<<<grid, C::kThreads, shared, stream>>>(a, b, size, plan.share, finish, c, parts);
  };
  switch (plan.kind) {
    case Tiles::warp_groups: launch.template operator()<WarpGroupCut>(); break;
    case Tiles::large: launch.template operator()<LargeCut>(); break;
    case Tiles::small: launch.template operator()<SmallCut>(); break;
  }
  check_launch("a matrix product in TF32 halves");
  if (plan.parts == 1) return;
  const int64_t elements = static_cast<int64_t>(size.batches) * size.m * size.n;
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((elements + kThreads - 1) / kThreads, 1 << 16));
  add_parts<<<blocks, kThreads, 0, stream>>>(parts, plan.parts, elements, Divider(size.n), finish, c);
  check_launch("the sum of a product's parts");
}

}  // namespace lockstep::cuda::tf32x3
