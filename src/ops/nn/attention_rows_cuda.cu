// Attention of short sequences with narrow heads, in float32: each thread has a row of queries or keys in
// registers, and the rows that it meets lie in shared memory, where the threads of a warp read one together.
// Tensor cores, for which scores go through shared memory and are cut into halves, take four times as long
// there: 1,024 heads of 64 tokens and 16 dimensions are 2 GFLOP.
#include <algorithm>
#include <limits>

#include "backends/cuda/launch.h"
#include "ops/nn/attention_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kBlock = 128;   // threads: those of one head, or of several
constexpr int kTogether = 8;  // keys whose scores are there before the largest is looked for
constexpr int kWidest = 32;   // columns that a thread's registers hold

// --- rows --------------------------------------------------------------------------------------------------

// A row's columns, of which what lies behind the last one is 0.
template <int width>
struct Row {
  float4 part[width / 4];

  __device__ void load(const float* from, int columns) {
#pragma unroll
    for (int c = 0; c < width / 4; ++c)
      part[c] = 4 * c < columns ? reinterpret_cast<const float4*>(from)[c] : float4{};
  }
  __device__ void load(const float* from) { load(from, width); }
  __device__ void store(float* to, int columns, float factor) const {
#pragma unroll
    for (int c = 0; c < width / 4; ++c)
      if (4 * c < columns)
        reinterpret_cast<float4*>(to)[c] = {part[c].x * factor, part[c].y * factor, part[c].z * factor,
                                            part[c].w * factor};
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (int c = 0; c < width / 4; ++c)
      part[c] = {part[c].x * factor, part[c].y * factor, part[c].z * factor, part[c].w * factor};
  }
  __device__ void add(float factor, const Row& other) {
#pragma unroll
    for (int c = 0; c < width / 4; ++c) {
      part[c].x = fmaf(factor, other.part[c].x, part[c].x);
      part[c].y = fmaf(factor, other.part[c].y, part[c].y);
      part[c].z = fmaf(factor, other.part[c].z, part[c].z);
      part[c].w = fmaf(factor, other.part[c].w, part[c].w);
    }
  }
  __device__ float dot(const Row& other) const {
    float4 sum = {};
#pragma unroll
    for (int c = 0; c < width / 4; ++c) {
      sum.x = fmaf(part[c].x, other.part[c].x, sum.x);
      sum.y = fmaf(part[c].y, other.part[c].y, sum.y);
      sum.z = fmaf(part[c].z, other.part[c].z, sum.z);
      sum.w = fmaf(part[c].w, other.part[c].w, sum.w);
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
  }
};

// Which head a thread works for, and which of its rows it has. As many threads as the longer of its two
// sequences has rows, rounded up, are a team; a block has one team or more.
struct Place {
  int64_t head, n, h;  // head = n * heads + h
  int team, number, own;
  bool exists;

