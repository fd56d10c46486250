// Recurrences on NVIDIA GPUs: one launch for the whole sequence where a cluster of blocks holds the kernel in
// its shared memory, else a product and a pass over the states at each step.
//
// Examples are independent of each other, so a cluster takes some of them through all steps. Each of its
// blocks has some of the units, with all of their gates:
//   forward   it multiplies h of all units by its columns of the kernel, and sends its new h to the other blocks;
//   backward  it multiplies the gradients of its gates by its columns, transposed, which is its share of dh of all units,
//             and sends each block the share of its units.
// Nobody waits for all of a cluster's blocks to arrive somewhere: what is sent counts itself at the receiver,
// who goes on when all of a step's bytes are there. How many blocks there are, and the order of every sum,
// depend on the units alone: a row's bits do not depend on the batch.
#include <cooperative_groups.h>

#include <algorithm>
#include <optional>

#include "backends/cuda/block.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/tf32x3.h"
#include "ops/matmul/matmul.h"
#include "ops/nn/recurrence.h"
#include "ops/nn/recurrence_cells.h"

namespace lockstep::cuda {
namespace {

namespace cg = cooperative_groups;

template <class C>
struct ScalarMath {
  using Value = C;
  static __device__ __forceinline__ C one() { return C(1); }
  static __device__ __forceinline__ C sigmoid(C x) { return C(1) / (C(1) + exp(-x)); }
  static __device__ __forceinline__ C tanh(C x) { return ::tanh(x); }
};
// Without branches and with the chip's own exponential, whose error grows with |x| no faster than these
// functions level out. Near 0 tanh is a polynomial that interpolates tanh(x) / x in x^2.
template <>
struct ScalarMath<float> {
  using Value = float;
  static __device__ __forceinline__ float one() { return 1.f; }
  static __device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
  static __device__ __forceinline__ float tanh(float x) {
    const float e = __expf(-2.f * fabsf(x)), y = x * x;
    const float large = copysignf(__fdividef(1.f - e, 1.f + e), x);
    float p = fmaf(y, -0.00626911973f, 0.0211109591f);
    p = fmaf(y, p, -0.0538739489f);
    p = fmaf(y, p, 0.133329154f);
    p = fmaf(y, p, -0.333333303f);
    return fabsf(x) < 0.6f ? fmaf(x * y, p, x) : large;
  }
};

// Tensors of the op, of its dtype; null where there is none.
struct Forward {
  int64_t time, batch, units;
  bool reverse;
  const void *x, *kernel, *h0, *c0, *bias;
  const bool* mask;
  void *h, *last, *c, *last_cell, *kept;
};
struct Backward {
  int64_t time, batch, units;
  bool reverse;
  const void *kernel, *s0, *s, *kept;
  const bool* mask;
  const void *dsteps, *dlast, *dcells, *dlast_cell, *dkept;
  void *dp, *dx, *dh0, *dc0;
};

template <class T>
__device__ __forceinline__ Real<T> load(const void* tensor, int64_t at) {
  return static_cast<Real<T>>(static_cast<const T*>(tensor)[at]);
}
template <class T>
__device__ __forceinline__ Real<T> load_or_zero(const void* tensor, int64_t at) {
  return tensor ? load<T>(tensor, at) : Real<T>(0);
}
template <class T>
__device__ __forceinline__ void store(void* tensor, int64_t at, Real<T> value) {
  static_cast<T*>(tensor)[at] = static_cast<T>(value);
}

// --- one step of one unit, whoever made the product --------------------------------------------------------

// What a step reads of one example and unit beside the product.
template <class Cell, class T>
struct ForwardOperands {
  Real<T> x[Cell::kGates];
  bool counts;

  // Step number `index` in the order of the steps.
  __device__ __forceinline__ void read(const Forward& f, int64_t index, int64_t row, int64_t unit) {
    const int64_t place = (f.reverse ? f.time - 1 - index : index) * f.batch + row;
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) x[g] = load<T>(f.x, (place * Cell::kGates + g) * f.units + unit);
    counts = !f.mask || f.mask[place];
  }
};

// The states of one example and unit.
template <class Cell, class T>
struct ForwardState {
  Real<T> h = 0, c = 0, kept[Cell::kKept + 1];

  __device__ __forceinline__ void begin(const Forward& f, int64_t row, int64_t unit) {
    h = load<T>(f.h0, row * f.units + unit);
    if constexpr (Cell::kCells) c = load<T>(f.c0, row * f.units + unit);
  }
  // `product`: of each gate, without the bias.
  __device__ __forceinline__ void step(const ForwardOperands<Cell, T>& operands, const Real<T>* product,
                                       const Real<T>* bias) {
    Real<T> p[Cell::kGates];
    if (operands.counts) {
#pragma unroll
      for (int g = 0; g < Cell::kGates; ++g) p[g] = Cell::kInputGradient ? product[g] + bias[g] : product[g];
      Cell::forward(operands.x, p, h, c, kept);
    } else {
#pragma unroll
      for (int k = 0; k < Cell::kKept; ++k) kept[k] = 0;
    }
  }
  __device__ __forceinline__ void write(const Forward& f, int64_t index, int64_t row, int64_t unit) const {
    const int64_t place = (f.reverse ? f.time - 1 - index : index) * f.batch + row;
    store<T>(f.h, place * f.units + unit, h);
    if constexpr (Cell::kCells) store<T>(f.c, place * f.units + unit, c);
#pragma unroll
    for (int k = 0; k < Cell::kKept; ++k)
      store<T>(f.kept, (place * Cell::kKept + k) * f.units + unit, kept[k]);
  }
  __device__ __forceinline__ void end(const Forward& f, int64_t row, int64_t unit) const {
    store<T>(f.last, row * f.units + unit, h);
    if constexpr (Cell::kCells) store<T>(f.last_cell, row * f.units + unit, c);
  }
};

template <class Cell, class T>
struct BackwardOperands {
  Real<T> kept[Cell::kKept + 1], dkept[Cell::kKept + 1], state, before, dh, dc;
  bool counts;

