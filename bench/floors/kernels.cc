#include "bench/floors/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#if !defined(__clang__)
// g++'s own intrinsics start from a deliberately undefined register.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#endif

namespace lockstep::bench::kernels {
namespace {

constexpr float kBeta1 = 0.9f;
constexpr float kBeta2 = 0.999f;
constexpr float kEpsilon = 1e-7f;

double softmax_plain(const float* logits, const int32_t* labels, int64_t rows, int64_t classes, float scale,
                     float* gradient, float* bias_gradient) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = logits + r * classes;
    float* out = gradient + r * classes;
    const float peak = *std::max_element(in, in + classes);
    float sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += out[c] = std::exp(in[c] - peak);
    loss += std::log(sum) + peak - in[labels[r]];
    for (int64_t c = 0; c < classes; ++c) {
      out[c] = (out[c] / sum - (c == labels[r] ? 1.0f : 0.0f)) * scale;
      bias_gradient[c] += out[c];
    }
  }
  return loss;
}

void relu_plain(const float* output, float* gradient, int64_t rows, int64_t columns, int64_t stride,
                float* bias_gradient) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float& g = gradient[r * stride + c];
      g = output[r * stride + c] > 0 ? g : 0.0f;
      bias_gradient[c] += g;
    }
}

void adam_plain(float* w, float* m, float* v, const float* g, int64_t n, float step_size) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    m[i] += (g[i] - m[i]) * (1 - kBeta1);
    v[i] += (g[i] * g[i] - v[i]) * (1 - kBeta2);
    w[i] -= step_size * m[i] / (std::sqrt(v[i]) + kEpsilon);
  }
}

#if defined(__x86_64__)

// exp(x) for x <= 0, relative error below 2e-7: 2^n times a polynomial on |r| <= ln(2)/2.
LOCKSTEP_AVX512 inline __m512 exp_avx512(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
  __m512 p = _mm512_set1_ps(1.0f / 720);
  for (const float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, n);
}

// Sixteen rows at a time, one row per lane: no reduction across lanes is needed.
LOCKSTEP_AVX512 double softmax_avx512(const float* logits, const int32_t* labels, int64_t rows,
                                      int64_t classes, float scale, float* gradient, float* bias_gradient) {
  constexpr int kMaxClasses = 16;
  const __m512i offsets =
      _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(static_cast<int>(classes)));
  __m512 bias[kMaxClasses];
  for (__m512& b : bias) b = _mm512_setzero_ps();
  double loss = 0;
  int64_t r = 0;
  for (; r + 16 <= rows; r += 16) {
    const float* in = logits + r * classes;
    float* out = gradient + r * classes;
    __m512 values[kMaxClasses];
    __m512 peak = _mm512_set1_ps(-INFINITY);
    for (int c = 0; c < classes; ++c) {
      values[c] = _mm512_i32gather_ps(offsets, in + c, 4);
      peak = _mm512_max_ps(peak, values[c]);
    }
    const __m512i label = _mm512_loadu_si512(labels + r);
    const __m512 chosen = _mm512_i32gather_ps(_mm512_add_epi32(offsets, label), in, 4);
    __m512 sum = _mm512_setzero_ps();
    for (int c = 0; c < classes; ++c) {
      values[c] = exp_avx512(_mm512_sub_ps(values[c], peak));
      sum = _mm512_add_ps(sum, values[c]);
    }
    const __m512 factor = _mm512_div_ps(_mm512_set1_ps(scale), sum);
    for (int c = 0; c < classes; ++c) {
      const __mmask16 hit = _mm512_cmpeq_epi32_mask(label, _mm512_set1_epi32(c));
      __m512 g = _mm512_mul_ps(values[c], factor);
      g = _mm512_mask_sub_ps(g, hit, g, _mm512_set1_ps(scale));
      bias[c] = _mm512_add_ps(bias[c], g);
      _mm512_i32scatter_ps(out + c, offsets, g, 4);
    }
    alignas(64) float sums[16];
    _mm512_store_ps(sums, sum);
    double product = 1;  // of at most 16 factors, each at most 16: one logarithm for all rows
    for (const float s : sums) product *= s;
    loss += std::log(product) + _mm512_reduce_add_ps(_mm512_sub_ps(peak, chosen));
  }
  for (int c = 0; c < classes; ++c) bias_gradient[c] += _mm512_reduce_add_ps(bias[c]);
  return loss + softmax_plain(logits + r * classes, labels + r, rows - r, classes, scale,
                              gradient + r * classes, bias_gradient);
}

// A block of 16 * kVectors columns, its sums in registers, so that memory is walked in order.
template <int kVectors>
LOCKSTEP_AVX512 void relu_block(const float* output, float* gradient, int64_t rows, int64_t stride,
                                float* bias_gradient, __mmask16 lanes) {
  __m512 sums[kVectors];
  for (int k = 0; k < kVectors; ++k) sums[k] = _mm512_maskz_loadu_ps(lanes, bias_gradient + 16 * k);
  for (int64_t r = 0; r < rows; ++r) {
    for (int k = 0; k < kVectors; ++k) {
      float* at = gradient + r * stride + 16 * k;
      const __m512 out = _mm512_maskz_loadu_ps(lanes, output + r * stride + 16 * k);
      const __mmask16 positive = _mm512_cmp_ps_mask(out, _mm512_setzero_ps(), _CMP_GT_OQ);
      const __m512 g = _mm512_maskz_loadu_ps(lanes & positive, at);
      sums[k] = _mm512_add_ps(sums[k], g);
      _mm512_mask_storeu_ps(at, lanes, g);
    }
  }
  for (int k = 0; k < kVectors; ++k) _mm512_mask_storeu_ps(bias_gradient + 16 * k, lanes, sums[k]);
}

