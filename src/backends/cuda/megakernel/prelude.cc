#include "backends/cuda/megakernel/prelude.h"

namespace lockstep::cuda::megakernel {

// Memory that other blocks have written is read past the first-level cache. Sums have an order that depends
// on the shape alone.
const char* const kPrelude = R"(
constexpr unsigned kAll = 0xffffffffu;

struct DeferredError {
  int locked, found;
  i64 position;
  i64 values[8];
};

// The error at the smallest position is kept, for the host to raise.
__device__ void defer_error(DeferredError* error, i64 position, i64 value) {
  volatile DeferredError* f = error;
  if (f->found && f->position <= position) return;
  while (atomicCAS(&error->locked, 0, 1) != 0) __nanosleep(1000);
  __threadfence_system();
  if (!f->found || position < f->position) {
    f->position = position;
    f->values[0] = value;
    f->found = 1;
  }
  __threadfence_system();
  atomicExch(&error->locked, 0);
}

// --- order -------------------------------------------------------------------------------------------------------

// Blocks arrive when they have done a level's tasks, and wait before they read what others have done. What nobody has
// written meanwhile can be fetched in between.
__device__ inline void arrive(unsigned* arrivals) {
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
}
struct Wait {
  unsigned* arrivals;
  unsigned goal;  // 0: nothing is waited for
  __device__ void operator()() const {
    if (goal == 0) return;
    if (threadIdx.x == 0) {
      unsigned seen;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrivals) : "memory");
      while (seen < goal);
    }
    __syncthreads();
  }
};

// The last block to leave makes the counters ready for the next launch.
__device__ inline void leave_grid(unsigned* arrivals) {
  if (threadIdx.x != 0) return;
  __threadfence();  // behind its arrivals
  if (atomicAdd(arrivals + 32, 1u) == gridDim.x - 1) {
    arrivals[0] = 0;
    arrivals[32] = 0;
  }
}

// Where launches overlap: the next may get ready, and what was launched before has ended.
__device__ inline void begin_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The task of this block in a round: there and back again, so that the shortest are beside the longest.
__device__ inline int task_of(int round) {
  return round * (int)gridDim.x + (round % 2 ? (int)gridDim.x - 1 - (int)blockIdx.x : (int)blockIdx.x);
}

// --- copies to shared memory -------------------------------------------------------------------------------------

// Of `bytes` bytes, the rest of 16 or 4 is filled with zeros.
__device__ inline void fetch_16(float* to, const float* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
               "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void fetch_16(float* to, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
}
__device__ inline void fetch_4(void* to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
               "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void end_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ inline void await_fetches() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// `words` words from an array to rows of `pitch` for every `width`.
__device__ inline void fetch_words(void* to, const void* from, int words) {
  for (int i = threadIdx.x; i < words; i += kThreads) fetch_4((int*)to + i, (const int*)from + i, 4);
}
template <int width, int pitch> __device__ inline void fetch_matrix(float* to, const float* from, int stride, int rows) {
  for (int i = threadIdx.x; i < rows * width; i += kThreads)
    fetch_4(to + i / width * pitch + i % width, from + i / width * stride + i % width, 4);
}

// Rows of an array, in the order that `order` says from `first` on (null: as they lie), one behind the other. `width`:
// units of a row.
template <class Unit, int width, int rows, int at_once>
__device__ inline void gather_rows(const char* from, char* to, const i64* order, i64 first, int task) {
  // Those behind the last are the last once more: without a branch all are under way at once.
  const auto place = [&](int u) {
    const int i = (task * at_once + u) * kThreads + (int)threadIdx.x;
    return at_once > 1 ? min(i, rows * width - 1) : i;
  };
  if (at_once == 1 && place(0) >= rows * width) return;
  i64 row[at_once];
  Unit held[at_once];
#pragma unroll
  for (int u = 0; u < at_once; ++u) row[u] = first + place(u) / width;
  if (order)
#pragma unroll
    for (int u = 0; u < at_once; ++u) row[u] = __ldcg(order + row[u]);
#pragma unroll
  for (int u = 0; u < at_once; ++u) held[u] = __ldcg((const Unit*)from + row[u] * width + place(u) % width);
#pragma unroll
  for (int u = 0; u < at_once; ++u) ((Unit*)to)[place(u)] = held[u];
}

// --- sums over threads -------------------------------------------------------------------------------------------

struct Sum {
  static __device__ float neutral() { return 0.f; }
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Product {
  static __device__ float neutral() { return 1.f; }
  __device__ float operator()(float a, float b) const { return a * b; }
};
// NaN stays.
struct Largest {
  static __device__ float neutral() { return __int_as_float(0xff800000); }
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
struct Smallest {
  static __device__ float neutral() { return __int_as_float(0x7f800000); }
  __device__ float operator()(float a, float b) const { return a < b || a != a ? a : b; }
};

// Over `lanes` neighbouring threads; every one gets the result.
template <int lanes, class F> __device__ inline float fold(float x, F f) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) x = f(x, __shfl_xor_sync(kAll, x, step));
  return x;
}
// Over the block.
template <class F> __device__ inline float fold_block(float x, F f, float* shared) {
  x = fold<32>(x, f);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) x = f(x, shared[w]);
  return x;
}

