// Products of float32 matrices on tensor cores at float32's accuracy, in device code: the tile of a block.
// Kernels bring the operands (plain matrices, images under a convolution's window) as sources; see
// tf32x3_matmul.cu.
//
// Tensor cores read 11 of a float's 24 bits (TF32). A float is the sum of two that fit, high and low, and a
// product of two floats is three of theirs: high high + high low + low high. The fourth is smaller than what
// float32 rounds away. The cores cut sums off instead of rounding them, so only kDepth products are added
// there; longer sums are float32 additions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

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
  static constexpr bool kWarpGroups = false;
};

// Four warps, a warp group, multiply together (wgmma, of Hopper alone): each has 16 rows, and all columns.
// The tensor cores read the right matrix from shared memory, where its halves are put once for all warps, and
// work while the warps go on.
struct WarpGroupCut : Cut<128, 128, 8, 1, 1> {
  static constexpr bool kWarpGroups = true;
};

// A tile of an operand in shared memory. `outer` is a row of the left or a column of the right matrix.
// Whichever of the two dimensions lies dense in memory lies dense here, and the lanes that read a fragment
// meet all banks.
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
// Until all but the newest groups have arrived.
template <int newest>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
}

// Starts the copy of k0 .. k0 + kDepth, as far as it lies before `end`.
template <int kOuter, int kThreads, int kEach, class Source>
__device__ inline void fetch_lines(const Source& source, const typename Source::Outer* outers, float* tile,
                                   int k0, int end) {
  using Tile = OperandTile<kOuter, Source::kByDepth>;
  constexpr int kLine = (Source::kByDepth ? kDepth : kOuter) / kEach,
                kLines = Source::kByDepth ? kOuter : kDepth;
  constexpr int kStep = kThreads / kLine, kCount = kLines / kStep;
  static_assert(kThreads % kLine == 0 && kLines % kStep == 0);
  const int unit = static_cast<int>(threadIdx.x) % kLine * kEach,
            first = static_cast<int>(threadIdx.x) / kLine;
  if constexpr (Source::kByDepth) {
    const int k = k0 + unit;
    const typename Source::Inner inner = source.inner(k);
#pragma unroll(kEach == 4 ? kCount : 4)
    for (int i = 0; i < kCount; ++i) {
      const int line = first + i * kStep;
      const float* const from = source.at(outers[line], inner);
      copy_async<4 * kEach>(tile + Tile::place(line, unit), k < end ? from : nullptr, source.data());
    }
  } else {
    const typename Source::Outer outer = outers[unit];
#pragma unroll(kEach == 4 ? kCount : 4)
    for (int i = 0; i < kCount; ++i) {
      const int line = first + i * kStep, k = k0 + line;
      const float* const from = source.at(outer, source.inner(k));
      copy_async<4 * kEach>(tile + Tile::place(unit, line), k < end ? from : nullptr, source.data());
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
// Fragments of a tile for an instruction: 16 x 8 of the left matrix (four floats of a thread), 8 x 8 of the
// right one (two). Where four neighbours along the inner dimension are a line of 16 bytes, ldmatrix deals
// them out as the instruction wants them.
template <class Tile, bool kByDepth, int kCount>
__device__ inline void read_fragment(float (&x)[kCount], const float* tile, int outer, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kByDepth) {
    const int row = lane % 8 + (kCount == 4 ? lane / 8 % 2 * 8 : 0),
              column = kCount == 4 ? lane / 16 * 4 : lane / 8 % 2 * 4;
    const auto address =
        static_cast<unsigned>(__cvta_generic_to_shared(tile + Tile::place(outer + row, k + column)));
    unsigned bits[kCount];
    if constexpr (kCount == 4)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                   : "r"(address)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(bits[0]), "=r"(bits[1])
                   : "r"(address)
                   : "memory");
#pragma unroll
    for (int e = 0; e < kCount; ++e) x[e] = __uint_as_float(bits[e]);
  } else {
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      x[e] = tile[Tile::place(outer + lane / 4 + (kCount == 4 ? e % 2 * 8 : 0),
                              k + lane % 4 + (kCount == 4 ? e / 2 * 4 : e * 4))];
  }
}
template <int kCount>
struct Halves {
  unsigned high[kCount], low[kCount];
};
template <class Tile, bool kByDepth, int kCount>
__device__ inline void read_halves(Halves<kCount>& halves, const float* tile, int outer, int k) {
  float x[kCount];
  read_fragment<Tile, kByDepth>(x, tile, outer, k);
#pragma unroll
  for (int e = 0; e < kCount; ++e) split(x[e], halves.high[e], halves.low[e]);
}

// sum = a b, and sum += a b.
__device__ inline void multiply_first(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f));
}
__device__ inline void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The halves of a tile of the right matrix as warp groups read them: columns of kDepth floats, a line of 128
// bytes each, whose eight pieces change places from line to line so that eight lines at a time meet all banks
// (a swizzle of 128 bytes).
template <class C>
struct alignas(1024) RightHalves {
  unsigned high[2][C::kColumns * kDepth], low[2][C::kColumns * kDepth];
};
struct None {};