void relu_avx512(const float* output, float* gradient, int64_t rows, int64_t columns, int64_t stride,
                 float* bias_gradient) {
  int64_t c = 0;
  for (; c + 128 <= columns; c += 128)
    relu_block<8>(output + c, gradient + c, rows, stride, bias_gradient + c, 0xffff);
  for (; c + 64 <= columns; c += 64)
    relu_block<4>(output + c, gradient + c, rows, stride, bias_gradient + c, 0xffff);
  for (; c < columns; c += 16) {
    const auto lanes = static_cast<__mmask16>(columns - c >= 16 ? 0xffff : (1 << (columns - c)) - 1);
    relu_block<1>(output + c, gradient + c, rows, stride, bias_gradient + c, lanes);
  }
}

// 1 / (sqrt(v) + epsilon) from the 14-bit estimates and a Newton step each, exact to about an ulp or
// two: the divider and square root units take twice as long as everything else in this loop.
LOCKSTEP_AVX512 inline __m512 adam_update(__m512 m, __m512 v, __m512 step_size) {
  const __m512 estimate = _mm512_rsqrt14_ps(_mm512_max_ps(v, _mm512_set1_ps(1e-37f)));
  __m512 root = _mm512_mul_ps(v, estimate);
  const __m512 half = _mm512_mul_ps(estimate, _mm512_set1_ps(0.5f));
  root = _mm512_fmadd_ps(_mm512_fnmadd_ps(root, root, v), half, root);
  const __m512 denominator = _mm512_add_ps(root, _mm512_set1_ps(kEpsilon));
  const __m512 inverse = _mm512_rcp14_ps(denominator);
  const __m512 numerator = _mm512_mul_ps(step_size, m);
  const __m512 quotient = _mm512_mul_ps(numerator, inverse);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(quotient, denominator, numerator), inverse, quotient);
}

LOCKSTEP_AVX512 void adam_avx512(float* w, float* m, float* v, const float* g, int64_t n, float step_size) {
  const __m512 take1 = _mm512_set1_ps(1 - kBeta1);
  const __m512 take2 = _mm512_set1_ps(1 - kBeta2);
  const __m512 step = _mm512_set1_ps(step_size);
  for (int64_t i = 0; i < n; i += 16) {
    const auto lanes = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1 << (n - i)) - 1);
    const __m512 gi = _mm512_maskz_loadu_ps(lanes, g + i);
    __m512 mi = _mm512_maskz_loadu_ps(lanes, m + i);
    __m512 vi = _mm512_maskz_loadu_ps(lanes, v + i);
    const __m512 wi = _mm512_maskz_loadu_ps(lanes, w + i);
    mi = _mm512_fmadd_ps(_mm512_sub_ps(gi, mi), take1, mi);
    vi = _mm512_fmadd_ps(_mm512_fmsub_ps(gi, gi, vi), take2, vi);
    _mm512_mask_storeu_ps(m + i, lanes, mi);
    _mm512_mask_storeu_ps(v + i, lanes, vi);
    _mm512_mask_storeu_ps(w + i, lanes, _mm512_sub_ps(wi, adam_update(mi, vi, step)));
  }
}

LOCKSTEP_AVX512 void copy_streaming(float* to, const float* from, int64_t n) {
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(to + i) % 64 != 0; ++i) to[i] = from[i];
  for (; i + 64 <= n; i += 64) {
    const __m512 a = _mm512_loadu_ps(from + i);
    const __m512 b = _mm512_loadu_ps(from + i + 16);
    const __m512 c = _mm512_loadu_ps(from + i + 32);
    const __m512 d = _mm512_loadu_ps(from + i + 48);
    _mm512_stream_ps(to + i, a);
    _mm512_stream_ps(to + i + 16, b);
    _mm512_stream_ps(to + i + 32, c);
    _mm512_stream_ps(to + i + 48, d);
  }
  for (; i < n; ++i) to[i] = from[i];
  _mm_sfence();
}

#endif

}  // namespace

bool has_avx512() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return has;
#else
  return false;
#endif
}

double softmax_cross_entropy(const float* logits, const int32_t* labels, int64_t rows, int64_t classes,
                             float scale, float* gradient, float* bias_gradient) {
#if defined(__x86_64__)
  if (has_avx512() && classes <= 16)
    return softmax_avx512(logits, labels, rows, classes, scale, gradient, bias_gradient);
#endif
  return softmax_plain(logits, labels, rows, classes, scale, gradient, bias_gradient);
}

void relu_gradient(const float* output, float* gradient, int64_t rows, int64_t columns, int64_t stride,
                   float* bias_gradient) {
#if defined(__x86_64__)
  if (has_avx512()) return relu_avx512(output, gradient, rows, columns, stride, bias_gradient);
#endif
  relu_plain(output, gradient, rows, columns, stride, bias_gradient);
}

void adam(float* w, float* m, float* v, const float* g, int64_t n, float step_size) {
#if defined(__x86_64__)
  if (has_avx512()) return adam_avx512(w, m, v, g, n, step_size);
#endif
  adam_plain(w, m, v, g, n, step_size);
}

void copy(float* to, const float* from, int64_t n, bool streaming) {
#if defined(__x86_64__)
  if (streaming && has_avx512()) return copy_streaming(to, from, n);
#endif
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace lockstep::bench::kernels
