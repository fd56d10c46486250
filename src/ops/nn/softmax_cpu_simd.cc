#include "ops/nn/softmax_cpu_simd.h"

#include "backends/cpu/simd_math.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::Labels;

template <class T>
constexpr Compute<T> kMinusInfinity = -__builtin_inff();

template <class T>
using V = Vec<Compute<T>>;

// f(position, vector) for each 16 elements of a row; the last vector may hold fewer, its other lanes
// -infinity.
template <class T, class F>
LOCKSTEP_INLINE void each_vector(const T* x, int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, load(x + i));
  if (i < n) f(i, load_some(x + i, n - i, kMinusInfinity<T>));
}

template <class T>
LOCKSTEP_INLINE void store_at(T* y, int64_t i, int64_t n, const V<T>& v) {
  if (i + kLanes <= n)
    store(y + i, v);
  else
    store_some(y + i, n - i, v);
}

// NaN is not looked for: it comes back in the sum.
template <class T>
LOCKSTEP_INLINE Compute<T> row_max(const T* x, int64_t n) {
  V<T> acc = splat(kMinusInfinity<T>);
  each_vector(
      x,
      n, [&](int64_t, const V<T>& v) __attribute__((always_inline)) { acc = MaxOfNumbers::apply(acc, v); });
  return fold<MaxOfNumbers>(acc);
}

