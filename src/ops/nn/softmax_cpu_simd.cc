#include "ops/nn/softmax_cpu_simd.h"

#include "backends/cpu/simd_math.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::Labels;

constexpr float kMinusInfinity = -__builtin_inff();

// f(position, vector) for each 16 elements of a row; the last vector may hold fewer, its other lanes
// -infinity.
template <class T, class F>
LOCKSTEP_INLINE void each_vector(const T* x, int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, load(x + i));
  if (i < n) f(i, load_some(x + i, n - i, kMinusInfinity));
}

template <class T>
LOCKSTEP_INLINE void store_at(T* y, int64_t i, int64_t n, const F32& v) {
  if (i + kLanes <= n)
    store(y + i, v);
  else
    store_some(y + i, n - i, v);
}

// NaN is not looked for: it comes back in the sum.
template <class T>
LOCKSTEP_INLINE float row_max(const T* x, int64_t n) {
  F32 acc = splat(kMinusInfinity);
  each_vector(
      x, n, [&](int64_t, const F32& v) __attribute__((always_inline)) { acc = MaxOfNumbers::apply(acc, v); });
  return fold<MaxOfNumbers>(acc);
}

// The sum of exp(x - max); sink(position, exponentials) sees every vector. Partial sums of 64 vectors keep
// the error of long rows small.
template <class T, class Sink>
LOCKSTEP_INLINE float row_sum(const T* x, int64_t n, float max, Sink&& sink) {
  constexpr int64_t kBlock = 64 * kLanes;
  F32 total = splat(0.0f);
  for (int64_t first = 0; first < n; first += kBlock) {
    F32 acc = splat(0.0f);
    each_vector(
        x + first,
        n - first < kBlock ? n - first : kBlock, [&](int64_t i, const F32& v) __attribute__((always_inline)) {
          const F32 e = exp_not_positive(v - splat(max));
          sink(first + i, e);
          acc = acc + e;
        });
    total = total + acc;
  }
  return fold<Sum>(total);
}

// f(first row, rows) for each 16 rows: what is done once per row can then be done in one vector.
template <class F>
LOCKSTEP_INLINE void each_group(int64_t begin, int64_t end, F&& f) {
  for (int64_t row = begin; row < end; row += kLanes) f(row, end - row < kLanes ? end - row : kLanes);
}

// Maxima and sums of up to 16 rows that are no longer than a vector; sink(row, exponentials) sees every row.
// Four rows go together, because the folds of one would wait for each other. The last row stands in for those
// that are missing.
template <class T, class Sink>
LOCKSTEP_INLINE void short_rows(const T* x, int64_t n, int64_t count, float* max, float* sum, Sink&& sink) {
  for (int64_t first = 0; first < count; first += 4) {
    F32 v[4];
    int64_t row[4];
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) {
      row[r] = first + r < count ? first + r : count - 1;
      v[r] = n == kLanes ? load(x + row[r] * n) : load_some(x + row[r] * n, n, kMinusInfinity);
    }
    fold_four<MaxOfNumbers>(v, max + first);
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) {
      v[r] = exp_not_positive(v[r] - splat(max[first + r]));
      sink(row[r], v[r]);
    }
    fold_four<Sum>(v, sum + first);
  }
}

// Maxima and sums of up to 16 rows.
template <class T>
LOCKSTEP_INLINE void row_stats(const T* x, int64_t n, int64_t count, float* max, float* sum) {
  if (n <= kLanes) return short_rows(x, n, count, max, sum, [](int64_t, const F32&) {});
  for (int64_t r = 0; r < count; ++r) {
    max[r] = row_max(x + r * n, n);
    sum[r] = row_sum(x + r * n, n, max[r], [](int64_t, const F32&) {});
  }
}