  __device__ Place(const AttentionProblem& p, int threads)
      : team(threads),
        number(static_cast<int>(threadIdx.x) / threads),
        own(static_cast<int>(threadIdx.x) % threads) {
    head = static_cast<int64_t>(blockIdx.x) * (kBlock / team) + number;
    exists = head < p.batch * p.heads;
    n = head / p.heads, h = head % p.heads;
  }
  // Where row 0 of this head is in a tensor [batch, rows, heads, columns].
  __device__ int64_t first(const AttentionProblem& p, int64_t rows, int64_t columns) const {
    return AttentionProblem::row_at(n, rows, 0, p.heads, h, columns);
  }
};

// Copies a head's rows to shared memory, times a factor; its team does.
template <int width>
__device__ void load_rows(const Place& place, float* to, const float* from, int64_t stride, int64_t rows,
                          int columns, float factor) {
  constexpr int kParts = width / 4;
  for (int i = place.own; i < rows * kParts; i += place.team) {
    const int row = i / kParts, part = i % kParts;
    float4 four = {};
    if (4 * part < columns) four = reinterpret_cast<const float4*>(from + row * stride)[part];
    reinterpret_cast<float4*>(to)[i] = {four.x * factor, four.y * factor, four.z * factor, four.w * factor};
  }
}

// --- kernels -----------------------------------------------------------------------------------------------

template <int width>
__global__ void __launch_bounds__(kBlock)
    attend(AttentionProblem p, const float* query, const float* key, const float* value, float* result,
           float* log_sum_exp, int team) {
  extern __shared__ __align__(16) float rows[];
  const Place place(p, team);
  float *const keys = rows + place.number * team * 2 * width, *const values = keys + team * width;
  const int dim = static_cast<int>(p.dim), value_dim = static_cast<int>(p.value_dim);
  if (place.exists) {
    load_rows<width>(place, keys, key + place.first(p, p.keys, dim), p.heads * dim, p.keys, dim, 1);
    load_rows<width>(place, values, value + place.first(p, p.keys, value_dim), p.heads * value_dim, p.keys,
                     value_dim, 1);
  }
  __syncthreads();
  if (!place.exists || place.own >= p.queries) return;

  Row<width> own, sum = {};
  own.load(query + place.first(p, p.queries, dim) + place.own * p.heads * dim, dim);
  own.scale(p.scale);
  float most = -INFINITY, total = 0;
  const int end = static_cast<int>(p.causal ? min(p.keys, static_cast<int64_t>(place.own) + 1) : p.keys);
  for (int first = 0; first < end; first += kTogether) {
    float score[kTogether], larger = most;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      score[i] = -INFINITY;
      if (first + i < end) {
        Row<width> other;
        other.load(keys + (first + i) * width);
        score[i] = own.dot(other);
      }
      larger = fmaxf(larger, score[i]);
    }
    const float center = larger == -INFINITY ? 0.0f : larger;  // no difference of infinities, and NaN stays
    const float shrink = expf(most - center);
    total *= shrink;
    sum.scale(shrink);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= end) continue;
      const float probability = expf(score[i] - center);
      total += probability;
      Row<width> other;
      other.load(values + (first + i) * width);
      sum.add(probability, other);
    }
    most = larger;
  }
  sum.store(result + place.first(p, p.queries, value_dim) + place.own * p.heads * value_dim, value_dim,
            total > 0 ? 1 / total : 1.0f);
  log_sum_exp[place.head * p.queries + place.own] = most == -INFINITY ? INFINITY : most + logf(total);
}