// The sum of exp(x - max); sink(position, exponentials) sees every vector. Partial sums of 64 vectors keep
// the error of long rows small.
template <class T, class Sink>
LOCKSTEP_INLINE Compute<T> row_sum(const T* x, int64_t n, Compute<T> max, Sink&& sink) {
  constexpr int64_t kBlock = 64 * kLanes;
  V<T> total = splat(Compute<T>(0));
  for (int64_t first = 0; first < n; first += kBlock) {
    V<T> acc = splat(Compute<T>(0));
    each_vector(
        x + first, n - first < kBlock ? n - first : kBlock,
        [&](int64_t i, const V<T>& v) __attribute__((always_inline)) {
          const V<T> e = exp_not_positive(v - splat(max));
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
LOCKSTEP_INLINE void short_rows(const T* x, int64_t n, int64_t count, Compute<T>* max, Compute<T>* sum,
                                Sink&& sink) {
  for (int64_t first = 0; first < count; first += 4) {
    V<T> v[4];
    int64_t row[4];
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) {
      row[r] = first + r < count ? first + r : count - 1;
      v[r] = n == kLanes ? load(x + row[r] * n) : load_some(x + row[r] * n, n, kMinusInfinity<T>);
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
LOCKSTEP_INLINE void row_stats(const T* x, int64_t n, int64_t count, Compute<T>* max, Compute<T>* sum) {
  if (n <= kLanes) return short_rows(x, n, count, max, sum, [](int64_t, const V<T>&) {});
  for (int64_t r = 0; r < count; ++r) {
    max[r] = row_max(x + r * n, n);
    sum[r] = row_sum(x + r * n, n, max[r], [](int64_t, const V<T>&) {});
  }
}

template <class T>
void softmax(const void* in, void* out, int64_t n, int64_t begin, int64_t end) {
  using C = Compute<T>;
  if (n <= kLanes) {
    each_group(
        begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
          C max[kLanes], sum[kLanes] = {};
          V<T> exponentials[kLanes];
          short_rows(
              static_cast<const T*>(in) + first * n, n, count, max,
              sum, [&](int64_t r, const V<T>& e) __attribute__((always_inline)) { exponentials[r] = e; });
          store(sum, splat(C(1)) / load(sum));
          for (int64_t r = 0; r < count; ++r)
            store_at(static_cast<T*>(out) + (first + r) * n, 0, n, exponentials[r] * splat(sum[r]));
        });
    return;
  }
  // Exponentials rounded to 16 bits would lose what the sum has: they wait in a buffer, or are made again
  // where a row is too long for it.
  constexpr bool kInPlace = std::is_same_v<T, C>;
  constexpr int64_t kBuffer = kInPlace ? kLanes : 256 * kLanes;
  C buffer[kBuffer];
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(in) + row * n;
    T* y = static_cast<T*>(out) + row * n;
    const C max = row_max(x, n);
    if (kInPlace || n <= kBuffer) {
      C* kept = buffer;
      if constexpr (kInPlace) kept = y;
      const C sum = row_sum(
          x, n,
          max, [&](int64_t i, const V<T>& e) __attribute__((always_inline)) { store_at(kept, i, n, e); });
      const V<T> scale = splat(1 / sum);
      each_vector(
          kept,
          n, [&](int64_t i, const V<T>& e) __attribute__((always_inline)) { store_at(y, i, n, e * scale); });
    } else {
      const C sum = row_sum(x, n, max, [](int64_t, const V<T>&) {});
      const V<T> scale = splat(1 / sum);
      each_vector(
          x, n, [&](int64_t i, const V<T>& v) __attribute__((always_inline)) {
            store_at(y, i, n, exp_not_positive(v - splat(max)) * scale);
          });
    }
  }
}

template <class T>
void log_softmax(const void* in, void* out, int64_t n, int64_t begin, int64_t end) {
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        Compute<T> max[kLanes], sum[kLanes] = {};
        const T* x = static_cast<const T*>(in) + first * n;
        T* y = static_cast<T*>(out) + first * n;
        row_stats(x, n, count, max, sum);
        store(sum, log(load(sum)));
        for (int64_t r = 0; r < count; ++r)
          each_vector(
              x + r * n, n, [&](int64_t i, const V<T>& v) __attribute__((always_inline)) {
                store_at(y + r * n, i, n, (v - splat(max[r])) - splat(sum[r]));
              });
      });
}

// --- rows of two, three or four ----------------------------------------------------------------------------
// Classes of pixels: a lane for each of 16 rows, and a vector for each column. Sums have the order of a fold.

template <int n, class T>
LOCKSTEP_INLINE void load_columns(const T* x, int64_t count, V<T> (&columns)[n]) {
  Compute<T> buffer[n * kLanes] = {}, lanes[n][kLanes];
  each_vector(
      x, count * n, [&](int64_t i, const V<T>& v) __attribute__((always_inline)) { store(buffer + i, v); });
  for (int c = 0; c < n; ++c) {
    for (int r = 0; r < kLanes; ++r) lanes[c][r] = buffer[r * n + c];
    columns[c] = load(lanes[c]);
  }
}

template <int n, class T>
LOCKSTEP_INLINE void store_columns(T* y, int64_t count, const V<T> (&columns)[n]) {
  Compute<T> buffer[n * kLanes], lanes[n][kLanes];
  for (int c = 0; c < n; ++c) {
    store(lanes[c], columns[c]);
    for (int r = 0; r < kLanes; ++r) buffer[r * n + c] = lanes[c][r];
  }
  for (int64_t i = 0; i < count * n; i += kLanes) store_at(y, i, count * n, load(buffer + i));
}

// Integers as wide as what they are compared beside.
template <class T>
using LabelOf = typename MaskOf<Compute<T>>::type;

template <class T>
LOCKSTEP_INLINE Vec<LabelOf<T>> labels_of(Labels labels, int64_t first, int64_t count) {
  LabelOf<T> lanes[kLanes] = {};
  for (int64_t r = 0; r < count; ++r) lanes[r] = static_cast<LabelOf<T>>(labels[first + r]);
  return load(lanes);
}

template <int n, class C>
LOCKSTEP_INLINE Vec<C> sum_of_columns(const Vec<C> (&e)[n]) {
  if constexpr (n == 2) return e[0] + e[1];
  if constexpr (n == 3) return (e[0] + e[2]) + e[1];
  if constexpr (n == 4) return (e[0] + e[2]) + (e[1] + e[3]);
}

template <int n, class T>
void narrow_cross_entropy(const void* in, Labels labels, void* loss, void* stats, int64_t begin,
                          int64_t end) {
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        V<T> x[n], e[n];
        load_columns<n>(static_cast<const T*>(in) + first * n, count, x);
        V<T> max = x[0];
        for (int c = 1; c < n; ++c) max = MaxOfNumbers::apply(max, x[c]);
        for (int c = 0; c < n; ++c) e[c] = exp_not_positive(x[c] - max);
        const V<T> sum = sum_of_columns(e);
        const auto label = labels_of<T>(labels, first, count);
        V<T> chosen = x[0];
        for (int c = 1; c < n; ++c) chosen = select(label == splat<LabelOf<T>>(c), x[c], chosen);
        store_columns<2>(static_cast<Compute<T>*>(stats) + 2 * first, count, {max, sum});
        store_at(static_cast<T*>(loss) + first, 0, count, log(sum) - (chosen - max));
      });
}

