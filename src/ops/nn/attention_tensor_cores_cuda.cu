// Attention of 16-bit floats on the tensor cores (mma.sync): a warp has one or two times 16 rows of a tile of
// scores, in registers.
#include "backends/cuda/launch.h"
#include "ops/nn/attention_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kRows = 128;  // of a block, forward
constexpr int kGradRows =
    64;  // of a block, backward: its warps hold more, so that smaller blocks share the machine better
constexpr int kColumns = 64;  // of a tile of scores
// A warp for 16 rows, or for twice 16: that halves the reads of shared memory, where there are registers for
// it.
constexpr int threads_for(int rows, int tiles) { return rows / (16 * tiles) * 32; }
constexpr int kGradThreads = threads_for(kGradRows, 1);
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// --- fragments ---------------------------------------------------------------------------------------------

// Of 16 x 16 elements as the left operand, of two 16 x 8 ones as the right operand, and of 16 x 8 sums.
using Left = uint32_t[4];
using Right = uint32_t[4];
using Sums = float[4];

template <class T>
__device__ void multiply(Sums& d, const Left& a, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// With both halves of a right operand: sums of two times eight neighbouring columns.
template <class T>
__device__ void multiply(Sums* d, const Left& a, const Right& b) {
  multiply<T>(d[0], a, b[0], b[1]);
  multiply<T>(d[1], a, b[2], b[3]);
}

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ void load_matrices(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}
__device__ void load_transposed(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}

// Within 2 units in the last place, which 16 bits do not show.
__device__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T>
__device__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
}

// Sums of 16 columns as the left operand of the next product.
template <class T>
__device__ void as_left(Left& a, const Sums& first, const Sums& second) {
  a[0] = pack<T>(first[0], first[1]);
  a[1] = pack<T>(first[2], first[3]);
  a[2] = pack<T>(second[0], second[1]);
  a[3] = pack<T>(second[2], second[3]);
}

// --- tiles in shared memory --------------------------------------------------------------------------------

// Rows of one head, padded so that eight of them lie in different banks.
template <class T, int dim>
struct Tile {
  static constexpr int kStride = dim + 8;
  T* data;

  static constexpr size_t bytes(int rows) { return sizeof(T) * static_cast<size_t>(rows) * kStride; }
  __device__ T* at(int row, int column) const { return data + row * kStride + column; }

  // Rows [row, row + 16), columns [column, column + 16) as the left operand.
  __device__ void left(Left& a, int row, int column) const {
    const int lane = threadIdx.x % 32;
    load_matrices(a, at(row + lane % 16, column + lane / 16 * 8));
  }
  // The right operand of a product with these rows transposed: rows are its columns, two times eight of them.
  __device__ void right(Right& b, int row, int column) const {
    const int lane = threadIdx.x % 32;
    load_matrices(b, at(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8));
  }
  // The right operand of a product with these rows as they are: two times eight columns.
  __device__ void right_as_is(Right& b, int row, int column) const {
    const int lane = threadIdx.x % 32;
    load_transposed(b, at(row + lane % 8 + lane / 8 % 2 * 8, column + lane / 16 * 8));
  }
};

// Copies `kTileRows` rows; what lies behind `rows` or `columns` is 0. Asynchronous where memory is aligned
// (`units`): finish_loads() ends it.
template <int tile_rows, class T, int dim>
__device__ void load_tile(const Tile<T, dim>& to, const T* from, int64_t stride, int64_t rows, int columns,
                          bool units) {
  constexpr int kUnit = 8, kUnits = dim / kUnit;
  for (int i = threadIdx.x; i < tile_rows * kUnits; i += blockDim.x) {
    const int row = i / kUnits, column = i % kUnits * kUnit;
    T* target = to.at(row, column);
    if (units) {
      const bool inside = row < rows && column < columns;
      const T* source = inside ? from + row * stride + column : from;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)), "l"(source),
                   "r"(inside ? 16 : 0));
    } else {
#pragma unroll
      for (int k = 0; k < kUnit; ++k)
        target[k] =
            row < rows && column + k < columns ? from[row * stride + column + k] : static_cast<T>(0.0f);
    }
  }
}
__device__ void end_group() { asm volatile("cp.async.commit_group;"); }
template <int pending>
__device__ void finish_loads() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending));
}

