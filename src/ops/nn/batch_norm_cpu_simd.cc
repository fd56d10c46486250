#include "ops/nn/batch_norm_cpu_simd.h"

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

// Columns of which the sums are kept in registers together, in vectors: several, because additions wait for
// each other.
constexpr int kGroup = 4;

template <class T>
LOCKSTEP_INLINE Vec<Compute<T>> load_at(const T* p, int64_t count) {
  return count >= kLanes ? load(p) : load_some(p, count, Compute<T>(0));
}
template <class T>
LOCKSTEP_INLINE void store_at(T* p, int64_t count, const Vec<Compute<T>>& v) {
  if (count >= kLanes)
    store(p, v);
  else
    store_some(p, count, v);
}

// f(vectors, first column) for groups of whole vectors, then for single vectors, of which the last may not be
// whole.
template <class F>
LOCKSTEP_INLINE void each_group(int64_t n, F f) {
  int64_t c = 0;
  for (; c + kGroup * kLanes <= n; c += kGroup * kLanes) f.template operator()<kGroup>(c);
  for (; c < n; c += kLanes) f.template operator()<1>(c);
}

template <class T>
void moments(const void* in, int64_t rows, int64_t n, void* out) {
  using C = Compute<T>;
  const auto* x = static_cast<const T*>(in);
  auto* sums = static_cast<C*>(out);
  const Vec<C> share = splat(C(1) / static_cast<C>(rows));
  each_group(
      n, [&]<int vectors>(int64_t c) __attribute__((always_inline)) {
        const int64_t count = n - c;
        Vec<C> mean[vectors], squares[vectors];
        LOCKSTEP_UNROLL
        for (int v = 0; v < vectors; ++v) mean[v] = squares[v] = splat(C(0));
        for (int64_t r = 0; r < rows; ++r) {
          LOCKSTEP_UNROLL
          for (int v = 0; v < vectors; ++v) mean[v] = mean[v] + load_at(x + r * n + c + v * kLanes, count);
        }
        LOCKSTEP_UNROLL
        for (int v = 0; v < vectors; ++v) mean[v] = mean[v] * share;
        for (int64_t r = 0; r < rows; ++r) {
          LOCKSTEP_UNROLL
          for (int v = 0; v < vectors; ++v) {
            const Vec<C> d = load_at(x + r * n + c + v * kLanes, count) - mean[v];
            squares[v] = squares[v] + d * d;
          }
        }
        LOCKSTEP_UNROLL
        for (int v = 0; v < vectors; ++v) {
          store_at(sums + c + v * kLanes, count, mean[v]);
          store_at(sums + n + c + v * kLanes, count, squares[v]);
        }
      });
}

template <class T>
void normalize(const void* in, const void* means, const void* scales, const void* shifts, void* out,
               int64_t rows, int64_t n) {
  using C = Compute<T>;
  const auto* x = static_cast<const T*>(in);
  const auto *mean = static_cast<const C*>(means), *scale = static_cast<const C*>(scales),
             *shift = static_cast<const C*>(shifts);
  auto* y = static_cast<T*>(out);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += kLanes) {
      const int64_t count = n - c;
      store_at(y + r * n + c, count,
               (load_at(x + r * n + c, count) - load_at(mean + c, count)) * load_at(scale + c, count) +
                   load_at(shift + c, count));
    }
}

template <class T>
void gradient_sums(const void* in, const void* gradients, const void* means, const void* rstds, int64_t rows,
                   int64_t n, void* out) {
  using C = Compute<T>;
  const auto *x = static_cast<const T*>(in), *dy = static_cast<const T*>(gradients);
  const auto *mean = static_cast<const C*>(means), *rstd = static_cast<const C*>(rstds);
  auto* sums = static_cast<C*>(out);
  each_group(
      n, [&]<int vectors>(int64_t c) __attribute__((always_inline)) {
        const int64_t count = n - c;
        Vec<C> along[vectors], sum[vectors], center[vectors];
        LOCKSTEP_UNROLL
        for (int v = 0; v < vectors; ++v)
          along[v] = sum[v] = splat(C(0)), center[v] = load_at(mean + c + v * kLanes, count);
        for (int64_t r = 0; r < rows; ++r) {
          LOCKSTEP_UNROLL
          for (int v = 0; v < vectors; ++v) {
            const int64_t at = r * n + c + v * kLanes;
            const Vec<C> d = load_at(dy + at, count);
            along[v] = along[v] + d * (load_at(x + at, count) - center[v]);
            sum[v] = sum[v] + d;
          }
        }
        LOCKSTEP_UNROLL
        for (int v = 0; v < vectors; ++v) {
          store_at(sums + c + v * kLanes, count, along[v] * load_at(rstd + c + v * kLanes, count));
          store_at(sums + n + c + v * kLanes, count, sum[v]);
        }
      });
}

template <class T>
void gradient(const void* in, const void* gradients, const void* means, const void* rstds, const void* scales,
              const void* offsets, const void* slopes, void* out, int64_t rows, int64_t n) {
  using C = Compute<T>;
  const auto *x = static_cast<const T*>(in), *dy = static_cast<const T*>(gradients);
  const auto *mean = static_cast<const C*>(means), *rstd = static_cast<const C*>(rstds),
             *scale = static_cast<const C*>(scales), *offset = static_cast<const C*>(offsets),
             *slope = static_cast<const C*>(slopes);
  auto* dx = static_cast<T*>(out);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += kLanes) {
      const int64_t count = n - c, at = r * n + c;
      const Vec<C> h = (load_at(x + at, count) - load_at(mean + c, count)) * load_at(rstd + c, count);
      store_at(dx + at, count,
               load_at(scale + c, count) *
                   ((load_at(dy + at, count) - load_at(offset + c, count)) - h * load_at(slope + c, count)));
    }
}

template <class T>
constexpr cpu::BatchNormFunctions functions() {
  return {moments<T>, normalize<T>, gradient_sums<T>, gradient<T>};
}

}  // namespace

extern const cpu::BatchNormTable kBatchNormTable = {functions<float>(), functions<double>(),
                                                    functions<BFloat16>(), functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
