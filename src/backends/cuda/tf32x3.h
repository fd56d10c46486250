// Products of float32 matrices on tensor cores at float32's accuracy, in device code: the tile of a block. Kernels bring the
// operands (plain matrices, images under a convolution's window) as sources; see tf32x3_matmul.cu.
//
// Tensor cores read 11 of a float's 24 bits (TF32). A float is the sum of two that fit, high and low, and a product of two
// floats is three of theirs: high high + high low + low high. The fourth is smaller than what float32 rounds away. The cores cut
// sums off instead of rounding them, so only kDepth products are added there; longer sums are float32 additions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::cuda::tf32x3 {

inline constexpr int kDepth = 32;  // of the inner dimension, in shared memory at once
inline constexpr int kStages = 3;  // of these, on their way from memory while others are multiplied

// How a block's tile of the result is cut: a warp has a tile of its own.
template <int rows, int columns, int warps_down, int warps_across, int blocks_per_processor>
struct Cut {
  static constexpr int kRows = rows, kColumns = columns, kBlocks = blocks_per_processor;
  static constexpr int kWarpsDown = warps_down, kWarpsAcross = warps_across;
  static constexpr int kThreads = 32 * warps_down * warps_across;
  static constexpr int kWarpRows = rows / warps_down, kWarpColumns = columns / warps_across;
  static constexpr int kDown = kWarpRows / 16, kAcross = kWarpColumns / 8;  // instructions' tiles in a warp's
};

// A tile of an operand in shared memory. `outer` is a row of the left or a column of the right matrix. Whichever of the two
// dimensions lies dense in memory lies dense here, and the lanes that read a fragment meet all banks.
template <int kOuter, bool kByDepth>
struct OperandTile {
  static constexpr int kPitch = kByDepth ? kDepth + 4 : kOuter + 8;
  static constexpr int kElements = (kByDepth ? kOuter : kDepth) * kPitch;
  static __device__ int place(int outer, int k) { return kByDepth ? outer * kPitch + k : k * kPitch + outer; }
};

// A source of elements says where one lies:
//   kByDepth                  whether neighbours in memory are neighbours along the inner dimension
//   vectors()                 whether four neighbours that begin at a multiple of four lie together, aligned to 16 bytes
//   Outer outer(int index)    what it keeps of a row (column), which may be beyond the last one
//   Inner inner(int k)        and of a place in the inner dimension
//   at(outer, inner)          the element, null where there is none and it counts as zero

// Shared memory's own address; `from` null: zeros.
template <int kBytes>
__device__ inline void copy_async(float* to, const float* from, const float* anywhere) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = from ? kBytes : 0;
  const float* source = from ? from : anywhere;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(source), "r"(bytes)
                 : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the newest kStages - 2 groups have arrived.
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
}

// Starts the copy of k0 .. k0 + kDepth, as far as it lies before `end`.
template <int kOuter, int kThreads, int kEach, class Source>
__device__ inline void fetch_lines(const Source& source, const typename Source::Outer* outers, float* tile,
                                   int k0, int end) {
  using Tile = OperandTile<kOuter, Source::kByDepth>;
  constexpr int kLine = (Source::kByDepth ? kDepth : kOuter) / kEach,
                kLines = Source::kByDepth ? kOuter : kDepth;
  static_assert(kThreads % kLine == 0 && kLines % (kThreads / kLine) == 0);
  const int unit = static_cast<int>(threadIdx.x) % kLine * kEach,
            first = static_cast<int>(threadIdx.x) / kLine;
  if constexpr (Source::kByDepth) {
    const int k = k0 + unit;
    const typename Source::Inner inner = source.inner(k);
#pragma unroll 4
    for (int line = first; line < kLines; line += kThreads / kLine)
      copy_async<4 * kEach>(tile + Tile::place(line, unit),
                            k < end ? source.at(outers[line], inner) : nullptr, source.data());
  } else {
    const typename Source::Outer outer = outers[unit];
#pragma unroll 4
    for (int line = first; line < kLines; line += kThreads / kLine) {
      const int k = k0 + line;
      copy_async<4 * kEach>(tile + Tile::place(unit, line),
                            k < end ? source.at(outer, source.inner(k)) : nullptr, source.data());
    }
  }
}
template <int kOuter, int kThreads, class Source>
__device__ inline void fetch(const Source& source, const typename Source::Outer* outers, float* tile, int k0,
                             int end) {
  if (source.vectors())
    fetch_lines<kOuter, kThreads, 4>(source, outers, tile, k0, end);
  else
    fetch_lines<kOuter, kThreads, 1>(source, outers, tile, k0, end);
}

// The first half is rounded to what a core reads, the second is what is left, and cut off by the core.
__device__ inline void split(float x, unsigned& high, unsigned& low) {
  high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  low = __float_as_uint(x - __uint_as_float(high));
}
__device__ inline void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// What a block has in shared memory.
template <class C, class A, class B>
struct Memory {
  using TileA = OperandTile<C::kRows, A::kByDepth>;
  using TileB = OperandTile<C::kColumns, B::kByDepth>;
  float a[kStages][TileA::kElements];
  float b[kStages][TileB::kElements];
  typename A::Outer rows[C::kRows];
  typename B::Outer columns[C::kColumns];
};