// kept[q * keys + k]: what dropout keeps of `queries` times `keys` probabilities.
template <int queries, int keys>
__device__ void draw_kept(const AttentionProblem& p, uint64_t key, uint64_t first_row, int64_t n, int64_t h,
                          int64_t first_query, int64_t first_key, uint8_t* kept) {
  for (int i = threadIdx.x; i < queries * keys / 4; i += blockDim.x) {
    const int row = i / (keys / 4), block = i % (keys / 4);
    const auto words = Philox::block(key, p.random_row(first_row, n, h, first_query + row),
                                     static_cast<uint64_t>(first_key / 4 + block));
    uint32_t bytes = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) bytes |= (words[k] >> 8 >= p.threshold ? 1u : 0u) << (8 * k);
    reinterpret_cast<uint32_t*>(kept)[i] = bytes;
  }
}

template <class T>
__device__ void store_pair(T* to, int64_t columns, int column, float first, float second, bool pairs) {
  if (pairs) {
    if (column < columns) *reinterpret_cast<uint32_t*>(to + column) = pack<T>(first, second);
  } else {
    if (column < columns) to[column] = static_cast<T>(first);
    if (column + 1 < columns) to[column + 1] = static_cast<T>(second);
  }
}

// --- forward -----------------------------------------------------------------------------------------------