template <class T>
void softmax(const void* in, void* out, int64_t n, int64_t begin, int64_t end) {
  if (n <= kLanes) {
    each_group(
        begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
          float max[kLanes], sum[kLanes] = {};
          F32 exponentials[kLanes];
          short_rows(
              static_cast<const T*>(in) + first * n, n, count, max,
              sum, [&](int64_t r, const F32& e) __attribute__((always_inline)) { exponentials[r] = e; });
          store(sum, splat(1.0f) / load(sum));
          for (int64_t r = 0; r < count; ++r)
            store_at(static_cast<T*>(out) + (first + r) * n, 0, n, exponentials[r] * splat(sum[r]));
        });
    return;
  }
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(in) + row * n;
    T* y = static_cast<T*>(out) + row * n;
    const float max = row_max(x, n);
    if constexpr (sizeof(T) == 4) {
      const float sum = row_sum(
          x, n, max, [&](int64_t i, const F32& e) __attribute__((always_inline)) { store_at(y, i, n, e); });
      const F32 scale = splat(1.0f / sum);
      each_vector(
          y,
          n, [&](int64_t i, const F32& e) __attribute__((always_inline)) { store_at(y, i, n, e * scale); });
    } else {
      // Exponentials rounded to 16 bits would lose what the sum has: they are made again.
      const float sum = row_sum(x, n, max, [](int64_t, const F32&) {});
      const F32 scale = splat(1.0f / sum);
      each_vector(
          x, n, [&](int64_t i, const F32& v) __attribute__((always_inline)) {
            store_at(y, i, n, exp_not_positive(v - splat(max)) * scale);
          });
    }
  }
}

template <class T>
void log_softmax(const void* in, void* out, int64_t n, int64_t begin, int64_t end) {
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        float max[kLanes], sum[kLanes] = {};
        const T* x = static_cast<const T*>(in) + first * n;
        T* y = static_cast<T*>(out) + first * n;
        row_stats(x, n, count, max, sum);
        store(sum, log(load(sum)));
        for (int64_t r = 0; r < count; ++r)
          each_vector(
              x + r * n, n, [&](int64_t i, const F32& v) __attribute__((always_inline)) {
                store_at(y + r * n, i, n, (v - splat(max[r])) - splat(sum[r]));
              });
      });
}

// --- rows of two, three or four ----------------------------------------------------------------------------
// Classes of pixels: a lane for each of 16 rows, and a vector for each column. Sums have the order of a fold.

template <int n, class T>
LOCKSTEP_INLINE void load_columns(const T* x, int64_t count, F32 (&columns)[n]) {
  float buffer[n * kLanes] = {}, lanes[n][kLanes];
  each_vector(
      x, count * n, [&](int64_t i, const F32& v) __attribute__((always_inline)) { store(buffer + i, v); });
  for (int c = 0; c < n; ++c) {
    for (int r = 0; r < kLanes; ++r) lanes[c][r] = buffer[r * n + c];
    columns[c] = load(lanes[c]);
  }
}

template <int n, class T>
LOCKSTEP_INLINE void store_columns(T* y, int64_t count, const F32 (&columns)[n]) {
  float buffer[n * kLanes], lanes[n][kLanes];
  for (int c = 0; c < n; ++c) {
    store(lanes[c], columns[c]);
    for (int r = 0; r < kLanes; ++r) buffer[r * n + c] = lanes[c][r];
  }
  for (int64_t i = 0; i < count * n; i += kLanes) store_at(y, i, count * n, load(buffer + i));
}

LOCKSTEP_INLINE I32 labels_of(Labels labels, int64_t first, int64_t count) {
  int32_t lanes[kLanes] = {};
  for (int64_t r = 0; r < count; ++r) lanes[r] = static_cast<int32_t>(labels[first + r]);
  return load(lanes);
}

template <int n>
LOCKSTEP_INLINE F32 sum_of_columns(const F32 (&e)[n]) {
  if constexpr (n == 2) return e[0] + e[1];
  if constexpr (n == 3) return (e[0] + e[2]) + e[1];
  if constexpr (n == 4) return (e[0] + e[2]) + (e[1] + e[3]);
}

template <int n, class T>
void narrow_cross_entropy(const void* in, Labels labels, void* loss, float* stats, int64_t begin,
                          int64_t end) {
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        F32 x[n], e[n];
        load_columns<n>(static_cast<const T*>(in) + first * n, count, x);
        F32 max = x[0];
        for (int c = 1; c < n; ++c) max = MaxOfNumbers::apply(max, x[c]);
        for (int c = 0; c < n; ++c) e[c] = exp_not_positive(x[c] - max);
        const F32 sum = sum_of_columns(e);
        const I32 label = labels_of(labels, first, count);
        F32 chosen = x[0];
        for (int c = 1; c < n; ++c) chosen = select(label == splat(c), x[c], chosen);
        store_columns<2>(stats + 2 * first, count, {max, sum});
        store_at(static_cast<T*>(loss) + first, 0, count, log(sum) - (chosen - max));
      });
}