template <int width>
__global__ void __launch_bounds__(kBlock)
    gradients(AttentionProblem p, const float* query, const float* key, const float* value,
              const float* result, const float* gradient, const float* log_sum_exp, float* dquery,
              float* dkey, float* dvalue, int team) {
  extern __shared__ __align__(16) float rows[];
  const Place place(p, team);
  float *const queries = rows + place.number * team * (4 * width + 2),
               *const dresults = queries + team * width, *const keys = dresults + team * width,
               *const values = keys + team * width;
  auto* const statistics = reinterpret_cast<float2*>(values + team * width);  // of a query: log_sum_exp, dot
  const int dim = static_cast<int>(p.dim), value_dim = static_cast<int>(p.value_dim), own = place.own;
  const int64_t stride = p.heads * dim, value_stride = p.heads * value_dim;
  const int64_t first_query = place.first(p, p.queries, dim), first_key = place.first(p, p.keys, dim),
                first_result = place.first(p, p.queries, value_dim),
                first_value = place.first(p, p.keys, value_dim);
  if (place.exists) {
    load_rows<width>(place, queries, query + first_query, stride, p.queries, dim, p.scale);
    load_rows<width>(place, dresults, gradient + first_result, value_stride, p.queries, value_dim, 1);
    load_rows<width>(place, keys, key + first_key, stride, p.keys, dim, 1);
    load_rows<width>(place, values, value + first_value, value_stride, p.keys, value_dim, 1);
    if (own < p.queries) {
      Row<width> made, wanted;
      made.load(result + first_result + own * value_stride, value_dim);
      wanted.load(gradient + first_result + own * value_stride, value_dim);
      statistics[own] = {log_sum_exp[place.head * p.queries + own], made.dot(wanted)};
    }
  }
  __syncthreads();
  if (!place.exists) return;

  if (own < p.queries) {
    Row<width> q, g, sum = {};
    q.load(queries + own * width);
    g.load(dresults + own * width);
    const float2 statistic = statistics[own];
    const int end = static_cast<int>(p.causal ? min(p.keys, static_cast<int64_t>(own) + 1) : p.keys);
    for (int j = 0; j < end; ++j) {
      Row<width> k, v;
      k.load(keys + j * width);
      v.load(values + j * width);
      const float probability = expf(q.dot(k) - statistic.x);
      sum.add(probability * (g.dot(v) - statistic.y), k);
    }
    sum.store(dquery + first_query + own * stride, dim, p.scale);
  }
  if (own < p.keys) {
    Row<width> k, v, dk = {}, dv = {};
    k.load(keys + own * width);
    v.load(values + own * width);
    // The threads of a warp look at the same query, also where a causal mask hides their key from it.
    const int begin = p.causal ? own / 32 * 32 : 0;
    for (int i = begin; i < p.queries; ++i) {
      if (p.causal && i < own) continue;
      Row<width> q, g;
      q.load(queries + i * width);
      g.load(dresults + i * width);
      const float2 statistic = statistics[i];
      const float probability = expf(q.dot(k) - statistic.x);
      dk.add(probability * (g.dot(v) - statistic.y), q);
      dv.add(probability, g);
    }
    dk.store(dkey + first_key + own * stride, dim, 1);
    dv.store(dvalue + first_value + own * value_stride, value_dim, 1);
  }
}

// --- launches ----------------------------------------------------------------------------------------------

// f.operator()<columns that a row has at least>()
template <class F>
void each_width(const AttentionProblem& p, F f) {
  std::max(p.dim, p.value_dim) <= 16 ? f.template operator()<16>() : f.template operator()<kWidest>();
}

int team_of(const AttentionProblem& p) {
  int team = 32;
  while (team < std::max(p.queries, p.keys)) team *= 2;
  return team;
}

template <class Function, class... Args>
void start(Function* function, const AttentionProblem& p, int floats_per_thread, cudaStream_t stream,
           Args... args) {
  const size_t bytes = sizeof(float) * kBlock * static_cast<size_t>(floats_per_thread);
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
  const int team = team_of(p);
  function<<<static_cast<unsigned>(ceil_div(p.batch * p.heads, int64_t{kBlock / team})), kBlock, bytes,
             stream>>>(p, args..., team);
  launched();
}

}  // namespace

bool attention_fits_rows(const AttentionProblem& p, DType dtype) {
  const auto fits = [](int64_t columns) { return columns > 0 && columns <= kWidest && columns % 4 == 0; };
  return dtype == DType::float32 && p.heads == p.key_heads && std::max(p.queries, p.keys) <= kBlock &&
         p.keys > 0 && fits(p.dim) && fits(p.value_dim) &&
         p.batch * p.heads < std::numeric_limits<int>::max();
}

void attend_by_rows(const AttentionProblem& p, const float* query, const float* key, const float* value,
                    float* result, float* log_sum_exp, cudaStream_t stream) {
  each_width(p, [&]<int width>() {
    start(attend<width>, p, 2 * width, stream, query, key, value, result, log_sum_exp);
  });
}

void attention_gradients_by_rows(const AttentionProblem& p, const float* query, const float* key,
                                 const float* value, const float* result, const float* gradient,
                                 const float* log_sum_exp, float* dquery, float* dkey, float* dvalue,
                                 cudaStream_t stream) {
  each_width(p, [&]<int width>() {
    start(gradients<width>, p, 4 * width + 2, stream, query, key, value, result, gradient, log_sum_exp,
          dquery, dkey, dvalue);
  });
}

}  // namespace lockstep::cuda