// plain: there is no mask, bias or dropout, and the scale is positive.
template <bool plain, int tiles, class T, int dim>
__global__ void __launch_bounds__(threads_for(kRows, tiles), 2)
    attend(AttentionProblem p, const T* query, const T* key, const T* value, T* result, float* log_sum_exp,
           bool units) {
  extern __shared__ __align__(16) char memory[];
  const bool drops = !plain && p.drops();
  using Rows = Tile<T, dim>;
  const Rows queries{reinterpret_cast<T*>(memory)};
  const auto keys_at = [&](int stage) {
    return Rows{reinterpret_cast<T*>(memory + Rows::bytes(kRows) + stage * 2 * Rows::bytes(kColumns))};
  };
  const auto values_at = [&](int stage) { return Rows{keys_at(stage).data + kColumns * Rows::kStride}; };
  auto* const kept = reinterpret_cast<uint8_t*>(memory + Rows::bytes(kRows) + 4 * Rows::bytes(kColumns));

  const int lane = threadIdx.x % 32, own_row = lane / 4, own_column = lane % 4 * 2;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * tiles;
  const int64_t h = blockIdx.y, n = blockIdx.z, key_head = h / p.group();
  // With a causal mask the last tiles have the most work: they begin first.
  const int64_t first_query = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int64_t first_own = first_query + warp_row;
  const uint64_t random_key = drops ? p.random.key() : 0, first_row = drops ? p.random.first_row() : 0;
  const int columns = static_cast<int>(p.dim), value_columns = static_cast<int>(p.value_dim);
  const int64_t end = p.causal ? min(p.keys, first_query + kRows) : p.keys;

  const auto load = [&](int64_t first_key, int stage) {
    const int64_t row = p.row_at(n, p.keys, first_key, p.key_heads, key_head, 1);
    load_tile<kColumns>(keys_at(stage), key + row * p.dim, p.key_heads * p.dim, p.keys - first_key, columns,
                        units);
    load_tile<kColumns>(values_at(stage), value + row * p.value_dim, p.key_heads * p.value_dim,
                        p.keys - first_key, value_columns, units);
  };
  load_tile<kRows>(queries, query + p.row_at(n, p.queries, first_query, p.heads, h, p.dim), p.heads * p.dim,
                   p.queries - first_query, columns, units);
  if (end > 0) load(0, 0);
  end_group();

  Sums sum[tiles][dim / 8] = {};
  float most[tiles][2], total[tiles][2] = {};
#pragma unroll
  for (int t = 0; t < tiles; ++t) most[t][0] = most[t][1] = -INFINITY;
  const float scale = p.scale * kLog2E;
  // What no plain count of columns describes; a scale below 0 turns the order of scores around.
  const bool general = !plain && (p.mask.data || p.bias.data || !(p.scale > 0));
  int stage = 0;
  for (int64_t first_key = 0; first_key < end; first_key += kColumns, stage ^= 1) {
    if (first_key + kColumns < end) load(first_key + kColumns, stage ^ 1);
    end_group();
    finish_loads<1>();
    if (drops) draw_kept<kRows, kColumns>(p, random_key, first_row, n, h, first_query, first_key, kept);
    __syncthreads();
    if (!p.causal || first_key <= first_own + 16 * tiles - 1) {
      const Rows k = keys_at(stage), v = values_at(stage);
      Sums s[tiles][kColumns / 8] = {};
#pragma unroll
      for (int c = 0; c < dim / 16; ++c) {
        Left q[tiles];
#pragma unroll
        for (int t = 0; t < tiles; ++t) queries.left(q[t], warp_row + t * 16, c * 16);
#pragma unroll
        for (int j = 0; j < kColumns / 16; ++j) {
          Right b;
          k.right(b, j * 16, c * 16);
#pragma unroll
          for (int t = 0; t < tiles; ++t) {
            multiply<T>(&s[t][2 * j], q[t], b);
          }
        }
      }
      // Scores in units of log2(e), so that powers of two are enough. The scale waits for them where it can.
      float factor = scale;
      if (general) {
        factor = 1;
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
          for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int64_t at = first_own + t * 16 + own_row + e / 2 * 8,
                            to = first_key + j * 8 + own_column + e % 2;
              s[t][j][e] =
                  p.sees(n, h, at, to) ? s[t][j][e] * scale + p.bias_at<T>(n, h, at, to) * kLog2E : -INFINITY;
            }
      } else if (first_key + kColumns > p.keys || (p.causal && first_key + kColumns - 1 > first_own)) {
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            // Columns that the row sees.
            const int64_t at = first_own + t * 16 + own_row + half * 8;
            const int64_t left = min(p.keys, p.causal ? at + 1 : p.keys) - first_key;
            const int seen = static_cast<int>(max(int64_t{0}, min(left, int64_t{kColumns}))) - own_column;
#pragma unroll
            for (int j = 0; j < kColumns / 8; ++j) {
              if (j * 8 >= seen) s[t][j][2 * half] = -INFINITY;
              if (j * 8 + 1 >= seen) s[t][j][2 * half + 1] = -INFINITY;
            }
          }
      }
#pragma unroll
      for (int t = 0; t < tiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float larger = -INFINITY;
#pragma unroll
          for (int j = 0; j < kColumns / 8; ++j)
            larger = fmaxf(larger, fmaxf(s[t][j][2 * half], s[t][j][2 * half + 1]));
          larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 1));
          larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, 2));
          larger = fmaxf(larger * factor, most[t][half]);
          const float center = larger == -INFINITY ? 0.0f : larger;  // no difference of infinities
          const float shrink = power_of_two(most[t][half] - center);
          float more = 0;
#pragma unroll
          for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; ++e) {
              s[t][j][e] = power_of_two(s[t][j][e] * factor - center);
              more += s[t][j][e];
            }
          total[t][half] = total[t][half] * shrink + more;
          most[t][half] = larger;
#pragma unroll
          for (int j = 0; j < dim / 8; ++j) sum[t][j][2 * half] *= shrink, sum[t][j][2 * half + 1] *= shrink;
        }
      if (drops)
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
          for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              s[t][j][e] *=
                  kept[(warp_row + t * 16 + own_row + e / 2 * 8) * kColumns + j * 8 + own_column + e % 2]
                      ? p.keep_scale
                      : 0.0f;
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        Left a[tiles];
#pragma unroll
        for (int t = 0; t < tiles; ++t) as_left<T>(a[t], s[t][2 * j], s[t][2 * j + 1]);