template <int n, class T>
void narrow_cross_entropy_grad(const void* in, Labels labels, const void* stats, const void* dloss, void* out,
                               int64_t begin, int64_t end) {
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        V<T> x[n], max_and_sum[2], d = splat(Compute<T>(0));
        load_columns<n>(static_cast<const T*>(in) + first * n, count, x);
        load_columns<2>(static_cast<const Compute<T>*>(stats) + 2 * first, count, max_and_sum);
        each_vector(
            static_cast<const T*>(dloss) + first,
            count, [&](int64_t, const V<T>& v) __attribute__((always_inline)) { d = v; });
        const V<T> scale = splat(Compute<T>(1)) / max_and_sum[1];
        const auto label = labels_of<T>(labels, first, count);
        for (int c = 0; c < n; ++c) {
          const V<T> p = exp_not_positive(x[c] - max_and_sum[0]) * scale;
          x[c] = select(label == splat<LabelOf<T>>(c), p - splat(Compute<T>(1)), p) * d;
        }
        store_columns<n>(static_cast<T*>(out) + first * n, count, x);
      });
}

// --- cross entropy -----------------------------------------------------------------------------------------

template <class T>
LOCKSTEP_INLINE Compute<T> widened(const T& x) {
  if constexpr (std::is_same_v<T, Compute<T>>)
    return x;
  else
    return load_some(&x, 1, 0.0f).part[0][0];
}

template <class T>
void cross_entropy(const void* in, Labels labels, void* loss, void* all_stats, int64_t n, int64_t begin,
                   int64_t end) {
  if (n == 2) return narrow_cross_entropy<2, T>(in, labels, loss, all_stats, begin, end);
  if (n == 3) return narrow_cross_entropy<3, T>(in, labels, loss, all_stats, begin, end);
  if (n == 4) return narrow_cross_entropy<4, T>(in, labels, loss, all_stats, begin, end);
  auto* stats = static_cast<Compute<T>*>(all_stats);
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        Compute<T> max[kLanes], sum[kLanes] = {}, chosen[kLanes] = {};
        const T* x = static_cast<const T*>(in) + first * n;
        row_stats(x, n, count, max, sum);
        for (int64_t r = 0; r < count; ++r) {
          chosen[r] = widened(x[r * n + labels[first + r]]) - max[r];
          stats[2 * (first + r)] = max[r];
          stats[2 * (first + r) + 1] = sum[r];
        }
        const V<T> result = log(load(sum)) - load(chosen);
        T* y = static_cast<T*>(loss) + first;
        if (count == kLanes)
          store(y, result);
        else
          store_some(y, count, result);
      });
}

template <class T>
void cross_entropy_grad(const void* in, Labels labels, const void* all_stats, const void* dloss, void* out,
                        int64_t n, int64_t begin, int64_t end) {
  if (n == 2) return narrow_cross_entropy_grad<2, T>(in, labels, all_stats, dloss, out, begin, end);
  if (n == 3) return narrow_cross_entropy_grad<3, T>(in, labels, all_stats, dloss, out, begin, end);
  if (n == 4) return narrow_cross_entropy_grad<4, T>(in, labels, all_stats, dloss, out, begin, end);
  const auto* stats = static_cast<const Compute<T>*>(all_stats);
  const auto lane = iota<LabelOf<T>>(0);
  each_group(
      begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        Compute<T> scale[kLanes] = {};
        for (int64_t r = 0; r < count; ++r) scale[r] = stats[2 * (first + r) + 1];
        store(scale, splat(Compute<T>(1)) / load(scale));
        for (int64_t r = 0; r < count; ++r) {
          const int64_t row = first + r;
          const T* x = static_cast<const T*>(in) + row * n;
          T* y = static_cast<T*>(out) + row * n;
          const Compute<T> max = stats[2 * row];
          const V<T> d = splat(widened(static_cast<const T*>(dloss)[row]));
          const int64_t label = labels[row];
          const auto gradient = [&](const V<T>& v, int64_t place) __attribute__((always_inline)) {
            const V<T> p = exp_not_positive(v - splat(max)) * splat(scale[r]);
            return select(lane == splat(static_cast<LabelOf<T>>(place)), p - splat(Compute<T>(1)), p) * d;
          };
          if (n < kLanes) {
            store_some(y, n, gradient(load_some(x, n, kMinusInfinity<T>), label));
            continue;
          }
          each_vector(
              x, n, [&](int64_t i, const V<T>& v) __attribute__((always_inline)) {
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

extern const cpu::SoftmaxTable kSoftmaxTable = {functions<float>(), functions<double>(),
                                                functions<BFloat16>(), functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