  __device__ __forceinline__ void read(const Backward& b, int64_t index, int64_t row, int64_t unit) {
    const int64_t place = (b.reverse ? b.time - 1 - index : index) * b.batch + row;
    const int64_t at = place * b.units + unit;
#pragma unroll
    for (int k = 0; k < Cell::kKept; ++k) {
      kept[k] = load<T>(b.kept, (place * Cell::kKept + k) * b.units + unit);
      dkept[k] = load_or_zero<T>(b.dkept, (place * Cell::kKept + k) * b.units + unit);
    }
    state = load<T>(b.s, at);
    const int64_t earlier = (b.reverse ? 1 : -1) * b.batch * b.units;
    before = index > 0 ? load<T>(b.s, at + earlier) : load<T>(b.s0, row * b.units + unit);
    dh = load_or_zero<T>(b.dsteps, at);
    dc = Cell::kCells ? load_or_zero<T>(b.dcells, at) : Real<T>(0);
    counts = !b.mask || b.mask[place];
  }
};

// What arrives at the states of one example and unit.
template <class Cell, class T>
struct BackwardState {
  Real<T> dh = 0, dc = 0, dp[Cell::kGates], dx[Cell::kGates];

  __device__ __forceinline__ void begin(const Backward& b, int64_t row, int64_t unit) {
    dh = load_or_zero<T>(b.dlast, row * b.units + unit);
    if constexpr (Cell::kCells) dc = load_or_zero<T>(b.dlast_cell, row * b.units + unit);
  }
  // Afterwards it is what arrives at the states before the step, but for what dp brings.
  __device__ __forceinline__ void step(const BackwardOperands<Cell, T>& operands) {
    dh += operands.dh;
    dc += operands.dc;
    if (operands.counts) {
      Cell::backward(operands.kept, operands.dkept, operands.state, operands.before, dh, dc, dp, dx);
    } else {
#pragma unroll
      for (int g = 0; g < Cell::kGates; ++g) dp[g] = dx[g] = 0;
    }
  }
  __device__ __forceinline__ void write(const Backward& b, int64_t index, int64_t row, int64_t unit) const {
    const int64_t place = (b.reverse ? b.time - 1 - index : index) * b.batch + row;
#pragma unroll
    for (int g = 0; g < Cell::kGates; ++g) {
      store<T>(b.dp, (place * Cell::kGates + g) * b.units + unit, dp[g]);
      if constexpr (Cell::kInputGradient) store<T>(b.dx, (place * Cell::kGates + g) * b.units + unit, dx[g]);
    }
  }
  __device__ __forceinline__ void end(const Backward& b, int64_t row, int64_t unit) const {
    store<T>(b.dh0, row * b.units + unit, dh);
    if constexpr (Cell::kCells) store<T>(b.dc0, row * b.units + unit, dc);
  }
};

// --- products of a block -----------------------------------------------------------------------------------

// A block multiplies its part of the recurrent kernel by the states of a few examples: M rows of the kernel's
// part, K to add up, on tensor cores at float32's accuracy (backends/cuda/tf32x3.h), of which each
// instruction takes a tile of 16 x 8 by 8 examples.
//
// Where a warp has few tiles, they stay in its registers for the whole sequence. Else they are read from
// shared memory at every step, by more warps.
constexpr int kTileRows = 16, kTileDepth = 8, kTileExamples = 8;
constexpr int kExamples = 16;  // of a block, at most
constexpr int kHeldTiles = 8;

template <bool Held>
struct Team {
  static constexpr int kThreads = Held ? 256 : 512;
  static constexpr int kWarps = kThreads / kWarp;
};

struct ProductPlan {
  int row_tiles, depth_tiles;
  int parts;  // of the depth: warps that add up different parts of the same rows
  int share;  // tiles of a part
  bool held;
  int threads;

  __host__ __device__ ProductPlan(int rows, int depth, bool in_parts)
      : row_tiles((rows + kTileRows - 1) / kTileRows), depth_tiles((depth + kTileDepth - 1) / kTileDepth) {
    deal(in_parts, Team<true>::kWarps);
    held = row_tiles <= Team<true>::kWarps && share <= kHeldTiles;
    if (!held) deal(in_parts, Team<false>::kWarps);
    threads = held ? Team<true>::kThreads : Team<false>::kThreads;
  }
  __host__ __device__ int matrix_floats() const {
    return held ? 0 : row_tiles * depth_tiles * kTileRows * kTileDepth;
  }
  // Of an example's K numbers in shared memory: lanes that read at once find all banks.
  __host__ __device__ int depth_stride() const { return (depth_tiles * kTileDepth + 23) / 32 * 32 + 8; }
  // Of an example's M results.
  __host__ __device__ int row_stride() const { return row_tiles * kTileRows + 4; }

 private:
  __host__ __device__ void deal(bool in_parts, int warps) {
    parts = in_parts && row_tiles < warps ? warps / row_tiles : 1;
    share = (depth_tiles + parts - 1) / parts;
  }
};

// This lane's numbers of a tile of the kernel's part: rows lane / 4 and 8 more, depths 2 (lane % 4) and 1
// more. Which of the depths is which is for both factors to agree on.
template <class Element>
__device__ __forceinline__ float4 tile_of(int row_tile, int depth_tile, const Element& element) {
  const int lane = threadIdx.x % kWarp;
  const int m = row_tile * kTileRows + lane / 4, k = depth_tile * kTileDepth + 2 * (lane % 4);
  return make_float4(element(m, k), element(m + 8, k), element(m, k + 1), element(m + 8, k + 1));
}

template <bool Held>
class Product {
 public:
  static constexpr int kWarps = Team<Held>::kWarps;