#pragma unroll
        for (int c = 0; c < dim / 16; ++c) {
          Right b;
          v.right_as_is(b, j * 16, c * 16);
#pragma unroll
          for (int t = 0; t < tiles; ++t) {
            multiply<T>(&sum[t][2 * c], a[t], b);
          }
        }
      }
    }
    __syncthreads();
  }
  finish_loads<0>();
  const bool pairs = p.value_dim % 2 == 0 && reinterpret_cast<uintptr_t>(result) % 4 == 0;
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = total[t][half];
      all += __shfl_xor_sync(0xffffffffu, all, 1);
      all += __shfl_xor_sync(0xffffffffu, all, 2);
      const int64_t at = first_own + t * 16 + own_row + half * 8;
      if (at >= p.queries) continue;
      const float share = all > 0 ? 1 / all : 1.0f;
      T* to = result + p.row_at(n, p.queries, at, p.heads, h, p.value_dim);
#pragma unroll
      for (int j = 0; j < dim / 8; ++j)
        store_pair(to, p.value_dim, j * 8 + own_column, sum[t][j][2 * half] * share,
                   sum[t][j][2 * half + 1] * share, pairs);
      if (lane % 4 == 0)
        log_sum_exp[(n * p.heads + h) * p.queries + at] =
            most[t][half] == -INFINITY ? INFINITY : most[t][half] * kLn2 + logf(all);
    }
}

// --- backward ----------------------------------------------------------------------------------------------

