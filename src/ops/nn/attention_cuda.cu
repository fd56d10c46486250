// Attention on GPUs, tile by tile, without a matrix of all scores. Backward, one pass over tiles of keys
// makes the gradients of keys and values and another over tiles of queries those of queries: scores are
// computed twice, and nothing is added by more than one block, so that results are the same every time.
#include "ops/nn/attention_cuda.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "backends/cuda/block.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/tf32x3.h"
#include "ops/nn/attention_cudnn_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kLanes = 16;  // threads along the rows of a product, and along its columns

__device__ float exponential(float x) { return expf(x); }
__device__ double exponential(double x) { return exp(x); }

// store(i, j, sum of a(i, k) * b(k, j), number) for i < tile and j < n, by all threads of the block. Products
// of the same n give a thread the same elements; `number` counts them, from 0 again every `tile` columns.
template <int tile, class A, class B, class Store>
__device__ void multiply_plainly(int n, int inner, A a, B b, Store store) {
  constexpr int kRows = tile / kLanes, kColumns = 4;
  const int row = threadIdx.x / kLanes, column = threadIdx.x % kLanes;
  for (int first = 0; first < n; first += kLanes * kColumns) {
    double sums[kRows][kColumns] = {};
    for (int k = 0; k < inner; ++k) {
      double left[kRows], right[kColumns];
#pragma unroll
      for (int r = 0; r < kRows; ++r) left[r] = a(row + r * kLanes, k);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int j = first + column + c * kLanes;
        right[c] = j < n ? b(k, j) : 0;
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums[r][c] += left[r] * right[c];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (const int j = first + column + c * kLanes; j < n)
          store(row + r * kLanes, j, sums[r][c], r * kColumns + c);
  }
}

// The same of floats, on tensor cores (backends/cuda/tf32x3.h): a warp has 16 rows.
template <int tile, class A, class B, class Store>
__device__ void multiply_on_tensor_cores(int n, int inner, A a, B b, Store store) {
  constexpr int kBands = tile / 16, kTeams = 256 / kWarp / kBands,
                kTiles = tile / 8 >= kTeams ? tile / 8 / kTeams : 1;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = warp % kBands * 16 + lane / 4, rank = lane % 4;
  for (int first = warp / kBands * 8 * kTiles; first < n; first += kTeams * 8 * kTiles) {
    float sums[kTiles][4] = {};
    for (int k0 = 0; k0 < inner; k0 += tf32x3::kDepth) {
      float part[kTiles][4] = {};
#pragma unroll
      for (int step = 0; step < tf32x3::kDepth; step += 8) {
        if (k0 + step >= inner) break;
        unsigned a_high[4], a_low[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int k = k0 + step + rank + e / 2 * 4;
          tf32x3::split(k < inner ? a(row + e % 2 * 8, k) : 0.f, a_high[e], a_low[e]);
        }
#pragma unroll
        for (int c = 0; c < kTiles; ++c) {
          const int j = first + c * 8 + lane / 4;
          unsigned b_high[2], b_low[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int k = k0 + step + rank + e * 4;
            tf32x3::split(k < inner && j < n ? b(k, j) : 0.f, b_high[e], b_low[e]);
          }
          tf32x3::multiply(part[c], a_low, b_high);
          tf32x3::multiply(part[c], a_high, b_low);
          tf32x3::multiply(part[c], a_high, b_high);
        }
      }
#pragma unroll
      for (int c = 0; c < kTiles; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[c][e] += part[c][e];
    }
#pragma unroll
    for (int c = 0; c < kTiles; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = row + e / 2 * 8, j = first + c * 8 + rank * 2 + e % 2;
        if (j >= n) continue;
        float sum = sums[c][e];
        // Perhaps of an infinity, which has no halves; and where a gradient is the difference of two such
        // sums that are equal, and there is little else beside it, halves would leave a rest.
        if (sum != sum || inner < 8) {
          sum = 0.f;
#pragma unroll 1
          for (int k = 0; k < inner; ++k) sum = fmaf(a(i, k), b(k, j), sum);
        }
        store(i, j, sum, c * 4 + e);
      }
  }
}

template <int tile, class C, class A, class B, class Store>
__device__ void multiply(int n, int inner, A a, B b, Store store) {
  if constexpr (sizeof(C) == 4)
    multiply_on_tensor_cores<tile>(n, inner, a, b, store);
  else
    multiply_plainly<tile>(n, inner, a, b, store);
}

// store(i, j, number) for the elements that a product gives this thread.
template <int tile, class C, class Store>
__device__ void each_own(int n, Store store) {
  multiply<tile, C>(
      n, 0, [](int, int) { return C(0); }, [](int, int) { return C(0); },
      [&](int i, int j, C, int number) { store(i, j, number); });
}

// Rows of one head in shared memory, as numbers that are computed with. A row is longer than it needs to be,
// so that what threads read together of several rows lies in different banks.
__host__ __device__ constexpr int64_t pitch(int64_t width) { return (width + 3) / 4 * 4 + 4; }
template <class C>
struct Rows {
  C* data;
  int width;
  __device__ C& operator()(int row, int column) const {
    return data[row * static_cast<int>(pitch(width)) + column];
  }
};

template <int tile, class C>
__host__ __device__ constexpr int64_t rows_size(int64_t width) {
  return tile * pitch(width);
}

template <int tile, class T, class C>
__device__ void load_rows(const Rows<C>& to, const T* from, int64_t stride, int64_t rows, C scale) {
  if constexpr (std::is_same_v<T, float>) {
    if (to.width % 4 == 0 && stride % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
      const int units = to.width / 4;
      for (int i = threadIdx.x; i < tile * units; i += blockDim.x) {
        const int row = i / units, column = i % units * 4;
        float4 four = row < rows ? *reinterpret_cast<const float4*>(from + row * stride + column) : float4{};
        four.x *= scale, four.y *= scale, four.z *= scale, four.w *= scale;
        *reinterpret_cast<float4*>(&to(row, column)) = four;
      }
      return;
    }
  }
  for (int i = threadIdx.x; i < tile * to.width; i += blockDim.x) {
    const int row = i / to.width, column = i % to.width;
    to(row, column) = row < rows ? static_cast<C>(from[row * stride + column]) * scale : C(0);
  }
}

template <int tile, class C>
__device__ void clear_rows(const Rows<C>& rows) {
  for (int i = threadIdx.x; i < rows_size<tile, C>(rows.width); i += blockDim.x) rows.data[i] = C(0);
}

template <int tile, class T, class C>
__device__ void store_rows(const Rows<C>& from, T* to, int64_t stride, int64_t rows) {
  for (int i = threadIdx.x; i < tile * from.width; i += blockDim.x) {
    const int row = i / from.width, column = i % from.width;
    if (row < rows) to[row * stride + column] = static_cast<T>(from(row, column));
  }
}

// kept[i][j]: whether dropout keeps the probability of query first_query + i and key first_key + j.
template <int tile>
__device__ void draw_kept(const AttentionProblem& p, uint64_t key, uint64_t first_row, int64_t n, int64_t h,
                          int64_t first_query, int64_t first_key, uint8_t* kept) {
  constexpr int kBlocks = tile / 4;
  for (int i = threadIdx.x; i < tile * kBlocks; i += blockDim.x) {
    const int row = i / kBlocks, block = i % kBlocks;
    const auto words = Philox::block(key, p.random_row(first_row, n, h, first_query + row),
                                     static_cast<uint64_t>(first_key / 4 + block));
#pragma unroll
    for (int k = 0; k < 4; ++k) kept[row * tile + block * 4 + k] = words[k] >> 8 >= p.threshold;
  }
}

// Sums over tiles are held in registers where a row of them is no longer than a tile, else in shared memory,
// so that more blocks share a multiprocessor.
template <int tile>
inline constexpr int kHeld = tile* tile / 256;  // elements of a thread

template <int tile, class T, bool held>
__global__ void __launch_bounds__(256, held ? 2 : 1) attend(AttentionProblem p, const T* query, const T* key,
                                                            const T* value, T* result, Real<T>* log_sum_exp) {
  using C = Real<T>;
  extern __shared__ __align__(16) char memory[];
  const int dim = static_cast<int>(p.dim), value_dim = static_cast<int>(p.value_dim);
  const Rows<C> q{reinterpret_cast<C*>(memory), dim}, k{q.data + rows_size<tile, C>(dim), dim},
      v{k.data + rows_size<tile, C>(dim), value_dim}, s{v.data + rows_size<tile, C>(value_dim), tile};
  C *const largest = s.data + rows_size<tile, C>(tile), *const total = largest + tile,
           *const shrink = total + tile;
  auto* const kept = reinterpret_cast<uint8_t*>(shrink + tile);
  const Rows<C> sum{shrink + tile + tile * tile / sizeof(C), value_dim};
  C own[kHeld<tile>] = {};

  const int64_t h = blockIdx.y, n = blockIdx.z, key_head = h / p.group();
  // With a causal mask the last tiles have the most work: they begin first.
  const int64_t first_query = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * tile;
  const uint64_t random_key = p.drops() ? p.random.key() : 0,
                 first_row = p.drops() ? p.random.first_row() : 0;
  load_rows<tile>(q, query + p.row_at(n, p.queries, first_query, p.heads, h, dim), p.heads * dim,
                  p.queries - first_query, p.scale_as<C>());
  if constexpr (!held) clear_rows<tile>(sum);
  // 256 / tile neighbouring threads have a row. What they know of it so far, each of them knows.
  constexpr int kTeam = 256 / tile, kEach = tile / kTeam;
  const int row = threadIdx.x / kTeam, part = threadIdx.x % kTeam;
  C largest_so_far = -INFINITY, total_so_far = 0;

  const int64_t end = p.causal ? min(p.keys, first_query + tile) : p.keys;
  for (int64_t first_key = 0; first_key < end; first_key += tile) {
    __syncthreads();
    load_rows<tile>(k, key + p.row_at(n, p.keys, first_key, p.key_heads, key_head, dim), p.key_heads * dim,
                    p.keys - first_key, C(1));
    load_rows<tile>(v, value + p.row_at(n, p.keys, first_key, p.key_heads, key_head, value_dim),
                    p.key_heads * value_dim, p.keys - first_key, C(1));
    if (p.drops()) draw_kept<tile>(p, random_key, first_row, n, h, first_query, first_key, kept);
    __syncthreads();
    multiply<tile, C>(
        tile, dim, [&](int i, int c) { return q(i, c); }, [&](int c, int j) { return k(j, c); },
        [&](int i, int j, C score, int) {
          const int64_t at = first_query + i, to = first_key + j;
          s(i, j) = p.sees(n, h, at, to) ? score + p.bias_at<T>(n, h, at, to) : C(-INFINITY);
        });
    __syncthreads();
    C most = largest_so_far, sum_of_row = 0;
    for (int c = 0; c < kEach; ++c) most = max(most, s(row, part * kEach + c));
#pragma unroll
    for (int mask = kTeam / 2; mask > 0; mask /= 2) most = max(most, shuffle_xor(most, mask));
    for (int c = 0; c < kEach; ++c) {
      const int j = part * kEach + c;
      const C probability = exponential(s(row, j) - (most == C(-INFINITY) ? C(0) : most));  // NaN stays
      sum_of_row += probability;
      s(row, j) = !p.drops() ? probability : kept[row * tile + j] ? probability * p.keep_scale_as<C>() : C(0);
    }
#pragma unroll
    for (int mask = kTeam / 2; mask > 0; mask /= 2) sum_of_row += shuffle_xor(sum_of_row, mask);
    const C factor = most == C(-INFINITY) ? C(1) : exponential(largest_so_far - most);
    total_so_far = total_so_far * factor + sum_of_row;
    largest_so_far = most;
    if (part == 0) shrink[row] = factor;
    __syncthreads();
    multiply<tile, C>(
        value_dim, tile, [&](int i, int c) { return s(i, c); }, [&](int c, int j) { return v(c, j); },
        [&](int i, int j, C product, int number) {
          C& so_far = held ? own[number] : sum(i, j);
          so_far = so_far * shrink[i] + product;
        });
  }
  if (part == 0) largest[row] = largest_so_far, total[row] = total_so_far;
  __syncthreads();
  T* const to = result + p.row_at(n, p.queries, first_query, p.heads, h, value_dim);
  const auto finish = [&](int at, int column, C x) {
    if (first_query + at < p.queries)
      to[at * p.heads * value_dim + column] = static_cast<T>(total[at] > 0 ? x / total[at] : x);
  };
  if constexpr (held)
    each_own<tile, C>(value_dim, [&](int i, int j, int number) { finish(i, j, own[number]); });
  else
    for (int i = threadIdx.x; i < tile * value_dim; i += blockDim.x)
      finish(i / value_dim, i % value_dim, sum(i / value_dim, i % value_dim));
  for (int i = threadIdx.x; i < tile; i += blockDim.x)
    if (first_query + i < p.queries)
      log_sum_exp[(n * p.heads + h) * p.queries + first_query + i] =
          largest[i] == C(-INFINITY) ? C(INFINITY) : largest[i] + log(total[i]);
}

// dots[n, h, q]: the gradient of a row of the result, times the row. One warp per row.
template <class T>
__global__ void dot_rows(const T* result, const T* gradient, Real<T>* dots, int64_t batch, int64_t queries,
                         int64_t heads, int64_t width) {
  using C = Real<T>;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (row >= batch * queries * heads) return;
  C sum = 0;
  for (int64_t i = threadIdx.x % kWarp; i < width; i += kWarp)
    sum += static_cast<C>(result[row * width + i]) * static_cast<C>(gradient[row * width + i]);
  sum = warp_fold(sum, Add());
  const int64_t h = row % heads, q = row / heads % queries, n = row / heads / queries;
  if (threadIdx.x % kWarp == 0) dots[(n * heads + h) * queries + q] = sum;
}

// Tiles of one query tile and one key tile: p holds probabilities, d the gradients of the scores.
template <int tile, class T, class C>
__device__ void score_gradients(const AttentionProblem& p, int64_t n, int64_t h, int64_t first_query,
                                int64_t first_key, const Rows<C>& q, const Rows<C>& k, const Rows<C>& v,
                                const Rows<C>& dresult, const C* log_sum_exp, const C* dots,
                                const uint8_t* kept, const Rows<C>& probabilities, const Rows<C>& d) {
  // Both products give a thread the same elements: what it stored in the first it reads in the second.
  multiply<tile, C>(
      tile, q.width, [&](int i, int c) { return q(i, c); }, [&](int c, int j) { return k(j, c); },
      [&](int i, int j, C score, int) {
        const int64_t at = first_query + i, to = first_key + j;
        probabilities(i, j) =
            p.sees(n, h, at, to) ? exponential(score + p.bias_at<T>(n, h, at, to) - log_sum_exp[i]) : C(0);
      });
  multiply<tile, C>(
      tile, v.width, [&](int i, int c) { return dresult(i, c); }, [&](int c, int j) { return v(j, c); },
      [&](int i, int j, C product, int) {
        const C keep = !p.drops() ? C(1) : kept[i * tile + j] ? p.keep_scale_as<C>() : C(0);
        const C probability = probabilities(i, j);
        d(i, j) = probability * (product * keep - dots[i]);
        probabilities(i, j) = probability * keep;
      });
}

template <int tile, class C>
__device__ void load_statistics(C* log_sum_exp, C* dots, const C* all_log_sum_exp, const C* all_dots,
                                int64_t first, int64_t rows) {
  for (int i = threadIdx.x; i < tile; i += blockDim.x) {
    log_sum_exp[i] = i < rows ? all_log_sum_exp[first + i] : C(INFINITY);
    dots[i] = i < rows ? all_dots[first + i] : C(0);
  }
}

// By a tile of keys of one key head.
template <int tile, class T, bool held>
__global__ void __launch_bounds__(256, held ? 2 : 1)
    key_gradients(AttentionProblem p, const T* query, const T* key, const T* value, const T* gradient,
                  const Real<T>* log_sum_exp, const Real<T>* dots, T* dkey, T* dvalue) {
  using C = Real<T>;
  extern __shared__ __align__(16) char memory[];
  const int dim = static_cast<int>(p.dim), value_dim = static_cast<int>(p.value_dim);
  const Rows<C> k{reinterpret_cast<C*>(memory), dim}, v{k.data + rows_size<tile, C>(dim), value_dim},
      q{v.data + rows_size<tile, C>(value_dim), dim}, g{q.data + rows_size<tile, C>(dim), value_dim},
      s{g.data + rows_size<tile, C>(value_dim), tile}, d{s.data + rows_size<tile, C>(tile), tile};
  C *const row_lse = d.data + rows_size<tile, C>(tile), *const row_dots = row_lse + tile;
  auto* const kept = reinterpret_cast<uint8_t*>(row_dots + tile);
  const Rows<C> dk{row_dots + tile + tile * tile / sizeof(C), dim},
      dv{dk.data + rows_size<tile, C>(dim), value_dim};
  C own_dk[kHeld<tile>] = {}, own_dv[kHeld<tile>] = {};

  const int64_t first_key = static_cast<int64_t>(blockIdx.x) * tile, key_head = blockIdx.y, n = blockIdx.z;
  const uint64_t random_key = p.drops() ? p.random.key() : 0,
                 first_row = p.drops() ? p.random.first_row() : 0;
  const int64_t key_row = p.row_at(n, p.keys, first_key, p.key_heads, key_head, 1);
  load_rows<tile>(k, key + key_row * dim, p.key_heads * dim, p.keys - first_key, C(1));
  load_rows<tile>(v, value + key_row * value_dim, p.key_heads * value_dim, p.keys - first_key, C(1));
  if constexpr (!held) clear_rows<tile>(dk), clear_rows<tile>(dv);
  for (int64_t h = key_head * p.group(); h < (key_head + 1) * p.group(); ++h)
    for (int64_t first_query = p.causal ? first_key : 0; first_query < p.queries; first_query += tile) {
      __syncthreads();
      const int64_t rows = p.queries - first_query;
      load_rows<tile>(q, query + p.row_at(n, p.queries, first_query, p.heads, h, dim), p.heads * dim, rows,
                      p.scale_as<C>());
      load_rows<tile>(g, gradient + p.row_at(n, p.queries, first_query, p.heads, h, value_dim),
                      p.heads * value_dim, rows, C(1));
      load_statistics<tile>(row_lse, row_dots, log_sum_exp, dots, (n * p.heads + h) * p.queries + first_query,
                            rows);
      if (p.drops()) draw_kept<tile>(p, random_key, first_row, n, h, first_query, first_key, kept);
      __syncthreads();
      score_gradients<tile, T>(p, n, h, first_query, first_key, q, k, v, g, row_lse, row_dots, kept, s, d);
      __syncthreads();
      multiply<tile, C>(
          value_dim, tile, [&](int i, int c) { return s(c, i); }, [&](int c, int j) { return g(c, j); },
          [&](int i, int j, C product, int number) { (held ? own_dv[number] : dv(i, j)) += product; });
      multiply<tile, C>(
          dim, tile, [&](int i, int c) { return d(c, i); }, [&](int c, int j) { return q(c, j); },
          [&](int i, int j, C product, int number) { (held ? own_dk[number] : dk(i, j)) += product; });
    }
  if constexpr (held) {
    const int64_t rows = p.keys - first_key;
    each_own<tile, C>(dim, [&](int i, int j, int number) {
      if (i < rows) dkey[(key_row + i * p.key_heads) * dim + j] = static_cast<T>(own_dk[number]);
    });
    each_own<tile, C>(value_dim, [&](int i, int j, int number) {
      if (i < rows) dvalue[(key_row + i * p.key_heads) * value_dim + j] = static_cast<T>(own_dv[number]);
    });
  } else {
    __syncthreads();
    store_rows<tile>(dk, dkey + key_row * dim, p.key_heads * dim, p.keys - first_key);
    store_rows<tile>(dv, dvalue + key_row * value_dim, p.key_heads * value_dim, p.keys - first_key);
  }
}

// By a tile of queries of one head.
template <int tile, class T, bool held>
__global__ void __launch_bounds__(256, held ? 2 : 1)
    query_gradients(AttentionProblem p, const T* query, const T* key, const T* value, const T* gradient,
                    const Real<T>* log_sum_exp, const Real<T>* dots, T* dquery) {
  using C = Real<T>;
  extern __shared__ __align__(16) char memory[];
  const int dim = static_cast<int>(p.dim), value_dim = static_cast<int>(p.value_dim);
  const Rows<C> k{reinterpret_cast<C*>(memory), dim}, v{k.data + rows_size<tile, C>(dim), value_dim},
      q{v.data + rows_size<tile, C>(value_dim), dim}, g{q.data + rows_size<tile, C>(dim), value_dim},
      s{g.data + rows_size<tile, C>(value_dim), tile}, d{s.data + rows_size<tile, C>(tile), tile};
  C *const row_lse = d.data + rows_size<tile, C>(tile), *const row_dots = row_lse + tile;
  auto* const kept = reinterpret_cast<uint8_t*>(row_dots + tile);
  const Rows<C> dq{row_dots + tile + tile * tile / sizeof(C), dim};
  C own[kHeld<tile>] = {};

  const int64_t first_query = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * tile, h = blockIdx.y,
                n = blockIdx.z, key_head = h / p.group(), rows = p.queries - first_query;
  const uint64_t random_key = p.drops() ? p.random.key() : 0,
                 first_row = p.drops() ? p.random.first_row() : 0;
  const int64_t query_row = p.row_at(n, p.queries, first_query, p.heads, h, 1);
  load_rows<tile>(q, query + query_row * dim, p.heads * dim, rows, p.scale_as<C>());
  load_rows<tile>(g, gradient + query_row * value_dim, p.heads * value_dim, rows, C(1));
  load_statistics<tile>(row_lse, row_dots, log_sum_exp, dots, (n * p.heads + h) * p.queries + first_query,
                        rows);
  if constexpr (!held) clear_rows<tile>(dq);
  const int64_t end = p.causal ? min(p.keys, first_query + tile) : p.keys;
  for (int64_t first_key = 0; first_key < end; first_key += tile) {
    __syncthreads();
    const int64_t key_row = p.row_at(n, p.keys, first_key, p.key_heads, key_head, 1);
    load_rows<tile>(k, key + key_row * dim, p.key_heads * dim, p.keys - first_key, C(1));
    load_rows<tile>(v, value + key_row * value_dim, p.key_heads * value_dim, p.keys - first_key, C(1));
    if (p.drops()) draw_kept<tile>(p, random_key, first_row, n, h, first_query, first_key, kept);
    __syncthreads();
    score_gradients<tile, T>(p, n, h, first_query, first_key, q, k, v, g, row_lse, row_dots, kept, s, d);
    __syncthreads();
    multiply<tile, C>(
        dim, tile, [&](int i, int c) { return d(i, c); }, [&](int c, int j) { return k(c, j); },
        [&](int i, int j, C product, int number) {
          (held ? own[number] : dq(i, j)) += product * p.scale_as<C>();
        });
  }
  if constexpr (held) {
    each_own<tile, C>(dim, [&](int i, int j, int number) {
      if (i < rows) dquery[(query_row + i * p.heads) * dim + j] = static_cast<T>(own[number]);
    });
  } else {
    __syncthreads();
    store_rows<tile>(dq, dquery + query_row * dim, p.heads * dim, rows);
  }
}

// --- kernels -----------------------------------------------------------------------------------------------

// Bytes of shared memory: rows of both kinds of width, tiles of scores, numbers per row, and what is kept.
size_t shared_bytes(int64_t tile, int64_t dim_rows, int64_t dim, int64_t value_rows, int64_t value_dim,
                    int64_t scores, size_t element) {
  const int64_t elements =
      tile * (dim_rows * pitch(dim) + value_rows * pitch(value_dim) + scores * pitch(tile) + 3);
  return static_cast<size_t>(elements) * element + static_cast<size_t>(tile * tile);
}

class AttentionBase : public Kernel {
 public:
  AttentionBase(const KernelRequest& request, int first_optional)
      : dtype_(request.dtype(0)), wide_(dtype_ == DType::float64 ? sizeof(double) : sizeof(float)) {
    const auto& attrs = request.attrs<AttentionAttrs>();
    const Shape &query = request.shape(0), &key = request.shape(1), &value = request.shape(2);
    problem_.batch = query[0], problem_.heads = query[2], problem_.key_heads = key[2];
    problem_.queries = query[1], problem_.keys = key[1], problem_.dim = query[3],
    problem_.value_dim = value[3];
    problem_.scale = static_cast<float>(attrs.scale), problem_.wide_scale = attrs.scale;
    problem_.causal = attrs.causal;
    const Shape scores = {query[0], query[2], query[1], key[1]};
    const auto term = [&](int input) {
      ScoreTerm result;
      if (input < 0) return result;
      const Shape& shape = request.shape(input);
      const Strides strides = broadcast_strides(shape, contiguous_strides(shape), scores);
      result.batch = strides[0], result.head = strides[1], result.query = strides[2], result.key = strides[3];
      return result;
    };
    mask_input_ = attrs.mask_input(first_optional), bias_input_ = attrs.bias_input(first_optional);
    state_input_ = attrs.state_input(first_optional);
    problem_.mask = term(mask_input_), problem_.bias = term(bias_input_);
    problem_.random = {nullptr, nullptr, attrs.instance, attrs.rows_per_example};
    if (attrs.dropout > 0) {
      problem_.threshold = threshold_bits(attrs.dropout);
      problem_.wide_keep_scale = 1 / (1 - attrs.dropout);
      problem_.keep_scale = static_cast<float>(problem_.wide_keep_scale);
    }
    tensor_cores_ = attention_fits_tensor_cores(problem_, dtype_);
    by_rows_ = is_plain() && attention_fits_rows(problem_, dtype_);
  }

 protected:
  bool is_plain() const { return mask_input_ < 0 && bias_input_ < 0 && !problem_.drops(); }
  // cuDNN's kernels were chosen for aligned memory; a view into a tensor may begin anywhere.
  static bool are_aligned(std::initializer_list<const void*> pointers) {
    return std::all_of(pointers.begin(), pointers.end(),
                       [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; });
  }

  AttentionProblem problem(const LaunchArgs& args) const {
    AttentionProblem p = problem_;
    if (mask_input_ >= 0) p.mask.data = args.inputs[mask_input_];
    if (bias_input_ >= 0) p.bias.data = args.inputs[bias_input_];
    if (state_input_ >= 0) {
      p.random.state = static_cast<const int64_t*>(args.inputs[state_input_]);
      p.random.example = static_cast<const int64_t*>(args.inputs[state_input_ + 1]);
    }
    return p;
  }

  // The largest tile whose memory a block can have, and that is not half empty; `bytes` of a tile size.
  template <class Bytes>
  int tile_of(const KernelRequest& request, Bytes bytes) const {
    int device = 0, most = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
    const int64_t rows = std::max(problem_.queries, problem_.keys);
    for (const int tile : {64, 32, 16})
      if (bytes(tile) <= static_cast<size_t>(most) && (tile == 16 || rows > tile / 2)) return tile;
    fail(ErrorCode::unsupported, request.where, request.op.name,
         ": heads of this many dimensions do not fit into a GPU's shared memory, received ", request.shape(0),
         " and ", request.shape(2));
  }

  template <class Function, class... Args>
  static void start(Function* function, dim3 blocks, size_t bytes, const LaunchArgs& args,
                    Args... arguments) {
    check(
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
    function<<<blocks, 256, bytes, stream_of(args)>>>(arguments...);
    launched();
  }

  dim3 blocks(int64_t rows, int tile, int64_t heads) const {
    return dim3(static_cast<unsigned>(ceil_div(rows, tile)), static_cast<unsigned>(heads),
                static_cast<unsigned>(problem_.batch));
  }

  // Whether sums of this width are held in registers: the largest tiles of float32.
  bool held(int tile, int64_t width) const { return dtype_ == DType::float32 && tile == 64 && width <= tile; }

  // f.operator()<tile, T, held>()
  template <class F>
  void each_type(int tile, bool held, F f) const {
    dispatch_floats(dtype_, [&]<class T>() {
      if constexpr (std::is_same_v<T, float>)
        if (held) return f.template operator()<64, T, true>();
      if (tile == 64)
        f.template operator()<64, T, false>();
      else if (tile == 32)
        f.template operator()<32, T, false>();
      else
        f.template operator()<16, T, false>();
    });
  }

  DType dtype_;
  size_t wide_;
  AttentionProblem problem_ = {};
  bool tensor_cores_ = false, by_rows_ = false;
  int mask_input_, bias_input_, state_input_;
};

class AttentionKernel final : public AttentionBase {
 public:
  explicit AttentionKernel(const KernelRequest& request) : AttentionBase(request, kAttentionOptional) {
    if (!tensor_cores_) tile_ = tile_of(request, [&](int tile) { return bytes(tile); });
    if (tensor_cores_ && is_plain()) cudnn_ = CudnnAttention::find(problem_, dtype_);
  }

  size_t workspace_bytes() const override { return cudnn_ ? cudnn_->workspace_bytes() : 0; }

  void launch(const LaunchArgs& args) const override {
    if (problem_.batch * problem_.heads * problem_.queries == 0) return;
    const bool aligned = are_aligned({args.inputs[0], args.inputs[1], args.inputs[2], args.outputs[0]});
    if (cudnn_ && aligned)
      return cudnn_->launch(args.inputs[0], args.inputs[1], args.inputs[2], args.outputs[0],
                            static_cast<float*>(args.outputs[1]), args.workspace, stream_of(args));
    if (by_rows_ && aligned)
      return attend_by_rows(problem_, static_cast<const float*>(args.inputs[0]),
                            static_cast<const float*>(args.inputs[1]),
                            static_cast<const float*>(args.inputs[2]), static_cast<float*>(args.outputs[0]),
                            static_cast<float*>(args.outputs[1]), stream_of(args));
    if (tensor_cores_)
      return attend_on_tensor_cores(problem(args), dtype_, args.inputs[0], args.inputs[1], args.inputs[2],
                                    args.outputs[0], static_cast<float*>(args.outputs[1]), stream_of(args));
    each_type(tile_, held(tile_, problem_.value_dim), [&]<int tile, class T, bool held>() {
      start(attend<tile, T, held>, blocks(problem_.queries, tile, problem_.heads), bytes(tile), args,
            problem(args), static_cast<const T*>(args.inputs[0]), static_cast<const T*>(args.inputs[1]),
            static_cast<const T*>(args.inputs[2]), static_cast<T*>(args.outputs[0]),
            static_cast<Real<T>*>(args.outputs[1]));
    });
  }

 private:
  size_t bytes(int tile) const {
    return shared_bytes(tile, 2, problem_.dim, held(tile, problem_.value_dim) ? 1 : 2, problem_.value_dim, 1,
                        wide_);
  }
  int tile_ = 64;
  std::unique_ptr<CudnnAttention> cudnn_;
};

class AttentionGradKernel final : public AttentionBase {
 public:
  explicit AttentionGradKernel(const KernelRequest& request)
      : AttentionBase(request, kAttentionGradOptional) {
    if (!tensor_cores_) tile_ = tile_of(request, [&](int tile) { return key_bytes(tile); });
    if (tensor_cores_ && is_plain()) cudnn_ = CudnnAttentionGradients::find(problem_, dtype_);
  }

  size_t workspace_bytes() const override {
    const size_t dots = static_cast<size_t>(problem_.batch * problem_.heads * problem_.queries) * wide_;
    return cudnn_ ? std::max(dots, cudnn_->workspace_bytes()) : dots;
  }

  void launch(const LaunchArgs& args) const override {
    const AttentionProblem& s = problem_;
    const int64_t rows = s.batch * s.heads * s.queries;
    if (rows == 0) {  // nothing reads the keys
      const auto elements = static_cast<size_t>(s.batch * s.keys * s.key_heads) * size_of(dtype_);
      const auto clear = [&](void* data, int64_t width) {
        if (elements * static_cast<size_t>(width) > 0)
          check(cudaMemsetAsync(data, 0, elements * static_cast<size_t>(width), stream_of(args)),
                "cudaMemsetAsync");
      };
      clear(args.outputs[1], s.dim);
      return clear(args.outputs[2], s.value_dim);
    }
    const bool aligned = are_aligned({args.inputs[0], args.inputs[1], args.inputs[2], args.inputs[3],
                                      args.inputs[5], args.outputs[0], args.outputs[1], args.outputs[2]});
    if (by_rows_ && aligned) {
      const auto in = [&](int i) { return static_cast<const float*>(args.inputs[i]); };
      const auto out = [&](int i) { return static_cast<float*>(args.outputs[i]); };
      return attention_gradients_by_rows(problem_, in(0), in(1), in(2), in(3), in(5), in(4), out(0), out(1),
                                         out(2), stream_of(args));
    }
    if (cudnn_ && aligned)
      return cudnn_->launch(args.inputs[0], args.inputs[1], args.inputs[2], args.inputs[3],
                            static_cast<const float*>(args.inputs[4]), args.inputs[5], args.outputs[0],
                            args.outputs[1], args.outputs[2], args.workspace, stream_of(args));
    each_type(tile_, holds(tile_), [&]<int tile, class T, bool held>() {
      using C = Real<T>;
      const auto *query = static_cast<const T*>(args.inputs[0]), *key = static_cast<const T*>(args.inputs[1]),
                 *value = static_cast<const T*>(args.inputs[2]),
                 *result = static_cast<const T*>(args.inputs[3]),
                 *gradient = static_cast<const T*>(args.inputs[5]);
      const auto* log_sum_exp = static_cast<const C*>(args.inputs[4]);
      auto* dots = static_cast<C*>(args.workspace);
      dot_rows<<<blocks_for(rows * kWarp), kThreads, 0, stream_of(args)>>>(result, gradient, dots, s.batch,
                                                                           s.queries, s.heads, s.value_dim);
      launched();
      if constexpr (kIs16Bit<T>)
        if (tensor_cores_)
          return attention_gradients_on_tensor_cores(problem(args), dtype_, query, key, value, gradient,
                                                     log_sum_exp, dots, args.outputs[0], args.outputs[1],
                                                     args.outputs[2], stream_of(args));
      start(query_gradients<tile, T, held>, blocks(s.queries, tile, s.heads), query_bytes(tile), args,
            problem(args), query, key, value, gradient, log_sum_exp, static_cast<const C*>(dots),
            static_cast<T*>(args.outputs[0]));
      if (s.keys > 0)
        start(key_gradients<tile, T, held>, blocks(s.keys, tile, s.key_heads), key_bytes(tile), args,
              problem(args), query, key, value, gradient, log_sum_exp, static_cast<const C*>(dots),
              static_cast<T*>(args.outputs[1]), static_cast<T*>(args.outputs[2]));
    });
  }

 private:
  bool holds(int tile) const { return held(tile, std::max(problem_.dim, problem_.value_dim)); }
  size_t key_bytes(int tile) const {
    const int rows = holds(tile) ? 2 : 3;
    return shared_bytes(tile, rows, problem_.dim, rows, problem_.value_dim, 2, wide_);
  }
  size_t query_bytes(int tile) const {
    return shared_bytes(tile, holds(tile) ? 2 : 3, problem_.dim, 2, problem_.value_dim, 2, wide_);
  }
  int tile_ = 64;
  std::unique_ptr<CudnnAttentionGradients> cudnn_;
};

const RegisterKernel registered[] = {
    {DeviceKind::gpu, kAttention, {.prepare = prepare<AttentionKernel>}},
    {DeviceKind::gpu, kAttentionGrad, {.prepare = prepare<AttentionGradKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
