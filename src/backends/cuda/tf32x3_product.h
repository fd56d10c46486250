// A product of two matrices by tf32x3.h's tiles: how it is cut over the GPU, and its launch. For files that nvcc compiles;
// sources of operands are those of tf32x3.h, and give what is theirs of a batch of products by `of_batch(index)`.
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

// A tile has a place for this code per element of a thread, and most of them would never be run: seen to cost a block 35 us of
// fetching instructions.
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

template <class C, class A, class B>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    multiply_tiles(const __grid_constant__ A all_a, const __grid_constant__ B all_b, ProductSize size,
                   int share, Finish finish, float* c, float* parts) {
  extern __shared__ __align__(1024) unsigned char shared[];
  auto& memory = *reinterpret_cast<Memory<C, A, B>*>(shared);
  const int across = (size.n + C::kColumns - 1) / C::kColumns;
  const int row0 = static_cast<int>(blockIdx.x) / across * C::kRows;
  const int column0 = static_cast<int>(blockIdx.x) % across * C::kColumns;
  const int begin = static_cast<int>(blockIdx.y) * share;
  const auto& a = all_a.of_batch(static_cast<int>(blockIdx.z));
  const auto& b = all_b.of_batch(static_cast<int>(blockIdx.z));
  Sums<C> sums;
  tile_sums(sums, memory, a, b, row0, column0, begin, min(size.k, begin + share));
  const int64_t product = static_cast<int64_t>(size.m) * size.n;
  const int64_t first = static_cast<int64_t>(blockIdx.z) * product;
  float* part = parts + (static_cast<int64_t>(blockIdx.y) * gridDim.z) * product;
  sums.each_pair([&](float(&pair)[2], int row, int column) {
    const int m = row0 + row, n = column0 + column;
    if (m >= size.m) return;
    const int64_t element = first + static_cast<int64_t>(m) * size.n + n;
    float* to = (gridDim.y > 1 ? part : c) + element;
    if (gridDim.y == 1) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (n + i < size.n) pair[i] = finish(pair[i], n + i, element + i);
    }
    if (n + 1 < size.n && size.n % 2 == 0) {
      *reinterpret_cast<float2*>(to) = make_float2(pair[0], pair[1]);
    } else {
      if (n < size.n) to[0] = pair[0];
      if (n + 1 < size.n) to[1] = pair[1];
    }
  });
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