// by_keys: rows are keys, and their gradients and those of their values are made; else rows are queries.
// `first` and `second` are keys and values for keys, queries and gradients of results for queries.
template <bool plain, bool by_keys, class T, int dim>
__global__ void __launch_bounds__(kGradThreads, dim == 64 ? 3 : 2)
    gradients(AttentionProblem p, const T* query, const T* key, const T* value, const T* gradient,
              const float* log_sum_exp, const float* dots, T* dfirst, T* dsecond, bool units) {
  extern __shared__ __align__(16) char memory[];
  const bool drops = !plain && p.drops();
  using Rows = Tile<T, dim>;
  const Rows row_first{reinterpret_cast<T*>(memory)}, row_second{row_first.data + kGradRows * Rows::kStride};
  // Two stages of columns: one is loaded while the other is used.
  const auto column_first_at = [&](int stage) {
    return Rows{row_second.data + (kGradRows + stage * 2 * kColumns) * Rows::kStride};
  };
  const auto column_second_at = [&](int stage) {
    return Rows{row_second.data + (kGradRows + (stage * 2 + 1) * kColumns) * Rows::kStride};
  };
  auto* const statistics =
      reinterpret_cast<float*>(row_second.data + (kGradRows + 4 * kColumns) * Rows::kStride);
  auto* const kept = reinterpret_cast<uint8_t*>(statistics + 4 * kColumns);

  const int lane = threadIdx.x % 32, own_row = lane / 4, own_column = lane % 4 * 2;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int64_t n = blockIdx.z, row_head = blockIdx.y;
  const int64_t first = static_cast<int64_t>(by_keys ? blockIdx.x : gridDim.x - 1 - blockIdx.x) * kGradRows;
  const int64_t first_own = first + warp_row;
  const int64_t rows = by_keys ? p.keys : p.queries, columns = by_keys ? p.queries : p.keys;
  const uint64_t random_key = drops ? p.random.key() : 0, first_row = drops ? p.random.first_row() : 0;
  const float scale = p.scale * kLog2E;
  const int width = static_cast<int>(p.dim), value_width = static_cast<int>(p.value_dim);

  const auto load_queries = [&]<int count>(const Rows& q, const Rows& g, int64_t from, int64_t h) {
    const int64_t row = p.row_at(n, p.queries, from, p.heads, h, 1);
    load_tile<count>(q, query + row * p.dim, p.heads * p.dim, p.queries - from, width, units);
    load_tile<count>(g, gradient + row * p.value_dim, p.heads * p.value_dim, p.queries - from, value_width,
                     units);
  };
  const auto load_keys = [&]<int count>(const Rows& k, const Rows& v, int64_t from, int64_t head) {
    const int64_t row = p.row_at(n, p.keys, from, p.key_heads, head, 1);
    load_tile<count>(k, key + row * p.dim, p.key_heads * p.dim, p.keys - from, width, units);
    load_tile<count>(v, value + row * p.value_dim, p.key_heads * p.value_dim, p.keys - from, value_width,
                     units);
  };
  if constexpr (by_keys)
    load_keys.template operator()<kGradRows>(row_first, row_second, first, row_head);
  else
    load_queries.template operator()<kGradRows>(row_first, row_second, first, row_head);

  float own_lse[2] = {}, own_dots[2] = {};
  if constexpr (!by_keys)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = first_own + own_row + half * 8, place = (n * p.heads + row_head) * p.queries + at;
      own_lse[half] = at < p.queries ? log_sum_exp[place] * kLog2E : INFINITY;
      own_dots[half] = at < p.queries ? dots[place] : 0.0f;
    }

  Sums sum_first[dim / 8] = {}, sum_second[by_keys ? dim / 8 : 1] = {};
  Left own_first[dim / 16], own_second[dim / 16];
  const int64_t heads = by_keys ? p.group() : 1;
  // Columns that a causal mask hides from all rows are left out.
  const int64_t begin = by_keys && p.causal ? first / kColumns * kColumns : 0;
  const int64_t end = !by_keys && p.causal ? min(columns, first + kGradRows) : columns;
  const int64_t per_head = end > begin ? (end - begin + kColumns - 1) / kColumns : 0,
                steps = per_head * heads;
  const auto head_of = [&](int64_t step) { return by_keys ? row_head * heads + step / per_head : row_head; };
  const auto column_of = [&](int64_t step) { return begin + step % per_head * kColumns; };
  const auto load_columns = [&](int64_t step, int stage) {
    const int64_t h = head_of(step), column = column_of(step);
    if constexpr (by_keys) {
      load_queries.template operator()<kColumns>(column_first_at(stage), column_second_at(stage), column, h);
      float* const lse = statistics + stage * 2 * kColumns;
      for (int i = threadIdx.x; i < kColumns; i += blockDim.x) {
        const bool inside = column + i < p.queries;
        const int64_t at = (n * p.heads + h) * p.queries + column + i;
        lse[i] = inside ? log_sum_exp[at] * kLog2E : INFINITY;
        lse[kColumns + i] = inside ? dots[at] : 0.0f;
      }
    } else {
      load_keys.template operator()<kColumns>(column_first_at(stage), column_second_at(stage), column,
                                              h / p.group());
    }
  };
  if (steps > 0) load_columns(0, 0);
  end_group();
  for (int64_t step = 0; step < steps; ++step) {
    const int stage = static_cast<int>(step % 2);
    const int64_t h = head_of(step), column = column_of(step);
    const Rows column_first = column_first_at(stage), column_second = column_second_at(stage);
    const float *const column_lse = statistics + stage * 2 * kColumns, *const column_dots =
                                                                           column_lse + kColumns;
    // Nobody reads what the next step's columns are loaded over.
    __syncthreads();
    if (step + 1 < steps) load_columns(step + 1, stage ^ 1);
    end_group();
    if (drops) {
      if constexpr (by_keys)
        draw_kept<kColumns, kGradRows>(p, random_key, first_row, n, h, column, first, kept);
      else
        draw_kept<kGradRows, kColumns>(p, random_key, first_row, n, h, first, column, kept);
    }
    finish_loads<1>();
    __syncthreads();
    if (step == 0) {
#pragma unroll
      for (int c = 0; c < dim / 16; ++c) {
        row_first.left(own_first[c], warp_row, c * 16);
        row_second.left(own_second[c], warp_row, c * 16);
      }
    }
    constexpr int kLast = 15;
    if (p.causal && (by_keys ? column + kColumns - 1 < first_own : column > first_own + kLast)) continue;
    // Columns from `low` on, and below `high`, are seen by the rows of each half. Queries that do not exist
    // have a probability of 0 by their statistics, and keys that do not exist are not stored.
    const bool general = !plain && (p.mask.data || p.bias.data);
    const auto clipped = [](int64_t i) {
      return static_cast<int>(max(int64_t{0}, min(i, int64_t{kColumns})));
    };
    int low[2], high[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = first_own + own_row + half * 8;
      low[half] = by_keys && p.causal ? clipped(at - column) : 0;
      high[half] = by_keys ? kColumns : clipped(min(p.keys, p.causal ? at + 1 : p.keys) - column);
    }
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      Sums s[2] = {}, d[2] = {};
#pragma unroll
      for (int c = 0; c < dim / 16; ++c) {
        Right b_first, b_second;
        column_first.right(b_first, j * 16, c * 16);
        column_second.right(b_second, j * 16, c * 16);
        multiply<T>(s, own_first[c], b_first);
        multiply<T>(d, own_second[c], b_second);
      }
      Left ds, ps;
#pragma unroll
      for (int block = 0; block < 2; ++block)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = own_row + e / 2 * 8, at = j * 16 + block * 8 + own_column + e % 2;
          const float lse = by_keys ? column_lse[at] : own_lse[e / 2];
          const float dot = by_keys ? column_dots[at] : own_dots[e / 2];
          float score = s[block][e] * scale;
          if (at < low[e / 2] || at >= high[e / 2]) score = -INFINITY;
          if (general) {
            const int64_t q = by_keys ? column + at : first_own + row,
                          k = by_keys ? first_own + row : column + at;
            score = p.sees(n, h, q, k) ? score + p.bias_at<T>(n, h, q, k) * kLog2E : -INFINITY;
          }
          const float probability = power_of_two(score - lse);
          const float keep =
              !drops ? 1.0f
              : kept[by_keys ? at * kGradRows + warp_row + row : (warp_row + row) * kColumns + at]
                  ? p.keep_scale
                  : 0.0f;
          d[block][e] = probability * (d[block][e] * keep - dot) * p.scale;
          s[block][e] = probability * keep;
        }
      as_left<T>(ds, d[0], d[1]);
      as_left<T>(ps, s[0], s[1]);