// What a block has in shared memory.
template <class C, class A, class B>
struct Memory {
  [[no_unique_address]] std::conditional_t<C::kWarpGroups, RightHalves<C>, None> halves;
  float a[kStages][OperandTile<C::kRows, A::kByDepth>::kElements];
  float b[kStages][OperandTile<C::kColumns, B::kByDepth>::kElements];
  typename A::Outer rows[C::kRows];
  typename B::Outer columns[C::kColumns];
};

// A thread's share of a tile's sums.
template <class C>
struct Sums {
  float value[C::kDown][C::kAcross][2][2];  // halves: eight rows apart

  static constexpr int kCount = C::kDown * C::kAcross * 4;

  // Where the first of a thread's sums is, and from there the others.
  static __device__ int first_row() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    return warp / C::kWarpsAcross * C::kWarpRows + lane / 4;
  }
  static __device__ int first_column() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    return warp % C::kWarpsAcross * C::kWarpColumns + lane % 4 * 2;
  }
  struct Place {
    int row, column;
  };
  static __device__ Place place(int number) {
    const int pair = number / 2, tile = pair / 2;
    return {first_row() + tile / C::kAcross * 16 + pair % 2 * 8,
            first_column() + tile % C::kAcross * 8 + number % 2};
  }

  // f(sums, row, column) for each two that are neighbours in a row of the tile.
  template <class F>
  __device__ void each_pair(F f) {
    const int row0 = first_row(), column0 = first_column();
#pragma unroll
    for (int i = 0; i < C::kDown; ++i)
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) f(value[i][j][half], row0 + 16 * i + half * 8, column0 + 8 * j);
  }
};

// The products of kDepth places of the inner dimension, added to `sums`. While a warp's tensor core works on
// 16 rows, the next ones are read and cut in halves; `between(step)` is called meanwhile, too.
template <class C, class A, class B, class Between>
__device__ inline void add_products(Sums<C>& sums, const float* a, const float* b, Between between) {
  using TileA = OperandTile<C::kRows, A::kByDepth>;
  using TileB = OperandTile<C::kColumns, B::kByDepth>;
  constexpr int kSteps = kDepth / 8;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row0 = warp / C::kWarpsAcross * C::kWarpRows, column0 = warp % C::kWarpsAcross * C::kWarpColumns;
  float part[C::kDown][C::kAcross][4];
  Halves<4> left[2];
  Halves<2> right[2][C::kAcross];
  const auto read_left = [&](int number) {
    read_halves<TileA, A::kByDepth>(left[number % 2], a, row0 + number % C::kDown * 16,
                                    number / C::kDown * 8);
  };
  const auto read_right = [&](int step, int j) {
    read_halves<TileB, B::kByDepth>(right[step % 2][j], b, column0 + j * 8, step * 8);
  };
  const auto add_row = [&](int i) {
#pragma unroll
    for (int j = 0; j < C::kAcross; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums.value[i][j][e / 2][e % 2] += part[i][j][e];
  };
  read_left(0);
#pragma unroll
  for (int j = 0; j < C::kAcross; ++j) read_right(0, j);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < C::kDown; ++i) {
      const int number = step * C::kDown + i;
      if (number + 1 < kSteps * C::kDown) read_left(number + 1);
      if (step + 1 < kSteps) {
#pragma unroll
        for (int j = i * C::kAcross / C::kDown; j < (i + 1) * C::kAcross / C::kDown; ++j)
          read_right(step + 1, j);
      }
      const Halves<4>& l = left[number % 2];
      const auto& r = right[step % 2];
      // Small ones first; those that wait for each other are apart.
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j)
        step == 0 ? multiply_first(part[i][j], l.low, r[j].high) : multiply(part[i][j], l.low, r[j].high);
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j) multiply(part[i][j], l.high, r[j].low);
#pragma unroll
      for (int j = 0; j < C::kAcross; ++j) multiply(part[i][j], l.high, r[j].high);
      if (step + 1 == kSteps && i > 0) add_row(i - 1);
    }
    between(step);
  }
  add_row(C::kDown - 1);
}