  // `element(m, k)` of the kernel's part, 0 outside; `matrix`: plan.matrix_floats() of shared memory.
  template <class Element>
  __device__ __forceinline__ Product(const ProductPlan& plan, float* matrix, const Element& element)
      : plan_(plan),
        matrix_(reinterpret_cast<float4*>(matrix)),
        row_tile_(threadIdx.x / kWarp % min(plan.row_tiles, kWarps)),
        part_(threadIdx.x / kWarp / min(plan.row_tiles, kWarps)),
        begin_(part_ * plan.share),
        end_(min(plan.depth_tiles, begin_ + plan.share)) {
    if constexpr (Held) {
#pragma unroll
      for (int i = 0; i < kHeldTiles; ++i)
        split_tile(tile_of(row_tile_, begin_ + i, element), high_[i], low_[i]);
    } else {
      for (int tile = threadIdx.x / kWarp; tile < plan.row_tiles * plan.depth_tiles; tile += kWarps)
        matrix_[tile * kWarp + threadIdx.x % kWarp] =
            tile_of(tile / plan.depth_tiles, tile % plan.depth_tiles, element);
    }
  }

  // sink(part, m, example, first, second) for the results of this lane: those of an example and of the next
  // one. `states`: [examples, plan.depth_stride()] in shared memory, zeros behind the depth. All threads call
  // it.
  template <class Sink>
  __device__ __forceinline__ void operator()(const float* states, int examples, const Sink& sink) const {
    if (part_ >= plan_.parts) return;
    const int lane = threadIdx.x % kWarp, stride = plan_.depth_stride();
    const float* const own = states + lane / 4 * stride + 2 * (lane % 4);
    for (int row_tile = row_tile_; row_tile < plan_.row_tiles; row_tile += kWarps) {
      float sums[kExampleTiles][4] = {};
      if constexpr (Held) {
#pragma unroll
        for (int first = 0; first < kHeldTiles; first += kRun) {
          RunSums run = {};
#pragma unroll
          for (int i = first; i < first + kRun; ++i)
            if (begin_ + i < end_)
              add(run, high_[i], low_[i], own + (begin_ + i) * kTileDepth, stride, examples);
          add_up(sums, run);
        }
      } else {
        for (int first = begin_; first < end_; first += kRun) {
          RunSums run = {};
#pragma unroll
          for (int i = 0; i < kRun; ++i) {
            const int tile = first + i;
            if (tile >= end_) break;
            unsigned high[4], low[4];
            split_tile(matrix_[(row_tile * plan_.depth_tiles + tile) * kWarp + lane], high, low);
            add(run, high, low, own + tile * kTileDepth, stride, examples);
          }
          add_up(sums, run);
        }
      }
      const int m = row_tile * kTileRows + lane / 4;
#pragma unroll
      for (int e = 0; e < kExampleTiles; ++e) {
        if (e * kTileExamples >= examples) break;
        const int example = e * kTileExamples + 2 * (lane % 4);
        sink(part_, m, example, sums[e][0], sums[e][1]);
        sink(part_, m + 8, example, sums[e][2], sums[e][3]);
      }
    }
  }

 private:
  static constexpr int kExampleTiles = kExamples / kTileExamples;
  // Tensor cores cut off what they add up: after a few tiles sums go on in float32.
  static constexpr int kRun = tf32x3::kDepth / kTileDepth;
  using RunSums = float[kExampleTiles][3][4];

  static __device__ __forceinline__ void add_up(float (&sums)[kExampleTiles][4], const RunSums& run) {
#pragma unroll
    for (int e = 0; e < kExampleTiles; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[e][i] += run[e][0][i] + (run[e][1][i] + run[e][2][i]);
  }

  static __device__ __forceinline__ void split_tile(const float4& tile, unsigned (&high)[4],
                                                    unsigned (&low)[4]) {
    tf32x3::split(tile.x, high[0], low[0]);
    tf32x3::split(tile.y, high[1], low[1]);
    tf32x3::split(tile.z, high[2], low[2]);
    tf32x3::split(tile.w, high[3], low[3]);
  }
  static __device__ __forceinline__ void add(RunSums& sums, const unsigned (&high)[4],
                                             const unsigned (&low)[4], const float* states, int stride,
                                             int examples) {
#pragma unroll
    for (int e = 0; e < kExampleTiles; ++e) {
      if (e * kTileExamples >= examples) break;
      const float2 both = *reinterpret_cast<const float2*>(states + e * kTileExamples * stride);
      unsigned state_high[2], state_low[2];
      tf32x3::split(both.x, state_high[0], state_low[0]);
      tf32x3::split(both.y, state_high[1], state_low[1]);
      tf32x3::multiply(sums[e][0], high, state_high);
      tf32x3::multiply(sums[e][1], high, state_low);
      tf32x3::multiply(sums[e][2], low, state_high);
    }
  }

  ProductPlan plan_;
  float4* matrix_;
  int row_tile_, part_, begin_, end_;
  unsigned high_[Held ? kHeldTiles : 1][4], low_[Held ? kHeldTiles : 1][4];
};

// --- the whole sequence in one launch ----------------------------------------------------------------------

// Numbers that arrive in a block's shared memory from all blocks of its cluster, a fixed count of bytes for
// each step. A barrier of the cluster would do as well, but whoever arrives there first waits until its
// results are in global memory, which nobody in the cluster reads: two thirds of a step.
//
// Steps take turns with two mailboxes. A block sends for a step when it has got what it needs of the step
// before, which its receivers have sent behind their last look at the mailbox.
struct Mailbox {
  unsigned barrier;  // its address in shared memory

