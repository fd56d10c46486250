#include "backends/cpu/simple_matmul_simd.h"

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::kTileColumns;
using cpu::kTileDepth;
using cpu::kTileRows;

// Rows of C that are computed together: as many as the registers hold.
template <class C>
constexpr int kPanelRows = kNativeBytes == 64    ? 8
                           : Vec<C>::kParts < 12 ? 12 / Vec<C>::kParts
                                                 : 1;
static_assert(kTileRows % kPanelRows<float> == 0 && kTileRows % kPanelRows<double> == 0);
static_assert(kTileColumns % kLanes == 0);

template <class T>
LOCKSTEP_INLINE Compute<T> value(T x) {
  return x;
}
LOCKSTEP_INLINE float value(BFloat16 x) { return load_some(&x, 1, 0.0f).part[0][0]; }
LOCKSTEP_INLINE float value(Float16 x) { return load_some(&x, 1, 0.0f).part[0][0]; }

// Panels of `Width` rows of x[rows, depth], each stored depth by depth; missing rows are 0.
template <int Width, class T>
void pack(Compute<T>* to, const T* x, int64_t row_stride, int64_t depth_stride, int64_t rows, int64_t depth) {
  for (int64_t first = 0; first < rows; first += Width, to += Width * depth) {
    const int64_t count = rows - first < Width ? rows - first : Width;
    const T* from = x + first * row_stride;
    // The conversion of 16-bit floats is dear one by one.
    constexpr bool kConverted = sizeof(T) < sizeof(Compute<T>);
    if (row_stride == 1 && (Width == kLanes || kConverted)) {
      for (int64_t k = 0; k < depth; ++k) {
        const T* p = from + k * depth_stride;
        const Vec<Compute<T>> v = count == kLanes ? load(p) : load_some(p, count, Compute<T>(0));
        if constexpr (Width == kLanes) {
          store(to + k * Width, v);
        } else {
          Compute<T> lanes[kLanes];
          store(lanes, v);
          for (int64_t r = 0; r < Width; ++r) to[k * Width + r] = lanes[r];
        }
      }
      continue;
    }
    for (int64_t r = 0; r < Width; ++r) {
      int64_t k = 0;
      if (r < count && depth_stride == 1)
        for (const int64_t end = kConverted ? depth : depth / kLanes * kLanes; k < end; k += kLanes) {
          const int64_t some = depth - k < kLanes ? depth - k : kLanes;
          const T* p = from + r * row_stride + k;
          Compute<T> lanes[kLanes];
          store(lanes, some == kLanes ? load(p) : load_some(p, some, Compute<T>(0)));
          for (int64_t l = 0; l < some; ++l) to[(k + l) * Width + r] = lanes[l];
        }
      for (; k < depth; ++k)
        to[k * Width + r] = r < count ? value(from[r * row_stride + k * depth_stride]) : Compute<T>(0);
    }
  }
}

// c[Rows, 16] += a panel * b panel
template <int Rows, class C>
LOCKSTEP_INLINE void multiply_panels(C* c, const C* a, const C* b, int64_t depth) {
  Vec<C> acc[Rows];
  LOCKSTEP_UNROLL
  for (int r = 0; r < Rows; ++r) acc[r] = load(c + r * kTileColumns);
  for (int64_t k = 0; k < depth; ++k) {
    const Vec<C> row = load(b + k * kLanes);
    LOCKSTEP_UNROLL
    for (int r = 0; r < Rows; ++r) acc[r] = mul_add(splat(a[k * Rows + r]), row, acc[r]);
  }
  LOCKSTEP_UNROLL
  for (int r = 0; r < Rows; ++r) store(c + r * kTileColumns, acc[r]);
}

template <class T>
void* tile(const cpu::MatmulTile& t) {
  using C = Compute<T>;
  constexpr int kRows = kPanelRows<C>;
  C* a = static_cast<C*>(t.workspace);
  C* b = a + kTileRows * kTileDepth;
  C* c = b + kTileDepth * kTileColumns;
  const int64_t rows = (t.rows + kRows - 1) / kRows * kRows;
  if (!t.add)
    for (int64_t i = 0; i < rows * kTileColumns; ++i) c[i] = C(0);
  for (int64_t first = 0; first < t.depth; first += kTileDepth) {
    const int64_t depth = t.depth - first < kTileDepth ? t.depth - first : kTileDepth;
    pack<kRows>(a, static_cast<const T*>(t.a) + first * t.a_column, t.a_row, t.a_column, t.rows, depth);
    pack<kLanes>(b, static_cast<const T*>(t.b) + first * t.b_row, t.b_column, t.b_row, t.columns, depth);
    for (int64_t j = 0; j < t.columns; j += kLanes)
      for (int64_t i = 0; i < t.rows; i += kRows)
        multiply_panels<kRows>(c + i * kTileColumns + j, a + i * depth, b + j * depth, depth);
  }
  return c;
}

}  // namespace

// Integers wrap around: unsigned ones have the same bits.
extern const cpu::SimpleMatmulTable kSimpleMatmulTable = {
    {tile<float>, tile<double>, tile<BFloat16>, tile<Float16>, tile<uint32_t>, tile<uint64_t>}};

}  // namespace lockstep::LOCKSTEP_SIMD