// --- warp groups -------------------------------------------------------------------------------------------

// d (64 x 128, of a warp group) = a b, or d += a b.
__device__ inline void multiply_by_group(float (&d)[16][4], const unsigned (&a)[4], uint64_t b, bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
        "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]),
        "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
        "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
#endif
}
__device__ inline void begin_group() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void commit_group() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_for_group() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
// What this thread has written to shared memory can be seen by the tensor cores behind the next barrier.
__device__ inline void show_to_tensor_cores() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// How wgmma finds a matrix of RightHalves: its address, 1024 bytes from eight lines to the next, the swizzle.
__device__ inline uint64_t matrix_descriptor(const unsigned* halves) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(halves));
  return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// Cuts a tile of the right matrix in halves.
template <class C, class B>
__device__ inline void write_halves(unsigned* high, unsigned* low, const float* tile) {
  using Tile = OperandTile<C::kColumns, B::kByDepth>;
#pragma unroll
  for (int i = 0; i < C::kColumns * kDepth / 4 / C::kThreads; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * C::kThreads;
    const int column = unit % C::kColumns, piece = unit / C::kColumns;
    float x[4];
    if constexpr (B::kByDepth) {
      const float4 four = *reinterpret_cast<const float4*>(tile + Tile::place(column, piece * 4));
      x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = tile[Tile::place(column, piece * 4 + e)];
    }
    uint4 highs, lows;
    split(x[0], highs.x, lows.x), split(x[1], highs.y, lows.y);
    split(x[2], highs.z, lows.z), split(x[3], highs.w, lows.w);
    const int at = column * kDepth + (piece ^ column % 8) * 4;
    *reinterpret_cast<uint4*>(high + at) = highs;
    *reinterpret_cast<uint4*>(low + at) = lows;
  }
}