  __device__ __forceinline__ explicit Mailbox(const uint64_t* at)
      : barrier(static_cast<unsigned>(__cvta_generic_to_shared(at))) {}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  // One thread of the block does these two.
  __device__ __forceinline__ void make() const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ __forceinline__ void expect(unsigned bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
  }
  // Until all that was expected for the first, second, ... time is there: `turn` is 0, 1, ...
  __device__ __forceinline__ void wait(unsigned turn) const {
    asm volatile(
        "{\n"
        ".reg .pred there;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
        "@!there bra again;\n"
        "}" ::"r"(barrier),
        "r"(turn & 1)
        : "memory");
  }
#endif
};

// Of another block's shared memory what lies at `address` in this one's.
[[maybe_unused]] __device__ __forceinline__ unsigned address_in(unsigned address, int block) {
  unsigned there = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
#endif
  return there;
}
// To a block's memory and mailbox, both by address_in().
[[maybe_unused]] __device__ __forceinline__ void send(unsigned to, unsigned mailbox, float value) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to),
               "f"(value), "r"(mailbox)
               : "memory");
#endif
}
[[maybe_unused]] __device__ __forceinline__ void send(unsigned to, unsigned mailbox, float2 values) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "f"(values.x), "f"(values.y), "r"(mailbox)
               : "memory");
#endif
}
[[maybe_unused]] __device__ __forceinline__ void send(unsigned to, unsigned mailbox, float4 values) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(mailbox)
      : "memory");
#endif
}

// Floats of shared memory in front of all others: two mailboxes.
constexpr int kMailboxes = 4;

// Shared memory of a block, in floats.
struct ForwardShared {
  ProductPlan plan;
  int matrix, states, partial, floats;
  // `own`: units of a block.
  __host__ __device__ ForwardShared(int units, int own, int gates) : plan(gates * own, units, true) {
    matrix = kMailboxes;
    states = matrix + plan.matrix_floats();  // h before and after a step
    partial = states + 2 * kExamples * plan.depth_stride();
    floats = partial + plan.parts * kExamples * plan.row_stride();
  }
};

template <class Cell, class T, bool Held>
__global__ void __launch_bounds__(Team<Held>::kThreads, 1)
    run_forward(const __grid_constant__ Forward f, int own, int rows) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters
  constexpr int kThreads = Team<Held>::kThreads;
  extern __shared__ float4 shared[];
  cg::cluster_group cluster = cg::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks()), block = static_cast<int>(cluster.block_rank());
  const int units = static_cast<int>(f.units);
  const ForwardShared s(units, own, Cell::kGates);
  float* const base = reinterpret_cast<float*>(shared);
  float *const states = base + s.states, *const partial = base + s.partial;
  const int stride = s.plan.depth_stride(), buffer = kExamples * stride, results = s.plan.row_stride();
  const int first_unit = block * own;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / blocks) * rows;

  const Product<Held> product(s.plan, base + s.matrix, [&](int m, int k) {
    const int gate = m / own, unit = first_unit + m % own;
    return k < units && gate < Cell::kGates && unit < units
               ? load<T>(f.kernel, (static_cast<int64_t>(k) * Cell::kGates + gate) * units + unit)
               : 0.f;
  });
  for (int i = threadIdx.x; i < 2 * buffer; i += kThreads) {
    const int row = i / stride, k = i % stride;
    const bool known = row < rows && k < units && first_row + row < f.batch;
    states[i] = known ? load<T>(f.h0, (first_row + row) * units + k) : 0.f;
  }

  const int example = threadIdx.x / own, own_unit = threadIdx.x % own, unit = first_unit + own_unit;
  const int64_t row = first_row + example;
  const bool active = example < rows && row < f.batch && unit < units;
  float bias[Cell::kGates] = {};
  ForwardState<Cell, T> state;
  ForwardOperands<Cell, T> operands, next;
  if (active) {
    state.begin(f, row, unit);
    if constexpr (Cell::kInputGradient) {
#pragma unroll
      for (int g = 0; g < Cell::kGates; ++g) bias[g] = load<T>(f.bias, g * units + unit);
    }
    operands.read(f, 0, row, unit);
  }
  // Each step brings h of all units of the examples that there are.
  const auto arriving = static_cast<unsigned>(min(static_cast<int64_t>(rows), f.batch - first_row)) *
                        static_cast<unsigned>(units) * unsigned{sizeof(float)};
  const auto* const counters = reinterpret_cast<const uint64_t*>(shared);
  const Mailbox mailboxes[] = {Mailbox(counters), Mailbox(counters + 1)};
  if (threadIdx.x == 0) {
    for (const Mailbox& mailbox : mailboxes) {
      mailbox.make();
      mailbox.expect(arriving);
    }
  }
  // Four units that are next to each other go out together; their threads share out the receivers.
  const bool in_fours = own % 4 == 0 && units % 4 == 0;
  // Nobody writes to a block that has not begun.
  cluster.sync();

  for (int64_t index = 0; index < f.time; ++index) {
    const int parity = static_cast<int>(index % 2), now = parity * buffer;
    // Read a whole step ahead.
    if (active && index + 1 < f.time) next.read(f, index + 1, row, unit);
    if (index > 0) {
      mailboxes[parity].wait(static_cast<unsigned>((index - 1) / 2));
      if (threadIdx.x == 0) mailboxes[parity].expect(arriving);
    }
    product(states + now, rows, [&](int part, int m, int at, float first, float second) {
      float* const to = partial + (part * kExamples + at) * results + m;
      to[0] = first;
      to[results] = second;
    });
    __syncthreads();
    if (active) {
      float sums[Cell::kGates];
#pragma unroll
      for (int g = 0; g < Cell::kGates; ++g) sums[g] = partial[example * results + g * own + own_unit];
      for (int part = 1; part < s.plan.parts; ++part) {
#pragma unroll
        for (int g = 0; g < Cell::kGates; ++g)
          sums[g] += partial[(part * kExamples + example) * results + g * own + own_unit];
      }
      state.step(operands, sums, bias);
      if (index + 1 < f.time) {
        const unsigned mailbox = mailboxes[1 - parity].barrier;
        if (in_fours) {
          const unsigned quad = 0xfu << (threadIdx.x % kWarp & ~3u);
          const float4 four = make_float4(__shfl_sync(quad, state.h, 0, 4), __shfl_sync(quad, state.h, 1, 4),
                                          __shfl_sync(quad, state.h, 2, 4), __shfl_sync(quad, state.h, 3, 4));
          const auto place = static_cast<unsigned>(
              __cvta_generic_to_shared(states + buffer - now + example * stride + unit - own_unit % 4));
          for (int other = own_unit % 4; other < blocks; other += 4)
            send(address_in(place, other), address_in(mailbox, other), four);
        } else {
          const auto place = static_cast<unsigned>(
              __cvta_generic_to_shared(states + buffer - now + example * stride + unit));
          for (int other = 0; other < blocks; ++other)
            send(address_in(place, other), address_in(mailbox, other), state.h);
        }
      }
      state.write(f, index, row, unit);
      operands = next;
    }
  }
  if (active) state.end(f, row, unit);