// A line of `length` elements x(0), x(1), ... over the block.
template <int length, class F, class X> __device__ inline float fold_line(X x, F f, float* shared) {
  constexpr int kTurns = (length + kThreads - 1) / kThreads, kAtOnce = kTurns < 16 ? kTurns : 16;
  float all = F::neutral();
#pragma unroll 1
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = (turn + u) * kThreads + threadIdx.x;
      values[u] = i < length ? x(i) : F::neutral();
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) all = f(all, values[u]);
  }
  return fold_block(all, f, shared);
}

__device__ inline float relu(float x) { return x > 0 || x != x ? x : 0.f; }
__device__ inline float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
__device__ inline float gelu_erf(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118654752440f)); }
__device__ inline float gelu_tanh(float x) {
  return 0.5f * x * (1.f + tanhf(0.79788456080286535588f * (x + 0.044715f * (x * x * x))));
}

struct Candidate {
  float value;
  int place;  // -1: none
  __device__ bool beats(const Candidate& other) const {
    if (place < 0 || other.place < 0) return other.place < 0;
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (!nan && value != other.value) return value > other.value;
    return place < other.place;
  }
};
template <int lanes> __device__ inline Candidate best_of(Candidate best) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) {
    const Candidate other = {__shfl_xor_sync(kAll, best.value, step), __shfl_xor_sync(kAll, best.place, step)};
    if (other.beats(best)) best = other;
  }
  return best;
}

// --- products ----------------------------------------------------------------------------------------------------
// C[m, n] = sum of A[m, k] B[k, n]. `by_k`: the inner dimension lies densely, the other has the stride; else the other
// way round. `vectors`: four elements may be fetched at once. `early`: before the block waits. E: In, what is needed
// beside the sum, load_early(In&, m, n), load_late(In&, m, n), and finish(In, m, n, sum).

// Fetches a tile of one operand, `depth` of the inner dimension after the other, with so many threads. Where a thread's
// elements lie is worked out once. `fits`, `whole`: no tile reaches beyond the operand, no chunk beyond the inner
// dimension.
template <bool by_k, bool vectors, bool fits, bool whole, int extent, int depth, int pitch, int threads> struct TileFetch {
  static constexpr int kUnit = vectors ? 4 : 1, kAlong = (by_k ? depth : extent) / kUnit;
  static constexpr int kUnits = (extent * depth / kUnit + threads - 1) / threads;
  const float* base;
  const float* from;  // the thread's first element
  int stride, inside;  // how much of the outer dimension there is from its first element on
  int x, k;            // of that in the tile

  __device__ TileFetch(const float* base, int stride, int at, int size, int k0) : base(base), stride(stride) {
    const int u = threads == kThreads ? threadIdx.x : threadIdx.x % threads, along = u % kAlong * kUnit, across = u / kAlong;
    x = by_k ? across : along;
    k = by_k ? along : across;
    inside = size - at - x;
    from = base + (by_k ? (at + x) * stride + k0 + k : (k0 + k) * stride + at + x);
  }
  // `left`: of the inner dimension, from where the chunk begins.
  __device__ void operator()(float* to, int chunk, int left) const {
    const float* at = from + (by_k ? chunk * depth : chunk * depth * stride);
    to += by_k ? x * pitch + k : k * pitch + x;
    left -= k;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      constexpr int kStep = threads / kAlong;  // of the dimension across
      if (kUnits * threads * kUnit > extent * depth && threadIdx.x % threads + u * threads >= extent * depth / kUnit) break;
      const int step = u * kStep;
      const int more_x = fits ? kUnit : inside - (by_k ? step : 0), more_k = whole ? kUnit : left - (by_k ? 0 : step);
      const int more = by_k ? (more_x > 0 ? more_k : 0) : (more_k > 0 ? more_x : 0);
      const int bytes = 4 * max(0, min(kUnit, more));
      float* target = to + step * pitch;
      const float* source = at + step * stride;
      if constexpr (vectors && fits && whole)
        fetch_16(target, source);
      else if constexpr (vectors)
        fetch_16(target, bytes > 0 ? source : base, bytes);
      else
        fetch_4(target, bytes > 0 ? source : base, bytes);
    }
  }
};