#pragma unroll
      for (int c = 0; c < dim / 16; ++c) {
        Right b;
        column_first.right_as_is(b, j * 16, c * 16);
        multiply<T>(&sum_first[2 * c], ds, b);
        if constexpr (by_keys) {
          column_second.right_as_is(b, j * 16, c * 16);
          multiply<T>(&sum_second[2 * c], ps, b);
        }
      }
    }
  }
  finish_loads<0>();
  const int64_t row_heads = by_keys ? p.key_heads : p.heads;
  const auto store = [&](T* to, int64_t size, auto& sums) {
    const bool pairs = size % 2 == 0 && reinterpret_cast<uintptr_t>(to) % 4 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t at = first_own + own_row + half * 8;
      if (at >= rows) continue;
      T* row = to + p.row_at(n, rows, at, row_heads, row_head, size);
#pragma unroll
      for (int j = 0; j < dim / 8; ++j)
        store_pair(row, size, j * 8 + own_column, sums[j][2 * half], sums[j][2 * half + 1], pairs);
    }
  };
  store(dfirst, p.dim, sum_first);
  if constexpr (by_keys) store(dsecond, p.value_dim, sum_second);
}

// --- launches ----------------------------------------------------------------------------------------------

template <class Function, class... Args>
void start(Function* function, int block_rows, int threads, int64_t rows, int64_t heads,
           const AttentionProblem& p, size_t bytes, cudaStream_t stream, Args... args) {
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
  const dim3 blocks(static_cast<unsigned>(ceil_div(rows, block_rows)), static_cast<unsigned>(heads),
                    static_cast<unsigned>(p.batch));
  function<<<blocks, threads, bytes, stream>>>(p, args...);
  launched();
}