#endif
}

// Of a unit's share of dh in shared memory: those of all examples, which leave in pairs, and lanes that read
// the same example of different units find all banks.
constexpr int kShareStride = kExamples + 2;

struct BackwardShared {
  ProductPlan plan;
  int matrix, gates, received, floats;
  __host__ __device__ BackwardShared(int units, int own, int gate_count, int blocks)
      : plan(units, gate_count * own, false) {
    matrix = kMailboxes;
    gates = matrix +
            plan.matrix_floats();  // of two steps: some warps still multiply one when others begin the next
    received = gates + 2 * kExamples * plan.depth_stride();
    floats = received + 2 * blocks * own * kShareStride;  // each block's share of dh, of two steps
  }
};

template <class Cell, class T, bool Held>
__global__ void __launch_bounds__(Team<Held>::kThreads, 1)
    run_backward(const __grid_constant__ Backward b, int own, int rows) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // clusters
  constexpr int kThreads = Team<Held>::kThreads;
  extern __shared__ float4 shared[];
  cg::cluster_group cluster = cg::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks()), block = static_cast<int>(cluster.block_rank());
  const int units = static_cast<int>(b.units);
  const BackwardShared s(units, own, Cell::kGates, blocks);
  float* const base = reinterpret_cast<float*>(shared);
  float *const gates = base + s.gates, *const received = base + s.received;
  const int stride = s.plan.depth_stride(), buffer = blocks * own * kShareStride;
  const int first_unit = block * own;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / blocks) * rows;

  const Product<Held> product(s.plan, base + s.matrix, [&](int m, int k) {
    const int gate = k / own, unit = first_unit + k % own;
    return m < units && gate < Cell::kGates && unit < units
               ? load<T>(b.kernel, (static_cast<int64_t>(m) * Cell::kGates + gate) * units + unit)
               : 0.f;
  });
  for (int i = threadIdx.x; i < 2 * kExamples * stride; i += kThreads) gates[i] = 0;

  const int example = threadIdx.x / own, own_unit = threadIdx.x % own, unit = first_unit + own_unit;
  const int64_t row = first_row + example;
  const bool active = example < rows && row < b.batch && unit < units;
  BackwardState<Cell, T> state;
  BackwardOperands<Cell, T> operands, next;
  if (active) {
    state.begin(b, row, unit);
    operands.read(b, b.time - 1, row, unit);
  }
  // Each step brings a share of every block for each of this block's units, of whole tiles of examples.
  const int examples = (rows + kTileExamples - 1) / kTileExamples * kTileExamples;
  const auto arriving = static_cast<unsigned>(max(0, min(own, units - first_unit)) * blocks * examples) *
                        unsigned{sizeof(float)};
  const auto* const counters = reinterpret_cast<const uint64_t*>(shared);
  const Mailbox mailboxes[] = {Mailbox(counters), Mailbox(counters + 1)};
  if (threadIdx.x == 0) {
    for (const Mailbox& mailbox : mailboxes) {
      mailbox.make();
      mailbox.expect(arriving);
    }
  }
  // Nobody writes to a block that has not begun.
  cluster.sync();

  for (int64_t index = b.time - 1; index >= 0; --index) {
    const auto number = static_cast<unsigned>(b.time - 1 - index);
    const int parity = static_cast<int>(number % 2);
    float *const shares = received + parity * buffer, *const own_gates = gates + parity * kExamples * stride;
    if (active) {
      // Read a whole step ahead.
      if (index > 0) next.read(b, index - 1, row, unit);
      state.step(operands);
#pragma unroll
      for (int g = 0; g < Cell::kGates; ++g) own_gates[example * stride + g * own + own_unit] = state.dp[g];
    }
    __syncthreads();
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(shares + block * own * kShareStride));
    const unsigned mailbox = mailboxes[parity].barrier;
    product(own_gates, rows, [&](int, int m, int at, float first, float second) {
      if (m >= units) return;
      const int owner = m / own;
      const auto offset =
          static_cast<unsigned>((m - owner * own) * kShareStride + at) * unsigned{sizeof(float)};
      send(address_in(place + offset, owner), address_in(mailbox, owner), make_float2(first, second));
    });
    if (active) {
      state.write(b, index, row, unit);
      operands = next;
    }
    mailboxes[parity].wait(number / 2);
    if (threadIdx.x == 0) mailboxes[parity].expect(arriving);
    if (active)
      for (int other = 0; other < blocks; ++other)
        state.dh += shares[(other * own + own_unit) * kShareStride + example];
  }
  if (active) state.end(b, row, unit);