// A float as the sum of two that the tensor cores take, of which they read the upper 11 bits of 24: the first rounded to
// that many, the second what is left of it, and cut off by the units.
__device__ inline void split(float x, unsigned& high, unsigned& low) {
  high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  low = __float_as_uint(x - __uint_as_float(high));
}
// Infinity has no such halves, nor has a number that rounds up to it: products with them come out as NaN. So a sum that is
// NaN is made again, one product after the other.
template <bool a_by_k, bool b_by_k>
__device__ inline float settled(float sum, const float* a, int a_stride, const float* b, int b_stride, int m, int n, int begin,
                                int end) {
  if (sum == sum) return sum;
  sum = 0.f;
#pragma unroll 1
  for (int k = begin; k < end; ++k)
    sum = fmaf(__ldcg(a + (a_by_k ? m * a_stride + k : k * a_stride + m)),
               __ldcg(b + (b_by_k ? n * b_stride + k : k * b_stride + n)), sum);
  return sum;
}
__device__ inline void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Shared memory by its own address of 32 bits: NVRTC takes two registers and an addition for a pointer of 64.
__device__ inline float read_shared(unsigned address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

// f(in, number in the tile, m, n) for the results of a tile that are this thread's.
template <int M, int N, int rows, int columns, class In, int count, class F>
__device__ inline void each_result(In (&in)[count], int m0, int n0, F f) {
#pragma unroll
  for (int r = 0; r < count; ++r) {
    const int i = threadIdx.x + r * kThreads, m = m0 + i / columns, n = n0 + i % columns;
    if (i < rows * columns && m < M && n < N) f(in[r], i, m, n);
  }
}

// A block has a tile, of `share` of the inner dimension (the results of all parts lie one behind the other). A warp has
// `warp_rows` rows of it, and those with the same rows take turns along the inner dimension, eight steps at a time. A product of
// floats is three of the tensor cores': what is left out is smaller than what float32 rounds away. The cores do not round
// sums to nearest, so that only a few products are added there.
template <bool a_by_k, bool a_vectors, bool a_early, bool b_by_k, bool b_vectors, bool b_early, int M, int N, int K,
          int rows, int columns, int warp_rows, int depth, int share, class E>
__device__ inline void tile_product(const float* a, int a_stride, const float* b, int b_stride, int task, const E& e,
                                    float* shared, const Wait& wait) {
  constexpr int kBands = rows / warp_rows, kSteps = warp_rows / 16, kMost = kThreads / 32 / kBands, kTeams = depth / 8 < kMost ? depth / 8 : kMost;
  constexpr int kStages = depth > 64 ? 3 : 4;
  // Whichever way a matrix lies, the lanes of a warp meet all banks.
  constexpr int kPitchA = a_by_k ? depth + 4 : rows + 8, kPitchB = b_by_k ? depth + 4 : columns + 8;
  constexpr int kSizeA = (a_by_k ? rows : depth) * kPitchA;
  constexpr int kStage = kSizeA + (b_by_k ? columns : depth) * kPitchB;
  constexpr int kPitchC = columns + 8;
  constexpr int kAcross = (N + columns - 1) / columns, kChunks = (share + depth - 1) / depth;
  constexpr int kParts = (K + share - 1) / share, kResults = (rows * columns + kThreads - 1) / kThreads;
  const int part = task % kParts, begin = part * share, end = min(K, begin + share);
  task /= kParts;
  const int m0 = task / kAcross * rows, n0 = task % kAcross * columns;
  const int band = threadIdx.x / 32 % kBands, team = threadIdx.x / 32 / kBands;
  const int group = threadIdx.x % 32 / 4, rank = threadIdx.x % 4;

  constexpr bool kWhole = K % share == 0 && share % depth == 0;
  const TileFetch<a_by_k, a_vectors, M % rows == 0, kWhole, rows, depth, kPitchA, kThreads> fetch_a(a, a_stride, m0, M, begin);
  const TileFetch<b_by_k, b_vectors, N % columns == 0, kWhole, columns, depth, kPitchB, kThreads> fetch_b(b, b_stride, n0, N,
                                                                                                         begin);
  const auto fetch = [&](int chunk, bool with_a, bool with_b) {
    if (chunk >= kChunks) return;
    float* to = shared + chunk % kStages * kStage;
    const int left = end - begin - chunk * depth;
    if (with_a) fetch_a(to, chunk, left);
    if (with_b) fetch_b(to + kSizeA, chunk, left);
  };
  using In = typename E::In;
  In in[kResults];
#pragma unroll 1
  for (int chunk = 0; chunk < kStages - 1; ++chunk) fetch(chunk, a_early, b_early);
  each_result<M, N, rows, columns>(in, m0, n0, [&](In& in, int, int m, int n) { e.load_early(in, m, n); });
  wait();
#pragma unroll 1
  for (int chunk = 0; chunk < kStages - 1; ++chunk) {
    fetch(chunk, !a_early, !b_early);
    end_fetches();
  }
  each_result<M, N, rows, columns>(in, m0, n0, [&](In& in, int, int m, int n) { e.load_late(in, m, n); });

  // Where this lane's elements of the first stage are.
  const unsigned first = (unsigned)__cvta_generic_to_shared(shared), row = band * warp_rows + group;
  const unsigned first_a = first + 4 * (a_by_k ? row * kPitchA + rank : rank * kPitchA + row);
  const unsigned first_b = first + 4 * (kSizeA + (b_by_k ? group * kPitchB + rank : rank * kPitchB + group));
  float sums[kSteps][columns / 8][4] = {};
#pragma unroll 1
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    await_fetches<kStages - 2>();
    __syncthreads();
    fetch(chunk + kStages - 1, true, true);
    end_fetches();
    const unsigned left = first_a + chunk % kStages * (4 * kStage), right = first_b + chunk % kStages * (4 * kStage);
#pragma unroll
    for (int turn = 0; turn < (depth / 8 + kTeams - 1) / kTeams; ++turn) {
      const int kk = (turn * kTeams + team) * 8;
      if (kk >= depth) break;
      const auto from_a = [&](int m, int k) {
        return read_shared(left + 4 * (a_by_k ? m * kPitchA + kk + k : (kk + k) * kPitchA + m));
      };
      const auto from_b = [&](int k, int n) {
        return read_shared(right + 4 * (b_by_k ? n * kPitchB + kk + k : (kk + k) * kPitchB + n));
      };
      unsigned a_high[kSteps][4], a_low[kSteps][4], b_high[columns / 8][2], b_low[columns / 8][2];
#pragma unroll
      for (int r = 0; r < kSteps; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          split(from_a(r * 16 + i % 2 * 8, i / 2 * 4), a_high[r][i], a_low[r][i]);
#pragma unroll
      for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) split(from_b(4 * i, j * 8), b_high[j][i], b_low[j][i]);
      // The small ones first; those of one sum are apart, for each has to wait for the one before.
      float few[kSteps][columns / 8][4] = {};
#pragma unroll
      for (int product = 0; product < 3; ++product)
#pragma unroll
        for (int r = 0; r < kSteps; ++r)
#pragma unroll
          for (int j = 0; j < columns / 8; ++j)
            multiply(few[r][j], product == 0 ? a_low[r] : a_high[r], product == 1 ? b_low[j] : b_high[j]);
#pragma unroll
      for (int r = 0; r < kSteps; ++r)
#pragma unroll
        for (int j = 0; j < columns / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[r][j][i] += few[r][j][i];
    }
  }
  await_fetches<0>();
  __syncthreads();
  if (team < kTeams)
#pragma unroll
    for (int r = 0; r < kSteps; ++r)
#pragma unroll
      for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          *(float2*)(shared + (team * rows + band * warp_rows + r * 16 + group + i * 4) * kPitchC + j * 8 + rank * 2) = {
              sums[r][j][i], sums[r][j][i + 1]};
  __syncthreads();
  each_result<M, N, rows, columns>(in, m0, n0, [&](In& in, int i, int m, int n) {
    const float* from = shared + i / columns * kPitchC + i % columns;
    float sum = from[0];
#pragma unroll
    for (int w = 1; w < kTeams; ++w) sum += from[w * rows * kPitchC];
    e.finish(in, part * M + m, n, settled<a_by_k, b_by_k>(sum, a, a_stride, b, b_stride, m, n, begin, end));
  });
}

// The same for a long inner dimension: every warp has the whole tile, fetches its own `depth` of every so many for itself,
// and waits for nobody until all add up.
template <bool a_by_k, bool a_vectors, bool a_early, bool b_by_k, bool b_vectors, bool b_early, int M, int N, int K,
          int rows, int columns, int depth, int stages, int share, class E>
__device__ inline void stream_product(const float* a, int a_stride, const float* b, int b_stride, int task, const E& e,
                                      float* shared, const Wait& wait) {
  constexpr int kSteps = rows / 16, kTeams = kThreads / 32;
  constexpr int kPitchA = a_by_k ? depth + 4 : rows + 8, kPitchB = b_by_k ? depth + 4 : columns + 8;
  constexpr int kSizeA = (a_by_k ? rows : depth) * kPitchA;
  constexpr int kStage = kSizeA + (b_by_k ? columns : depth) * kPitchB;
  constexpr int kPitchC = columns + 8;
  constexpr int kAcross = (N + columns - 1) / columns;
  constexpr int kParts = (K + share - 1) / share, kResults = (rows * columns + kThreads - 1) / kThreads;
  const int team = threadIdx.x / 32, group = threadIdx.x % 32 / 4, rank = threadIdx.x % 4;
  const int part = task % kParts, begin = part * share, end = min(K, begin + share);
  task /= kParts;
  const int m0 = task / kAcross * rows, n0 = task % kAcross * columns;
  float* const own = shared + team * stages * kStage;

  constexpr bool kWhole = K % share == 0 && share % depth == 0;
  const TileFetch<a_by_k, a_vectors, M % rows == 0, kWhole, rows, depth, kPitchA, 32> fetch_a(a, a_stride, m0, M, begin);
  const TileFetch<b_by_k, b_vectors, N % columns == 0, kWhole, columns, depth, kPitchB, 32> fetch_b(b, b_stride, n0, N, begin);
  const int turns = (end - begin + (kTeams - team) * depth - 1) / (depth * kTeams);  // of this warp
  const auto fetch = [&](int turn, bool with_a, bool with_b) {
    if (turn >= turns) return;
    float* to = own + turn % stages * kStage;
    const int chunk = turn * kTeams + team, left = end - begin - chunk * depth;
    if (with_a) fetch_a(to, chunk, left);
    if (with_b) fetch_b(to + kSizeA, chunk, left);
  };
  using In = typename E::In;
  In in[kResults];
#pragma unroll 1
  for (int turn = 0; turn < stages - 1; ++turn) fetch(turn, a_early, b_early);
  each_result<M, N, rows, columns>(in, m0, n0, [&](In& in, int, int m, int n) { e.load_early(in, m, n); });
  wait();
#pragma unroll 1
  for (int turn = 0; turn < stages - 1; ++turn) {
    fetch(turn, !a_early, !b_early);
    end_fetches();
  }
  each_result<M, N, rows, columns>(in, m0, n0, [&](In& in, int, int m, int n) { e.load_late(in, m, n); });

  // Where this lane's elements of the first stage are.
  const unsigned first = (unsigned)__cvta_generic_to_shared(own);
  const unsigned first_a = first + 4 * (a_by_k ? group * kPitchA + rank : rank * kPitchA + group);
  const unsigned first_b = first + 4 * (kSizeA + (b_by_k ? group * kPitchB + rank : rank * kPitchB + group));
  float sums[kSteps][columns / 8][4] = {};
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    await_fetches<stages - 2>();
    __syncwarp();
    fetch(turn + stages - 1, true, true);
    end_fetches();
    const unsigned left = first_a + turn % stages * (4 * kStage), right = first_b + turn % stages * (4 * kStage);
    float few[kSteps][columns / 8][4] = {};
#pragma unroll
    for (int kk = 0; kk < depth; kk += 8) {
      const auto from_a = [&](int m, int k) {
        return read_shared(left + 4 * (a_by_k ? m * kPitchA + kk + k : (kk + k) * kPitchA + m));
      };
      const auto from_b = [&](int k, int n) {
        return read_shared(right + 4 * (b_by_k ? n * kPitchB + kk + k : (kk + k) * kPitchB + n));
      };
      unsigned a_high[kSteps][4], a_low[kSteps][4], b_high[columns / 8][2], b_low[columns / 8][2];
#pragma unroll
      for (int r = 0; r < kSteps; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          split(from_a(r * 16 + i % 2 * 8, i / 2 * 4), a_high[r][i], a_low[r][i]);
#pragma unroll
      for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) split(from_b(4 * i, j * 8), b_high[j][i], b_low[j][i]);
      // The small ones first; those of one sum are apart, for each has to wait for the one before.
#pragma unroll
      for (int product = 0; product < 3; ++product)
#pragma unroll
        for (int r = 0; r < kSteps; ++r)
#pragma unroll
          for (int j = 0; j < columns / 8; ++j)
            multiply(few[r][j], product == 0 ? a_low[r] : a_high[r], product == 1 ? b_low[j] : b_high[j]);
    }
#pragma unroll
    for (int r = 0; r < kSteps; ++r)
#pragma unroll
      for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[r][j][i] += few[r][j][i];
  }
  await_fetches<0>();
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kSteps; ++r)
#pragma unroll
    for (int j = 0; j < columns / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        *(float2*)(shared + (team * rows + r * 16 + group + i * 4) * kPitchC + j * 8 + rank * 2) = {sums[r][j][i],
                                                                                                 sums[r][j][i + 1]};
  __syncthreads();
  each_result<M, N, rows, columns>(in, m0, n0, [&](In& in, int i, int m, int n) {
    const float* from = shared + i / columns * kPitchC + i % columns;
    float sum = from[0];
#pragma unroll
    for (int w = 1; w < kTeams; ++w) sum += from[w * rows * kPitchC];
    e.finish(in, part * M + m, n, settled<a_by_k, b_by_k>(sum, a, a_stride, b, b_stride, m, n, begin, end));
  });
}

