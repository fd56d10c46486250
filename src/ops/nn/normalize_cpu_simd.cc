#include "ops/nn/normalize_cpu_simd.h"

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

// f(position, elements in this vector) for each 16 elements of a row.
template <class F>
LOCKSTEP_INLINE void each_vector(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, n - i);
}

template <class T>
LOCKSTEP_INLINE F32 load_at(const T* p, int64_t count) {
  return count == kLanes ? load(p) : load_some(p, count, 0.0f);
}

template <class T>
LOCKSTEP_INLINE void store_at(T* p, int64_t count, const F32& v) {
  if (count == kLanes)
    store(p, v);
  else
    store_some(p, count, v);
}

template <class T, bool centered>
void forward(const void* in, const void* scale, const void* shift, float epsilon, void* out, float* means,
             float* rstds, int64_t n, int64_t begin, int64_t end) {
  const auto* gamma = static_cast<const T*>(scale);
  const auto* beta = static_cast<const T*>(shift);
  const float share = 1.0f / static_cast<float>(n);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(in) + row * n;
    T* y = static_cast<T*>(out) + row * n;
    float mean = 0;
    if constexpr (centered) {
      F32 sum = splat(0.0f);
      each_vector(
          n, [&](int64_t i, int64_t count)
                 __attribute__((always_inline)) { sum = sum + load_at(x + i, count); });
      means[row] = mean = fold<Sum>(sum) * share;
    }
    F32 squares = splat(0.0f);
    each_vector(
        n, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
          // Lanes behind the row are the mean: they add nothing.
          const F32 deviation = (count == kLanes ? load(x + i) : load_some(x + i, count, mean)) - splat(mean);
          squares = squares + deviation * deviation;
        });
    const float rstd = 1.0f / __builtin_sqrtf(fold<Sum>(squares) * share + epsilon);
    rstds[row] = rstd;
    each_vector(
        n, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
          const F32 h = (load_at(x + i, count) - splat(mean)) * splat(rstd);
          const F32 scaled = h * load_at(gamma + i, count);
          if constexpr (centered)
            store_at(y + i, count, scaled + load_at(beta + i, count));
          else
            store_at(y + i, count, scaled);
        });
  }
}

// dx = rstd (a - mean(a) - h mean(h a)) with a = dy gamma and h the normalised x; without mean(a) where x was
// not centered.
template <class T, bool centered>
void backward(const void* in, const void* scale, const float* means, const float* rstds, const void* gradient,
              void* out, float* sums, int64_t n, int64_t begin, int64_t end) {
  const auto* gamma = static_cast<const T*>(scale);
  const float share = 1.0f / static_cast<float>(n);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(in) + row * n;
    const T* dy = static_cast<const T*>(gradient) + row * n;
    T* dx = static_cast<T*>(out) + row * n;
    const F32 mean = splat(centered ? means[row] : 0.0f);
    const F32 rstd = splat(rstds[row]);
    const bool first = row == begin;
    F32 sum_a = splat(0.0f), sum_ha = splat(0.0f);
    each_vector(
        n, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
          const F32 d = load_at(dy + i, count);
          const F32 h = (load_at(x + i, count) - mean) * rstd;
          const F32 dh = d * h;
          const F32 g = load_at(gamma + i, count);
          sum_a = sum_a + d * g;
          sum_ha = sum_ha + dh * g;
          store_at(sums + i, count, first ? dh : load_at(sums + i, count) + dh);
          if constexpr (centered) store_at(sums + n + i, count, first ? d : load_at(sums + n + i, count) + d);
        });
    const F32 mean_a = splat(centered ? fold<Sum>(sum_a) * share : 0.0f);
    const F32 mean_ha = splat(fold<Sum>(sum_ha) * share);
    each_vector(
        n, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
          const F32 h = (load_at(x + i, count) - mean) * rstd;
          const F32 a = load_at(dy + i, count) * load_at(gamma + i, count);
          store_at(dx + i, count, rstd * ((a - mean_a) - h * mean_ha));
        });
  }
}

template <class T>
constexpr cpu::NormFunctions functions() {
  return {.layer = {forward<T, true>, backward<T, true>}, .rms = {forward<T, false>, backward<T, false>}};
}

}  // namespace

extern const cpu::LayerNormTable kLayerNormTable = {functions<float>(), functions<BFloat16>(),
                                                    functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