#endif
}

// How a sequence is given to clusters.
struct ClusterPlan {
  int blocks = 1;  // of a cluster
  int own = 1;     // units of a block
  int rows = 1;    // examples of a cluster
  int bytes = 0;   // of shared memory
  int threads = 0;
  bool held = false;  // as ProductPlan has it
};

constexpr int kPortableBlocks = 8;  // a cluster of more is not promised on every chip
constexpr int kMostBlocks = 16;
constexpr int kOwnWanted = 16;  // units of a block: fewer, and blocks mostly wait for each other

int attribute(cudaDeviceAttr which) {
  int ordinal = 0, value = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

// A launch of `plan`, which refers to `cluster`.
cudaLaunchConfig_t cluster_config(const ClusterPlan& plan, int64_t batch, cudaLaunchAttribute& cluster) {
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(plan.blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(ceil_div(batch, plan.rows)) * static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<size_t>(plan.bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  return config;
}

template <class Function>
void allow(const ClusterPlan& plan, Function* function) {
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes),
        "cudaFuncSetAttribute");
  if (plan.blocks > kPortableBlocks)
    check(cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "cudaFuncSetAttribute");
}

// How many clusters the chip holds at once with no two blocks on one multiprocessor; 0: it takes none.
template <class Function>
int clusters_side_by_side(ClusterPlan plan, Function* function) {
  plan.bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  allow(plan, function);
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = cluster_config(plan, plan.rows, cluster);
  int count = 0;
  if (cudaOccupancyMaxActiveClusters(&count, function, &config) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

// Nothing where the chip has no clusters or the kernel does not fit into one. `shared(own, blocks)`: a
// block's memory; `side_by_side(plan)`: how many clusters are.
template <class Shared, class SideBySide>
std::optional<ClusterPlan> plan_clusters(int64_t batch, int64_t units, const Shared& shared,
                                         const SideBySide& side_by_side) {
  if (attribute(cudaDevAttrComputeCapabilityMajor) < 9 || units > kMostBlocks * kThreads) return std::nullopt;
  const int most_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const auto plan_for = [&](int blocks) {
    const int own = static_cast<int>(ceil_div(units, blocks));
    const auto needed = shared(own, blocks);
    return ClusterPlan{.blocks = blocks,
                       .own = own,
                       .bytes = needed.floats * static_cast<int>(sizeof(float)),
                       .threads = needed.plan.threads,
                       .held = needed.plan.held};
  };
  // A block without units would not be sent anything, and would not wait for the others.
  const auto fits = [&](const ClusterPlan& plan) {
    return plan.own <= plan.threads && plan.bytes <= most_bytes && (plan.blocks - 1) * plan.own < units;
  };
  int blocks = 1;
  while (blocks < kPortableBlocks && ceil_div(units, blocks) > kOwnWanted) blocks *= 2;
  while (blocks < kMostBlocks && !fits(plan_for(blocks))) blocks *= 2;
  ClusterPlan plan = plan_for(blocks);
  if (!fits(plan)) return std::nullopt;
  const int clusters = side_by_side(plan);
  if (clusters == 0) return std::nullopt;
  // As few examples as keep the chip busy, round after round. A thread has one unit of one of them.
  const int most = std::min(kExamples, plan.threads / plan.own);
  const int64_t rounds = std::max<int64_t>(1, ceil_div(batch, static_cast<int64_t>(clusters) * most));
  plan.rows = static_cast<int>(std::clamp<int64_t>(ceil_div(batch, clusters * rounds), 1, most));
  return plan;
}

template <class Run, class Function>
void launch_clusters(const ClusterPlan& plan, const Run& run, Function* function, cudaStream_t stream) {
  allow(plan, function);
  cudaLaunchAttribute cluster{};
  cudaLaunchConfig_t config = cluster_config(plan, run.batch, cluster);
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, function, run, plan.own, plan.rows), "launch of a recurrence");
}

// --- a product and a pass over the states at each step -----------------------------------------------------

// States between steps, of the type that is computed in, [batch, units].
template <class Cell, class T>
__global__ void forward_step(const Forward f, int64_t index, const void* product, Real<T>* h_states,
                             Real<T>* c_states) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= f.batch * f.units) return;
  const int64_t row = i / f.units, unit = i % f.units;
  ForwardState<Cell, T> state;
  if (index == 0) {
    state.begin(f, row, unit);
  } else {
    state.h = h_states[i];
    if constexpr (Cell::kCells) state.c = c_states[i];
  }
  Real<T> p[Cell::kGates], bias[Cell::kGates];
#pragma unroll
  for (int g = 0; g < Cell::kGates; ++g) {
    p[g] = load<T>(product, (row * Cell::kGates + g) * f.units + unit);
    bias[g] = Cell::kInputGradient ? load<T>(f.bias, g * f.units + unit) : Real<T>(0);
  }
  ForwardOperands<Cell, T> operands;
  operands.read(f, index, row, unit);
  state.step(operands, p, bias);
  state.write(f, index, row, unit);
  h_states[i] = state.h;
  if constexpr (Cell::kCells) c_states[i] = state.c;
  if (index + 1 == f.time) state.end(f, row, unit);
}