// Sums `count` values over the lanes of a warp: afterwards a lane has count / 32 of the results, those from place_of on.
template <int count, int step> __device__ inline void scatter_sums(float* x) {
  const bool upper = threadIdx.x & step;
#pragma unroll
  for (int i = 0; i < count / 2; ++i) {
    const float sent = upper ? x[i] : x[i + count / 2], kept = upper ? x[i + count / 2] : x[i];
    x[i] = kept + __shfl_xor_sync(kAll, sent, step);
  }
  if constexpr (step > 1) scatter_sums<count / 2, step / 2>(x);
}
template <int count> __device__ inline int place_of() {
  int place = 0;
#pragma unroll
  for (int step = 16, half = count / 2; step > 0; step /= 2, half /= 2) place += threadIdx.x & step ? half : 0;
  return place;
}

template <bool by_k, bool vectors, int count>
__device__ inline void read_line(float (&to)[count], const float* from, int stride, int at, int size, int k, int K) {
  if constexpr (!by_k && vectors && count % 4 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      float4 v = {0, 0, 0, 0};
      if (k < K && at + i < size) v = __ldcg((const float4*)(from + k * stride + at + i));
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i)
      to[i] = k < K && at + i < size ? __ldcg(from + (by_k ? (at + i) * stride + k : k * stride + at + i)) : 0.f;
  }
}