template <int n, class T>
void narrow_cross_entropy_grad(const void* in, Labels labels, const float* stats, const void* dloss,
                               void* out, int64_t begin, int64_t end) {
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        F32 x[n], max_and_sum[2], d = splat(0.0f);
        load_columns<n>(static_cast<const T*>(in) + first * n, count, x);
        load_columns<2>(stats + 2 * first, count, max_and_sum);
        each_vector(
            static_cast<const T*>(dloss) + first,
            count, [&](int64_t, const F32& v) __attribute__((always_inline)) { d = v; });
        const F32 scale = splat(1.0f) / max_and_sum[1];
        const I32 label = labels_of(labels, first, count);
        for (int c = 0; c < n; ++c) {
          const F32 p = exp_not_positive(x[c] - max_and_sum[0]) * scale;
          x[c] = select(label == splat(c), p - splat(1.0f), p) * d;
        }
        store_columns<n>(static_cast<T*>(out) + first * n, count, x);
      });
}

// --- cross entropy -----------------------------------------------------------------------------------------

LOCKSTEP_INLINE float to_float(float x) { return x; }
template <class T>
LOCKSTEP_INLINE float to_float(const T& x) {
  return load_some(&x, 1, 0.0f).part[0][0];
}

template <class T>
void cross_entropy(const void* in, Labels labels, void* loss, float* stats, int64_t n, int64_t begin,
                   int64_t end) {
  if (n == 2) return narrow_cross_entropy<2, T>(in, labels, loss, stats, begin, end);
  if (n == 3) return narrow_cross_entropy<3, T>(in, labels, loss, stats, begin, end);
  if (n == 4) return narrow_cross_entropy<4, T>(in, labels, loss, stats, begin, end);
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        float max[kLanes], sum[kLanes] = {}, chosen[kLanes] = {};
        const T* x = static_cast<const T*>(in) + first * n;
        row_stats(x, n, count, max, sum);
        for (int64_t r = 0; r < count; ++r) {
          chosen[r] = to_float(x[r * n + labels[first + r]]) - max[r];
          stats[2 * (first + r)] = max[r];
          stats[2 * (first + r) + 1] = sum[r];
        }
        const F32 result = log(load(sum)) - load(chosen);
        T* y = static_cast<T*>(loss) + first;
        if (count == kLanes)
          store(y, result);
        else
          store_some(y, count, result);
      });
}

template <class T>
void cross_entropy_grad(const void* in, Labels labels, const float* stats, const void* dloss, void* out,
                        int64_t n, int64_t begin, int64_t end) {
  if (n == 2) return narrow_cross_entropy_grad<2, T>(in, labels, stats, dloss, out, begin, end);
  if (n == 3) return narrow_cross_entropy_grad<3, T>(in, labels, stats, dloss, out, begin, end);
  if (n == 4) return narrow_cross_entropy_grad<4, T>(in, labels, stats, dloss, out, begin, end);
  const I32 lane = iota<int32_t>(0);
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        float scale[kLanes] = {};
        for (int64_t r = 0; r < count; ++r) scale[r] = stats[2 * (first + r) + 1];
        store(scale, splat(1.0f) / load(scale));
        for (int64_t r = 0; r < count; ++r) {
          const int64_t row = first + r;
          const T* x = static_cast<const T*>(in) + row * n;
          T* y = static_cast<T*>(out) + row * n;
          const float max = stats[2 * row];
          const F32 d = splat(to_float(static_cast<const T*>(dloss)[row]));
          const int64_t label = labels[row];
          const auto gradient = [&](const F32& v, int64_t place) __attribute__((always_inline)) {
            const F32 p = exp_not_positive(v - splat(max)) * splat(scale[r]);
            return select(lane == splat(static_cast<int32_t>(place)), p - splat(1.0f), p) * d;
          };
          if (n < kLanes) {
            store_some(y, n, gradient(load_some(x, n, kMinusInfinity), label));
            continue;
          }
          each_vector(
              x, n, [&](int64_t i, const F32& v) __attribute__((always_inline)) {
                store_at(y, i, n, gradient(v, label - i));
              });
        }
      });
}

template <class T>
constexpr cpu::SoftmaxFunctions functions() {
  return {softmax<T>, log_softmax<T>, cross_entropy<T>, cross_entropy_grad<T>};
}

}  // namespace

extern const cpu::SoftmaxTable kSoftmaxTable = {functions<float>(), functions<BFloat16>(),
                                                functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