// A thread's share of a tile's sums.
template <class C>
struct Sums {
  float value[C::kDown][C::kAcross][2][2];  // halves: eight rows apart

  // f(sums, row, column) for each two that are neighbours in a row of the tile.
  template <class F>
  __device__ void each_pair(F f) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int row0 = warp / C::kWarpsAcross * C::kWarpRows + lane / 4;
    const int column0 = warp % C::kWarpsAcross * C::kWarpColumns + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < C::kDown; ++i)
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) f(value[i][j][half], row0 + 16 * i + half * 8, column0 + 8 * j);
  }
};

// The products of kDepth places of the inner dimension, added to `sums`.
template <class C, class TileA, class TileB>
__device__ inline void add_products(Sums<C>& sums, const float* a, const float* b) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, rank = lane % 4;
  const int row0 = warp / C::kWarpsAcross * C::kWarpRows + group;
  const int column0 = warp % C::kWarpsAcross * C::kWarpColumns + group;
  float part[C::kDown][C::kAcross][4] = {};
#pragma unroll
  for (int k = 0; k < kDepth; k += 8) {
    unsigned a_high[C::kDown][4], a_low[C::kDown][4], b_high[C::kAcross][2], b_low[C::kAcross][2];
#pragma unroll
    for (int i = 0; i < C::kDown; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        split(a[TileA::place(row0 + 16 * i + e % 2 * 8, k + rank + e / 2 * 4)], a_high[i][e], a_low[i][e]);
#pragma unroll
    for (int j = 0; j < C::kAcross; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        split(b[TileB::place(column0 + 8 * j, k + rank + e * 4)], b_high[j][e], b_low[j][e]);
        // Small ones first; those that wait for each other are apart.
#pragma unroll
    for (int i = 0; i < C::kDown; ++i)
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j) multiply(part[i][j], a_low[i], b_high[j]);
#pragma unroll
    for (int i = 0; i < C::kDown; ++i)
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j) multiply(part[i][j], a_high[i], b_low[j]);
#pragma unroll
    for (int i = 0; i < C::kDown; ++i)
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j) multiply(part[i][j], a_high[i], b_high[j]);
  }
#pragma unroll
  for (int i = 0; i < C::kDown; ++i)
#pragma unroll
    for (int j = 0; j < C::kAcross; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums.value[i][j][e / 2][e % 2] += part[i][j][e];
}

// Infinity has no such halves, nor has a number that rounds up to it: a sum with one of them comes out as NaN, and is made
// again, one product after the other.
template <class A, class B>
__device__ __noinline__ float plain_sum(const A& a, const B& b, int row, int column, int begin, int end) {
  const typename A::Outer of_a = a.outer(row);
  const typename B::Outer of_b = b.outer(column);
  float sum = 0.f;
#pragma unroll 1
  for (int k = begin; k < end; ++k) {
    const float *x = a.at(of_a, a.inner(k)), *y = b.at(of_b, b.inner(k));
    sum = fmaf(x ? *x : 0.f, y ? *y : 0.f, sum);
  }
  return sum;
}

// The sums over begin .. end of the inner dimension for the tile at (row0, column0), by all threads of a block.
template <class C, class A, class B>
__device__ inline void tile_sums(Sums<C>& sums, Memory<C, A, B>& memory, const A& a, const B& b, int row0,
                                 int column0, int begin, int end) {
  using M = Memory<C, A, B>;
  for (int i = static_cast<int>(threadIdx.x); i < C::kRows; i += C::kThreads)
    memory.rows[i] = a.outer(row0 + i);
  for (int i = static_cast<int>(threadIdx.x); i < C::kColumns; i += C::kThreads)
    memory.columns[i] = b.outer(column0 + i);
  __syncthreads();
  const auto start = [&](int k0, int stage) {
    if (k0 < end) {
      fetch<C::kRows, C::kThreads>(a, memory.rows, memory.a[stage], k0, end);
      fetch<C::kColumns, C::kThreads>(b, memory.columns, memory.b[stage], k0, end);
    }
    commit_copies();
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) start(begin + stage * kDepth, stage);
#pragma unroll
  for (auto& row : sums.value)
#pragma unroll
    for (auto& tile : row) tile[0][0] = tile[0][1] = tile[1][0] = tile[1][1] = 0.f;
  int stage = 0;
  for (int k0 = begin; k0 < end; k0 += kDepth) {
    wait_for_copies();
    // All have it, and all have done with the stage that is filled next.
    __syncthreads();
    start(k0 + (kStages - 1) * kDepth, stage == 0 ? kStages - 1 : stage - 1);
    add_products<C, typename M::TileA, typename M::TileB>(sums, memory.a[stage], memory.b[stage]);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  sums.each_pair([&](float(&pair)[2], int row, int column) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (pair[i] != pair[i]) pair[i] = plain_sum(a, b, row0 + row, column0 + column + i, begin, end);
  });
}

}  // namespace lockstep::cuda::tf32x3