// Every thread has its share of the inner dimension, for the whole of a small tile.
template <bool a_by_k, bool a_vectors, bool a_early, bool b_by_k, bool b_vectors, bool b_early, int M, int N, int K,
          int rows, int columns, class E>
__device__ inline void dot_product(const float* a, int a_stride, const float* b, int b_stride, int task, const E& e,
                                   float* shared, const Wait& wait) {
  constexpr int kAcross = (N + columns - 1) / columns, kResults = rows * columns;
  constexpr int kTurns = (K + kThreads - 1) / kThreads, kAtOnce = rows + columns <= 12 ? 4 : 2;
  const int m0 = task / kAcross * rows, n0 = task % kAcross * columns;
  typename E::In in;
  const int m = m0 + (int)threadIdx.x / columns, n = n0 + (int)threadIdx.x % columns;
  const bool has_result = threadIdx.x < kResults && m < M && n < N;
  if (has_result) e.load_early(in, m, n);
  float left[kAtOnce][rows], right[kAtOnce][columns];
  const auto read = [&](int turn, bool with_a, bool with_b) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int k = (turn + u) * kThreads + threadIdx.x;
      if (with_a) read_line<a_by_k, a_vectors>(left[u], a, a_stride, m0, M, k, K);
      if (with_b) read_line<b_by_k, b_vectors>(right[u], b, b_stride, n0, N, k, K);
    }
  };
  read(0, a_early, b_early);
  wait();
  read(0, !a_early, !b_early);
  if (has_result) e.load_late(in, m, n);

  float sums[kResults] = {};