// Adds the products of all of begin .. end to `sums`; fetch(k0, stage) starts the copies of a stage.
template <class C, class A, class B, class Fetch>
__device__ inline void add_by_warp_groups(Sums<C>& sums, Memory<C, A, B>& memory, int begin, int end,
                                          Fetch fetch) {
  using TileA = OperandTile<C::kRows, A::kByDepth>;
  constexpr int kSteps = kDepth / 8;
  const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
  float next[kSteps][4];
  const auto prepare = [&](int stage, int buffer) {
    write_halves<C, B>(memory.halves.high[buffer], memory.halves.low[buffer], memory.b[stage]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      read_fragment<TileA, A::kByDepth>(next[step], memory.a[stage], row0, step * 8);
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) fetch(begin + stage * kDepth, stage);
  wait_for_copies<kStages - 1>();
  __syncthreads();
  prepare(0, 0);
  int stage = 0, buffer = 0;
#pragma unroll 1
  for (int k0 = begin; k0 < end; k0 += kDepth) {
    Halves<4> left[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int e = 0; e < 4; ++e) split(next[step][e], left[step].high[e], left[step].low[e]);
    show_to_tensor_cores();
    wait_for_copies<kStages - 2>();
    // All have what they need of this stage, and the next one is there.
    __syncthreads();
    float part[C::kAcross][4];
    const uint64_t high = matrix_descriptor(memory.halves.high[buffer]),
                   low = matrix_descriptor(memory.halves.low[buffer]);
    begin_group();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const auto ahead = static_cast<uint64_t>(step * 32 >> 4);  // bytes along the lines
      multiply_by_group(part, left[step].low, high + ahead, step > 0);
      multiply_by_group(part, left[step].high, low + ahead, true);
      multiply_by_group(part, left[step].high, high + ahead, true);
    }
    commit_group();
    fetch(k0 + kStages * kDepth, stage);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    buffer ^= 1;
    if (k0 + kDepth < end) prepare(stage, buffer);
    wait_for_group();
#pragma unroll
    for (int j = 0; j < C::kAcross; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums.value[0][j][e / 2][e % 2] += part[j][e];
  }
}

// --- a tile ------------------------------------------------------------------------------------------------

// Infinity has no such halves, nor has a number that rounds up to it: a sum with one of them comes out as
// NaN, and is made again, one product after the other, by put_sums().
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

// The sums over begin .. end of the inner dimension for the tile at (row0, column0), by all threads of a
// block.
template <class C, class A, class B>
__device__ inline void tile_sums(Sums<C>& sums, Memory<C, A, B>& memory, const A& a, const B& b, int row0,
                                 int column0, int begin, int end) {
  for (int i = static_cast<int>(threadIdx.x); i < C::kRows; i += C::kThreads)
    memory.rows[i] = a.outer(row0 + i);
  for (int i = static_cast<int>(threadIdx.x); i < C::kColumns; i += C::kThreads)
    memory.columns[i] = b.outer(column0 + i);
  __syncthreads();
  const auto fetch_a = [&](int k0, int stage) {
    if (k0 < end) fetch<C::kRows, C::kThreads>(a, memory.rows, memory.a[stage], k0, end);
  };
  const auto fetch_b = [&](int k0, int stage) {
    if (k0 < end) fetch<C::kColumns, C::kThreads>(b, memory.columns, memory.b[stage], k0, end);
    commit_copies();
  };
#pragma unroll
  for (auto& row : sums.value)
#pragma unroll
    for (auto& tile : row) tile[0][0] = tile[0][1] = tile[1][0] = tile[1][1] = 0.f;
  if constexpr (C::kWarpGroups) {
    add_by_warp_groups(sums, memory, begin, end,
                       [&](int k0, int stage) { fetch_a(k0, stage), fetch_b(k0, stage); });
  } else {
#pragma unroll 1
    for (int stage = 0; stage < kStages - 1; ++stage)
      fetch_a(begin + stage * kDepth, stage), fetch_b(begin + stage * kDepth, stage);
    int stage = 0;
    for (int k0 = begin; k0 < end; k0 += kDepth) {
      wait_for_copies<kStages - 2>();
      // All have it, and all have done with the stage that is filled next.
      __syncthreads();
      const int next = stage == 0 ? kStages - 1 : stage - 1;
      add_products<C, A, B>(sums, memory.a[stage], memory.b[stage], [&](int step) {
        if (step == 0) fetch_a(k0 + (kStages - 1) * kDepth, next);
        if (step == 1) fetch_b(k0 + (kStages - 1) * kDepth, next);
      });
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }
}

// A tile's sums in shared memory, in place of the operands. What becomes of them there is a short loop: code
// for each of a thread's 64 sums is 100 KB, which no cache of instructions holds beside the rest, and every
// block fetched it anew (17 us).
template <class C>
struct SumsTile {
  static constexpr int kPitch = C::kColumns + 8;  // eight lines that a warp writes at a time meet all banks
  static constexpr int kElements = C::kRows * kPitch;
  float* data;

  __device__ float* at(int row, int column) const { return data + row * kPitch + column; }
};

// Puts the sums of tile_sums() there, by all threads of a block, behind a barrier of its own.
template <class C, class A, class B>
__device__ inline SumsTile<C> put_sums(Sums<C>& sums, Memory<C, A, B>& memory, const A& a, const B& b,
                                       int row0, int column0, int begin, int end) {
  static_assert(sizeof memory.a + sizeof memory.b >= SumsTile<C>::kElements * sizeof(float));
  const SumsTile<C> tile{memory.a[0]};
  __syncthreads();  // nobody reads operands any more
  float any = 0.f;  // NaN where one of them is
  sums.each_pair([&](float(&pair)[2], int row, int column) {
    any += pair[0] * 0.f + pair[1] * 0.f;
    *reinterpret_cast<float2*>(tile.at(row, column)) = make_float2(pair[0], pair[1]);
  });
  if (any != any) {
#pragma unroll 1
    for (int number = 0; number < Sums<C>::kCount; ++number) {
      const auto [row, column] = Sums<C>::place(number);
      float* const sum = tile.at(row, column);
      if (*sum != *sum) *sum = plain_sum(a, b, row0 + row, column0 + column, begin, end);
    }
  }
  __syncthreads();
  return tile;
}

}  // namespace lockstep::cuda::tf32x3