// `product`: what the step after this one brought by dp. Behind the last step: index -1.
template <class Cell, class T>
__global__ void backward_step(const Backward b, int64_t index, const void* product, Real<T>* dh_states,
                              Real<T>* dc_states) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= b.batch * b.units) return;
  const int64_t row = i / b.units, unit = i % b.units;
  BackwardState<Cell, T> state;
  if (index + 1 == b.time) {
    state.begin(b, row, unit);
  } else {
    state.dh = dh_states[i] + load<T>(product, i);
    if constexpr (Cell::kCells) state.dc = dc_states[i];
  }
  if (index < 0) {
    state.end(b, row, unit);
    return;
  }
  BackwardOperands<Cell, T> operands;
  operands.read(b, index, row, unit);
  state.step(operands);
  state.write(b, index, row, unit);
  dh_states[i] = state.dh;
  if constexpr (Cell::kCells) dc_states[i] = state.dc;
}

// The product of a matrix [batch, depth] and the recurrent kernel, or its transpose.
class StepProduct {
 public:
  StepProduct(const KernelRequest& request, DType dtype, int64_t batch, int64_t units, int64_t gates,
              bool transposed)
      : attrs_(MatmulAttrs{.transpose_b = transposed}) {
    const auto contiguous = [&](const Shape& shape) {
      return OperandLayout{{dtype, shape}, contiguous_strides(shape)};
    };
    const int64_t wide = gates * units;
    const OperandLayout inputs[] = {contiguous({batch, transposed ? wide : units}),
                                    contiguous({units, wide})};
    const OperandLayout outputs[] = {contiguous({batch, transposed ? units : wide})};
    kernel_ = find_kernel(DeviceKind::gpu, kMatmul, request.where)
                  .prepare({.op = kMatmul,
                            .attributes = attrs_,
                            .inputs = inputs,
                            .outputs = outputs,
                            .device = request.device,
                            .threads = request.threads,
                            .where = request.where});
  }
  size_t workspace_bytes() const { return kernel_->workspace_bytes(); }
  void launch(const void* a, const void* kernel, void* to, void* workspace, Stream& stream) const {
    void* operands[] = {const_cast<void*>(a), const_cast<void*>(kernel), to};
    kernel_->launch({.inputs = operands, .outputs = operands + 2, .workspace = workspace, .stream = stream});
  }

 private:
  Attrs attrs_;
  std::unique_ptr<Kernel> kernel_;
};

// --- kernels -----------------------------------------------------------------------------------------------

// f.template operator()<Cell, T>() for the kind of cell and the dtype.
template <class F>
void dispatch_cells(RecurrentKind kind, DType dtype, F&& f) {
  dispatch_floats(dtype, [&]<class T>() {
    using Math = ScalarMath<Real<T>>;
    switch (kind) {
      case RecurrentKind::lstm: return f.template operator()<LstmCell<Math>, T>();
      case RecurrentKind::gru: return f.template operator()<GruCell<Math>, T>();
      default: return f.template operator()<SimpleCell<Math>, T>();
    }
  });
}

class RecurrenceBase : public Kernel {
 public:
  RecurrenceBase(const KernelRequest& request, const Shape& states)
      : attrs_(request.attrs<RecurrenceAttrs>()),
        dtype_(request.dtype(0)),
        time_(states[0]),
        batch_(states[1]),
        units_(states[2]) {}

  size_t workspace_bytes() const override {
    if (!product_) return 0;
    const auto elements = static_cast<size_t>(batch_ * units_);
    return part(elements * static_cast<size_t>(attrs_.gates()) * size_of(dtype_)) +
           2 * part(elements * sizeof(double)) + product_->workspace_bytes();
  }

 protected:
  static size_t part(size_t bytes) { return ceil_div(bytes, size_t{256}) * 256; }
  // Of the workspace, where each step is a launch: a product's result, two states, and the product's own.
  struct Parts {
    void *result, *first, *second, *rest;
  };
  Parts parts(void* workspace) const {
    const auto elements = static_cast<size_t>(batch_ * units_);
    auto* const result = static_cast<char*>(workspace);
    auto* const first = result + part(elements * static_cast<size_t>(attrs_.gates()) * size_of(dtype_));
    auto* const second = first + part(elements * sizeof(double));
    return {result, first, second, second + part(elements * sizeof(double))};
  }
  // A thread for each unit of each example.
  unsigned step_blocks() const { return static_cast<unsigned>(ceil_div(batch_ * units_, kThreads)); }
  const void* element(const void* tensor, int64_t at) const {
    return static_cast<const char*>(tensor) + static_cast<size_t>(at) * size_of(dtype_);
  }
  static const void* input(const LaunchArgs& args, int i) { return i < 0 ? nullptr : args.inputs[i]; }
  static void* output(const LaunchArgs& args, int i) { return i < 0 ? nullptr : args.outputs[i]; }
  const bool* mask(const LaunchArgs& args) const {
    return static_cast<const bool*>(input(args, attrs_.mask_input()));
  }
  RecurrenceAttrs attrs_;
  DType dtype_;
  int64_t time_, batch_, units_;
  std::optional<ClusterPlan> clusters_;
  std::optional<StepProduct> product_;  // where there are no clusters for it
};

class RecurrenceKernel final : public RecurrenceBase {
 public:
  explicit RecurrenceKernel(const KernelRequest& request)
      : RecurrenceBase(request, request.outputs[0].spec.shape) {
    const int units = static_cast<int>(units_), gates = attrs_.gates();
    if (dtype_ != DType::float64)
      clusters_ = plan_clusters(
          batch_, units_, [&](int own, int) { return ForwardShared(units, own, gates); },
          [&](const ClusterPlan& plan) { return side_by_side(plan); });
    if (!clusters_ && batch_ > 0) product_.emplace(request, dtype_, batch_, units_, gates, false);
  }

  bool in_place(int input, int output) const override {
    return attrs_.lstm() && input == 0 && output == attrs_.kept_output();
  }