#pragma unroll 1
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    if (turn > 0) read(turn, true, true);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
      for (int r = 0; r < rows; ++r)
#pragma unroll
        for (int c = 0; c < columns; ++c)
          sums[r * columns + c] = __fmaf_rn(left[u][r], right[u][c], sums[r * columns + c]);
  }
  scatter_sums<kResults, 16>(sums);
  float* own = shared + threadIdx.x / 32 * kResults + place_of<kResults>();
#pragma unroll
  for (int i = 0; i < kResults / 32; ++i) own[i] = sums[i];
  __syncthreads();
  if (!has_result) return;
  float sum = shared[threadIdx.x];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) sum += shared[w * kResults + threadIdx.x];
  e.finish(in, m, n, sum);
}

// Rows in shared memory times a matrix in shared memory. E: finish(row, column, sum).
template <int N, int K, int most_rows, int matrix_k, int matrix_n, class E>
__device__ inline void rows_product(const float* a, const float* matrix, int rows, const E& e) {
  constexpr int kLanes = []() {
    int lanes = 1;
    while (lanes < 32 && 2 * lanes * N <= kThreads && 2 * lanes <= K) lanes *= 2;
    return lanes;
  }();
  const int lane = threadIdx.x % kLanes;
  for (int n0 = 0; n0 < N; n0 += kThreads / kLanes) {
    const int n = n0 + (int)threadIdx.x / kLanes;
    float sums[most_rows] = {};
    if (n < N)
#pragma unroll 4
      for (int k = lane; k < K; k += kLanes) {
        const float factor = matrix[k * matrix_k + n * matrix_n];
#pragma unroll
        for (int r = 0; r < most_rows; ++r) sums[r] = __fmaf_rn(a[r * K + k], factor, sums[r]);
      }
#pragma unroll
    for (int r = 0; r < most_rows; ++r) {
      const float sum = fold<kLanes>(sums[r], Sum());
      if (n < N && r < rows && lane == r % kLanes) e(r, n, sum);
    }
  }
}

// Where the element `number` of lines of `line` elements is, if they begin `pitch` apart.
template <int line, int pitch> __device__ inline int spread(int number) { return number + number / line * (pitch - line); }

// The rows a(r, k) of an example times a matrix b(k, n) of all of them: a warp has tiles of 16 x 8. E: finish(row, column, sum).
template <int R, int N, int K, bool has_bias, class A, class B, class E>
__device__ inline void example_product(const A& a, const B& b, const float* bias, const E& e) {
  constexpr int kAcross = (N + 7) / 8, kTiles = (R + 15) / 16 * kAcross, kSteps = (K + 7) / 8;
  const int group = threadIdx.x % 32 / 4, rank = threadIdx.x % 4;
#pragma unroll 1
  for (int tile = threadIdx.x / 32; tile < kTiles; tile += kThreads / 32) {
    const int r0 = tile / kAcross * 16 + group, n0 = tile % kAcross * 8;
    float shift[2], sums[4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int n = n0 + rank * 2 + i;
      shift[i] = has_bias && n < N ? __ldcg(bias + n) : 0.f;
    }
#pragma unroll(kSteps <= 16 ? (kSteps + 3) / 4 : 1)
    for (int chunk = 0; chunk < kSteps; chunk += 4) {
      // Three sums, so that none waits long for the one before; the small ones are added first.
      float part[3][4] = {};
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        unsigned a_high[4], a_low[4], b_high[2], b_low[2];
        if ((chunk + s) * 8 >= K) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int r = r0 + i % 2 * 8, k = (chunk + s) * 8 + rank + i / 2 * 4;
          split((R % 16 == 0 || r < R) && (K % 8 == 0 || k < K) ? a(r, k) : 0.f, a_high[i], a_low[i]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int k = (chunk + s) * 8 + rank + i * 4, n = n0 + group;
          split((N % 8 == 0 || n < N) && (K % 8 == 0 || k < K) ? b(k, n) : 0.f, b_high[i], b_low[i]);
        }
        multiply(part[0], a_low, b_high);
        multiply(part[1], a_high, b_low);
        multiply(part[2], a_high, b_high);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] += (part[0][i] + part[1][i]) + part[2][i];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = r0 + i / 2 * 8, n = n0 + rank * 2 + i % 2;
      if (r >= R || n >= N) continue;
      float sum = sums[i];
      if (sum != sum) {  // perhaps of an infinity: see settled()
        sum = 0.f;
#pragma unroll 1
        for (int k = 0; k < K; ++k) sum = fmaf(a(r, k), b(k, n), sum);
      }
      if (has_bias) sum += shift[i % 2];
      e(r, n, sum);
    }
  }
}

