#include "ops/matmul/matvec_cpu_simd.h"

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::MatrixVector;

// 16 elements from p on, or the `count` that are left.
template <class T>
LOCKSTEP_INLINE Vec<Compute<T>> load_block(const T* p, int64_t count) {
  return count >= kLanes ? load(p) : load_some(p, count, Compute<T>(0));
}

template <class T>
LOCKSTEP_INLINE Vec<Compute<T>> load_strided(const T* p, int64_t stride, int64_t count) {
  if (stride == 1) return load_block(p, count);
  T dense[kLanes] = {};
  for (int64_t i = 0; i < count && i < kLanes; ++i) dense[i] = p[i * stride];
  return load(dense);
}

// x, followed by zeros up to a whole vector.
template <class T>
const Compute<T>* dense_x(const MatrixVector& m) {
  auto* dense = static_cast<Compute<T>*>(m.scratch);
  const T* x = static_cast<const T*>(m.x);
  for (int64_t k = 0; k < m.depth; k += kLanes)
    store(dense + k, load_strided(x + k * m.x_stride, m.x_stride, m.depth - k));
  return dense;
}

// Adds the bias to 16 rows, or as many as are left, and stores them.
template <class T>
LOCKSTEP_INLINE void finish(const MatrixVector& m, int64_t row, Vec<Compute<T>> sums) {
  const int64_t count = m.rows - row;
  if (m.bias)
    sums = sums + load_strided(static_cast<const T*>(m.bias) + row * m.bias_stride, m.bias_stride, count);
  T* y = static_cast<T*>(m.y) + row;
  if (count >= kLanes)
    store(y, sums);
  else
    store_some(y, count, sums);
}

template <int Rows, class T>
LOCKSTEP_INLINE void dots(const T* matrix, int64_t stride, const Compute<T>* x, int64_t depth,
                          Compute<T>* y) {
  using C = Compute<T>;
  Vec<C> sum[Rows];
  LOCKSTEP_UNROLL for (int r = 0; r < Rows; ++r) sum[r] = splat(C(0));
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    const Vec<C> v = load(x + k);
    LOCKSTEP_UNROLL for (int r = 0; r < Rows; ++r) sum[r] = mul_add(load(matrix + r * stride + k), v, sum[r]);
  }
  if (k < depth)
    LOCKSTEP_UNROLL for (int r = 0; r < Rows; ++r) sum[r] =
        mul_add(load_some(matrix + r * stride + k, depth - k, C(0)), load(x + k), sum[r]);
  LOCKSTEP_UNROLL for (int r = 0; r < Rows; ++r) y[r] = fold<Sum>(sum[r]);
}

template <class T>
void dense_rows(const MatrixVector& m) {
  using C = Compute<T>;
  constexpr int kRows = 4;
  const T* matrix = static_cast<const T*>(m.matrix);
  const C* x = dense_x<T>(m);
  for (int64_t row = 0; row < m.rows; row += kLanes) {
    const int64_t count = m.rows - row < kLanes ? m.rows - row : kLanes;
    C y[kLanes] = {};
    int64_t r = 0;
    for (; r + kRows <= count; r += kRows)
      dots<kRows>(matrix + (row + r) * m.stride, m.stride, x, m.depth, y + r);
    for (; r < count; ++r) dots<1>(matrix + (row + r) * m.stride, m.stride, x, m.depth, y + r);
    finish<T>(m, row, load(y));
  }
}

template <class T>
void dense_columns(const MatrixVector& m) {
  using C = Compute<T>;
  const C* x = dense_x<T>(m);
  const auto block = [&]<int vectors>(std::integral_constant<int, vectors>, int64_t row) {
    const T* matrix = static_cast<const T*>(m.matrix) + row;
    Vec<C> sum[vectors];
    LOCKSTEP_UNROLL for (int v = 0; v < vectors; ++v) sum[v] = splat(C(0));
    for (int64_t k = 0; k < m.depth; ++k) {
      const Vec<C> factor = splat(x[k]);
      LOCKSTEP_UNROLL for (int v = 0; v < vectors; ++v) sum[v] =
          mul_add(load(matrix + k * m.stride + v * kLanes), factor, sum[v]);
    }
    LOCKSTEP_UNROLL for (int v = 0; v < vectors; ++v) finish<T>(m, row + v * kLanes, sum[v]);
  };
  int64_t row = 0;
  const auto blocks = [&]<int vectors>(std::integral_constant<int, vectors> size) {
    for (; row + vectors * kLanes <= m.rows; row += vectors * kLanes) block(size, row);
  };
  // As many sums at a time as there are registers: one alone would wait for its last addition.
  if constexpr (sizeof(C) == sizeof(float)) blocks(std::integral_constant<int, 8>());
  blocks(std::integral_constant<int, 4>());
  blocks(std::integral_constant<int, 2>());
  blocks(std::integral_constant<int, 1>());
  // The last vector overlaps the one before it: what is computed twice is the same.
  if (row < m.rows) block(std::integral_constant<int, 1>(), m.rows - kLanes);
}

template <class T>
constexpr cpu::MatrixVectorFunctions functions() {
  return {.dense_rows = dense_rows<T>, .dense_columns = dense_columns<T>};
}

}  // namespace

extern const cpu::MatrixVectorTable kMatrixVectorTable = {.float32 = functions<float>(),
                                                          .float64 = functions<double>(),
                                                          .bfloat16 = functions<BFloat16>(),
                                                          .float16 = functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