  void launch(const LaunchArgs& args) const override {
    if (batch_ == 0) return;
    const int c = attrs_.cells_output();
    const Forward f{.time = time_,
                    .batch = batch_,
                    .units = units_,
                    .reverse = attrs_.reverse,
                    .x = args.inputs[0],
                    .kernel = args.inputs[1],
                    .h0 = args.inputs[2],
                    .c0 = input(args, attrs_.cell_input()),
                    .bias = input(args, attrs_.bias_input()),
                    .mask = mask(args),
                    .h = args.outputs[0],
                    .last = args.outputs[1],
                    .c = output(args, c),
                    .last_cell = output(args, c < 0 ? c : c + 1),
                    .kept = output(args, attrs_.kept_output())};
    dispatch_cells(attrs_.kind, dtype_, [&]<class Cell, class T>() {
      if constexpr (!std::is_same_v<T, double>) {
        if (clusters_) return launch_clusters(*clusters_, f, function<Cell, T>(*clusters_), stream_of(args));
      }
      run_steps<Cell, T>(args, f);
    });
  }

 private:
  template <class Cell, class T>
  static auto* function(const ClusterPlan& plan) {
    return plan.held ? run_forward<Cell, T, true> : run_forward<Cell, T, false>;
  }
  int side_by_side(const ClusterPlan& plan) const {
    int count = 0;
    dispatch_cells(attrs_.kind, dtype_, [&]<class Cell, class T>() {
      if constexpr (!std::is_same_v<T, double>) count = clusters_side_by_side(plan, function<Cell, T>(plan));
    });
    return count;
  }
  template <class Cell, class T>
  void run_steps(const LaunchArgs& args, const Forward& f) const {
    const Parts at = parts(args.workspace);
    for (int64_t index = 0; index < time_; ++index) {
      const int64_t t = f.reverse ? time_ - 1 - index : index, earlier = f.reverse ? t + 1 : t - 1;
      const void* before = index > 0 ? element(f.h, earlier * batch_ * units_) : f.h0;
      product_->launch(before, f.kernel, at.result, at.rest, args.stream);
      forward_step<Cell, T><<<step_blocks(), kThreads, 0, stream_of(args)>>>(
          f, index, at.result, static_cast<Real<T>*>(at.first), static_cast<Real<T>*>(at.second));
      launched();
    }
  }
};

class RecurrenceGradKernel final : public RecurrenceBase {
 public:
  explicit RecurrenceGradKernel(const KernelRequest& request) : RecurrenceBase(request, request.shape(2)) {
    const int units = static_cast<int>(units_), gates = attrs_.gates();
    if (dtype_ != DType::float64)
      clusters_ = plan_clusters(
          batch_, units_, [&](int own, int blocks) { return BackwardShared(units, own, gates, blocks); },
          [&](const ClusterPlan& plan) { return side_by_side(plan); });
    if (!clusters_ && batch_ > 0) product_.emplace(request, dtype_, batch_, units_, gates, true);
  }

  bool in_place(int input, int output) const override {
    return attrs_.lstm() && input == attrs_.kept_input() && output == 0;
  }

  void launch(const LaunchArgs& args) const override {
    if (batch_ == 0) return;
    const Backward b{.time = time_,
                     .batch = batch_,
                     .units = units_,
                     .reverse = attrs_.reverse,
                     .kernel = args.inputs[0],
                     .s0 = args.inputs[1],
                     .s = args.inputs[2],
                     .kept = input(args, attrs_.kept_input()),
                     .mask = mask(args),
                     .dsteps = input(args, attrs_.dsteps_input()),
                     .dlast = input(args, attrs_.dlast_input()),
                     .dcells = input(args, attrs_.dcells_input()),
                     .dlast_cell = input(args, attrs_.dlast_cell_input()),
                     .dkept = input(args, attrs_.dkept_input()),
                     .dp = args.outputs[0],
                     .dx = args.outputs[attrs_.dx_output()],
                     .dh0 = args.outputs[attrs_.dfirst_output()],
                     .dc0 = output(args, attrs_.dfirst_cell_output())};
    dispatch_cells(attrs_.kind, dtype_, [&]<class Cell, class T>() {
      if constexpr (!std::is_same_v<T, double>) {
        if (clusters_) return launch_clusters(*clusters_, b, function<Cell, T>(*clusters_), stream_of(args));
      }
      run_steps<Cell, T>(args, b);
    });
  }

 private:
  template <class Cell, class T>
  static auto* function(const ClusterPlan& plan) {
    return plan.held ? run_backward<Cell, T, true> : run_backward<Cell, T, false>;
  }
  int side_by_side(const ClusterPlan& plan) const {
    int count = 0;
    dispatch_cells(attrs_.kind, dtype_, [&]<class Cell, class T>() {
      if constexpr (!std::is_same_v<T, double>) count = clusters_side_by_side(plan, function<Cell, T>(plan));
    });
    return count;
  }
  template <class Cell, class T>
  void run_steps(const LaunchArgs& args, const Backward& b) const {
    const Parts at = parts(args.workspace);
    for (int64_t index = time_ - 1; index >= -1; --index) {
      backward_step<Cell, T><<<step_blocks(), kThreads, 0, stream_of(args)>>>(
          b, index, at.result, static_cast<Real<T>*>(at.first), static_cast<Real<T>*>(at.second));
      launched();
      if (index < 0) return;
      const int64_t t = b.reverse ? time_ - 1 - index : index;
      product_->launch(element(b.dp, t * batch_ * units_ * attrs_.gates()), b.kernel, at.result, at.rest,
                       args.stream);
    }
  }
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kRecurrence, {.prepare = prepare<RecurrenceKernel>}},
    {DeviceKind::gpu, kRecurrenceGrad, {.prepare = prepare<RecurrenceGradKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