// A matrix of all examples on its way to shared memory: `lines` lines of `width` elements, `stride` and `pitch` apart.
template <int lines, int width, int stride, int pitch> __device__ inline void fetch_lines(float* to, const float* from) {
  constexpr int kUnit = width % 4 == 0 && stride % 4 == 0 && pitch % 4 == 0 ? 4 : 1, kAlong = width / kUnit;
  for (int i = threadIdx.x; i < lines * kAlong; i += kThreads) {
    float* const target = to + i / kAlong * pitch + i % kAlong * kUnit;
    const float* const source = from + i / kAlong * stride + i % kAlong * kUnit;
    if constexpr (kUnit == 4)
      fetch_16(target, source);
    else
      fetch_4(target, source, 4);
  }
}

// The sum of products of neighbours; where their number is a multiple of four they are aligned to 16 bytes.
template <int n> __device__ inline float dot(const float* a, const float* b) {
  float sum = 0.f;
  if constexpr (n % 4 == 0) {
#pragma unroll 8
    for (int i = 0; i < n; i += 4) {
      const float4 x = *(const float4*)(a + i), y = *(const float4*)(b + i);
      sum = __fmaf_rn(x.x, y.x, sum), sum = __fmaf_rn(x.y, y.y, sum);
      sum = __fmaf_rn(x.z, y.z, sum), sum = __fmaf_rn(x.w, y.w, sum);
    }
  } else {
#pragma unroll 8
    for (int i = 0; i < n; ++i) sum = __fmaf_rn(a[i], b[i], sum);
  }
  return sum;
}
template <int count> __device__ inline void read_neighbours(float (&to)[count], const float* from) {
  if constexpr (count == 4) {
    const float4 four = *(const float4*)from;
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) to[i] = from[i];
  }
}
template <int count> __device__ inline void add_scaled(float (&sums)[count], float factor, const float* from) {
  float x[count];
  read_neighbours(x, from);
#pragma unroll
  for (int i = 0; i < count; ++i) sums[i] = __fmaf_rn(factor, x[i], sums[i]);
}