// f.operator()<plain, T, dimensions of a tile>()
template <class F>
void each_type(const AttentionProblem& p, DType dtype, F f) {
  const bool plain = !p.mask.data && !p.bias.data && !p.drops() && p.scale > 0;
  const auto of_type = [&]<class T>() {
    const auto of_width = [&]<int dim>() {
      plain ? f.template operator()<true, T, dim>() : f.template operator()<false, T, dim>();
    };
    std::max(p.dim, p.value_dim) <= 64 ? of_width.template operator()<64>()
                                       : of_width.template operator()<128>();
  };
  dtype == DType::bfloat16 ? of_type.template operator()<__nv_bfloat16>()
                           : of_type.template operator()<__half>();
}

// Rows can be copied in units of 16 bytes.
bool in_units(const AttentionProblem& p, std::initializer_list<const void*> pointers) {
  bool aligned = p.dim % 8 == 0 && p.value_dim % 8 == 0;
  for (const void* pointer : pointers) aligned = aligned && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  return aligned;
}

size_t kept_bytes(const AttentionProblem& p) { return p.drops() ? kRows * kColumns : 0; }

}  // namespace

bool attention_fits_tensor_cores(const AttentionProblem& p, DType dtype) {
  return (dtype == DType::bfloat16 || dtype == DType::float16) && p.dim <= 128 && p.value_dim <= 128;
}

void attend_on_tensor_cores(const AttentionProblem& p, DType dtype, const void* query, const void* key,
                            const void* value, void* result, float* log_sum_exp, cudaStream_t stream) {
  each_type(p, dtype, [&]<bool plain, class T, int dim>() {
    const size_t bytes = Tile<T, dim>::bytes(kRows) + 4 * Tile<T, dim>::bytes(kColumns) + kept_bytes(p);
    start(attend<plain, 2, T, dim>, kRows, threads_for(kRows, 2), p.queries, p.heads, p, bytes, stream,
          static_cast<const T*>(query), static_cast<const T*>(key), static_cast<const T*>(value),
          static_cast<T*>(result), log_sum_exp, in_units(p, {query, key, value}));
  });
}

void attention_gradients_on_tensor_cores(const AttentionProblem& p, DType dtype, const void* query,
                                         const void* key, const void* value, const void* gradient,
                                         const float* log_sum_exp, const float* dots, void* dquery,
                                         void* dkey, void* dvalue, cudaStream_t stream) {
  const bool units = in_units(p, {query, key, value, gradient});
  each_type(p, dtype, [&]<bool plain, class T, int dim>() {
    const size_t bytes = 2 * Tile<T, dim>::bytes(kGradRows) + 4 * Tile<T, dim>::bytes(kColumns) +
                         4 * kColumns * sizeof(float) + kept_bytes(p);
    const auto *q = static_cast<const T*>(query), *k = static_cast<const T*>(key),
               *v = static_cast<const T*>(value), *g = static_cast<const T*>(gradient);
    start(gradients<plain, false, T, dim>, kGradRows, kGradThreads, p.queries, p.heads, p, bytes, stream, q,
          k, v, g, log_sum_exp, dots, static_cast<T*>(dquery), static_cast<T*>(nullptr), units);
    if (p.keys > 0)
      start(gradients<plain, true, T, dim>, kGradRows, kGradThreads, p.keys, p.key_heads, p, bytes, stream, q,
            k, v, g, log_sum_exp, dots, static_cast<T*>(dkey), static_cast<T*>(dvalue), units);
  });
}

}  // namespace lockstep::cuda