// A convolution over one image, or the gradient of its input: for every place of the result and `unit` of its channels at a
// time the sum over taps. `row_under(row, i)`, `column_under(column, j)`: where tap (i, j) meets the other image, -1: nowhere;
// x(row, column): its channels. `weights`: [taps, in, out], out rounded up to a multiple of `unit`, in shared memory. E:
// finish(place, channel, sum).
template <int rows, int columns, int height, int width, int in, int out, int unit, class R, class C, class X, class E>
__device__ inline void convolve(const R& row_under, const C& column_under, const X& x, const float* weights, const E& e) {
  constexpr int kBlocks = (out + unit - 1) / unit;
  for (int job = threadIdx.x; job < rows * columns * kBlocks; job += kThreads) {
    const int block = job % kBlocks, place = job / kBlocks, row = place / columns, column = place % columns;
    float sums[unit] = {};
#pragma unroll 1
    for (int i = 0; i < height; ++i) {
      const int r = row_under(row, i);
      if (r < 0) continue;
#pragma unroll(in <= 8 ? width : 1)
      for (int j = 0; j < width; ++j) {
        const int q = column_under(column, j);
        if (q < 0) continue;
        const float* w = weights + ((i * width + j) * in * kBlocks + block) * unit;
        const float* from = x(r, q);
        constexpr int kAtOnce = in % 4 == 0 ? 4 : 1;
#pragma unroll(in <= 16 ? in : 16)
        for (int c = 0; c < in; c += kAtOnce) {
          float v[kAtOnce];
          read_neighbours(v, from + c);
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
            for (int u = 0; u < unit; u += 4) {
              const float4 four = *(const float4*)(w + (c + k) * kBlocks * unit + u);
              sums[u] = __fmaf_rn(v[k], four.x, sums[u]), sums[u + 1] = __fmaf_rn(v[k], four.y, sums[u + 1]);
              sums[u + 2] = __fmaf_rn(v[k], four.z, sums[u + 2]), sums[u + 3] = __fmaf_rn(v[k], four.w, sums[u + 3]);
            }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < unit; ++u)
      if (block * unit + u < out) e(place, block * unit + u, sums[u]);
  }
}

// What one image gives to the gradient of a filter: for every tap, channel of the image and `unit` channels of the result the sum
// over windows. x(row, column), dy(window): their channels. E: finish(number in the filter, sum). `shared`: kThreads * unit
// floats.
template <int rows, int columns, int height, int width, int in, int out, int unit, class R, class C, class X, class D, class E>
__device__ inline void filter_gradient(const R& row_under, const C& column_under, const X& x, const D& dy, const E& e,
                                       float* shared) {
  constexpr int kBlocks = (out + unit - 1) / unit, kJobs = height * width * in * kBlocks;
  constexpr int kMost = kThreads / kJobs < rows ? kThreads / kJobs : rows, kParts = kMost > 0 ? kMost : 1;
  const auto finish = [&](int job, int u, float sum) {
    const int o = job % kBlocks * unit + u;
    if (o < out) e(job / kBlocks * out + o, sum);
  };
  for (int all = threadIdx.x; all < kJobs * kParts; all += kThreads) {
    const int part = all / kJobs, job = all % kJobs, first = job % kBlocks * unit, c = job / kBlocks % in;
    const int i = job / kBlocks / in / width, j = job / kBlocks / in % width;
    float sums[unit] = {};
#pragma unroll 1
    for (int row = part; row < rows; row += kParts) {
      const int r = row_under(row, i);
      if (r < 0) continue;
#pragma unroll(columns < 16 ? columns : 4)
      for (int column = 0; column < columns; ++column) {
        const int q = column_under(column, j);
        if (q < 0) continue;
        const float v = x(r, q)[c];
        const float* d = dy(row * columns + column) + first;
#pragma unroll
        for (int u = 0; u < unit; u += 4) {
          float four[4];
          if constexpr (out % 4 == 0) {
            read_neighbours(four, d + u);
          } else {
#pragma unroll
            for (int k = 0; k < 4; ++k) four[k] = first + u + k < out ? d[u + k] : 0.f;
          }
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[u + k] = __fmaf_rn(v, four[k], sums[u + k]);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < unit; ++u)
      if (kParts == 1)
        finish(job, u, sums[u]);
      else
        shared[all * unit + u] = sums[u];
  }
  if constexpr (kParts > 1) {
    __syncthreads();
    for (int i = threadIdx.x; i < kJobs * unit; i += kThreads) {
      float sum = shared[i];
#pragma unroll
      for (int part = 1; part < kParts; ++part) sum += shared[part * kJobs * unit + i];
      finish(i / unit, i % unit, sum);
    }
  }
}

// The sums over `length` rows of x(row, column), for each of `inner` columns. E: finish(column, sum). `shared`: kThreads floats.
template <int length, int inner, class F, class X, class E>
__device__ inline void fold_example(const X& x, const E& e, float* shared) {
  constexpr int kMost = kThreads / inner < length ? kThreads / inner : length;
  constexpr int kParts = kMost > 0 ? kMost : 1;
  if constexpr (kParts == 1) {
    for (int column = threadIdx.x; column < inner; column += kThreads) {
      float all = F::neutral();
      for (int r = 0; r < length; ++r) all = F()(all, x(r, column));
      e(column, all);
    }
  } else {
    const int part = threadIdx.x / inner, column = threadIdx.x % inner;
    if (part < kParts) {
      float all = F::neutral();
#pragma unroll 4
      for (int r = part; r < length; r += kParts) all = F()(all, x(r, column));
      shared[part * inner + column] = all;
    }
    __syncthreads();
    if constexpr (kParts <= 16) {
      if (threadIdx.x < inner) {
        float all = shared[threadIdx.x];
#pragma unroll
        for (int p = 1; p < kParts; ++p) all = F()(all, shared[p * inner + threadIdx.x]);
        e(threadIdx.x, all);
      }
    } else {
      for (int c = threadIdx.x / 32; c < inner; c += kThreads / 32) {
        float all = F::neutral();
        for (int p = threadIdx.x % 32; p < kParts; p += 32) all = F()(all, shared[p * inner + c]);
        all = fold<32>(all, F());
        if (threadIdx.x % 32 == 0) e(c, all);
      }
    }
  }
}

// Sums over the rows of `columns` neighbouring columns of [length, inner]. E as for products, but with one index.
template <int length, int inner, int columns, class F, class E>
__device__ inline void fold_columns(const float* x, int task, const E& e, float* shared, const Wait& wait) {
  constexpr int kTogether = 32 / columns, kStep = kTogether * kThreads / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = task * columns + lane % columns;
  const bool has_result = warp == 0 && lane < columns && column < inner;
  typename E::In in;
  if (has_result) e.load_early(in, column);
  wait();
  if (has_result) e.load_late(in, column);
  float sum = F::neutral();
  constexpr int kTurns = (length + kStep - 1) / kStep, kAtOnce = kTurns < 16 ? kTurns : 16;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int r = (turn + u) * kStep + warp * kTogether + lane / columns;
      values[u] = r < length && column < inner ? __ldcg(x + r * inner + column) : F::neutral();
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) sum = F()(sum, values[u]);
  }
#pragma unroll
  for (int step = 16; step >= columns; step /= 2) sum = F()(sum, __shfl_xor_sync(kAll, sum, step));
  if (lane < columns) shared[warp * columns + lane] = sum;
  __syncthreads();
  if (!has_result) return;
  sum = shared[lane];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) sum = F()(sum, shared[w * columns + lane]);
  e.finish(in, column, sum);
}
)";

}  // namespace lockstep::cuda::megakernel
