#include "ops/image/resample_cpu_simd.h"

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::ResampleGeometry;
using cpu::ResampleTerm;

static_assert(cpu::kResampleLanes == kLanes);

// The weighted sum of `vectors` vectors from the rows of these terms.
template <int vectors, class T>
LOCKSTEP_INLINE void sum_terms(const ResampleTerm* term, const ResampleTerm* end, const T* from,
                               int64_t row_step, Vec<Compute<T>> (&sum)[vectors]) {
  using C = Compute<T>;
  // The first product starts the sum: 0 + -0 would lose the sign.
  if (term == end) {
    LOCKSTEP_UNROLL for (int v = 0; v < vectors; ++v) sum[v] = splat(C{0});
    return;
  }
  const auto product = [&](int v) {
    return splat(term->weight_as<C>()) * load(from + term->row * row_step + v * kLanes);
  };
  LOCKSTEP_UNROLL for (int v = 0; v < vectors; ++v) sum[v] = product(v);
  for (++term; term < end; ++term)
    LOCKSTEP_UNROLL for (int v = 0; v < vectors; ++v) sum[v] = sum[v] + product(v);
}

template <class T>
void rows(const ResampleGeometry& g, const void* from, void* to, int64_t begin, int64_t end) {
  constexpr int kVectors = 4;
  const int64_t rows = g.rows(), inner = g.inner;
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(from) + i / rows * g.from_rows * inner;
    T* y = static_cast<T*>(to) + i * inner;
    const ResampleTerm* first = g.terms.data() + g.first_term[static_cast<size_t>(i % rows)];
    const ResampleTerm* last = g.terms.data() + g.first_term[static_cast<size_t>(i % rows + 1)];
    const auto block = [&]<int vectors>(std::integral_constant<int, vectors>, int64_t j) {
      Vec<Compute<T>> sum[vectors];
      sum_terms<vectors>(first, last, x + j, inner, sum);
      LOCKSTEP_UNROLL for (int v = 0; v < vectors; ++v) store(y + j + v * kLanes, sum[v]);
    };
    int64_t j = 0;
    for (; j + kVectors * kLanes <= inner; j += kVectors * kLanes)
      block(std::integral_constant<int, kVectors>(), j);
    // The last vector overlaps the one before it: what is computed twice is the same.
    for (; j < inner; j += kLanes)
      block(std::integral_constant<int, 1>(), j + kLanes <= inner ? j : inner - kLanes);
  }
}

// --- short rows: lane l belongs to neighbour l along `outer` ---------------------------------------------------

template <class C>
using Quad [[gnu::vector_size(4 * sizeof(C))]] = C;

// Row i, column k becomes row k, column i.
template <class C>
LOCKSTEP_INLINE void transpose(Quad<C> (&q)[4]) {
  const Quad<C> a = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5),
                b = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5),
                c = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7),
                d = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
  q[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  q[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  q[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  q[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// 16 lines of 16 numbers: to[j * 16 + l] = from[l * 16 + j].
template <class C>
LOCKSTEP_INLINE void transpose_tile(const C* from, C* to) {
  for (int l = 0; l < kLanes; l += 4) LOCKSTEP_UNROLL for (int j = 0; j < kLanes; j += 4) {
      Quad<C> q[4];
      LOCKSTEP_UNROLL for (int i = 0; i < 4; ++i)
          __builtin_memcpy(&q[i], from + (l + i) * kLanes + j, sizeof q[i]);
      transpose<C>(q);
      LOCKSTEP_UNROLL for (int i = 0; i < 4; ++i)
          __builtin_memcpy(to + (j + i) * kLanes + l, &q[i], sizeof q[i]);
    }
}

template <class T>
void short_rows(const ResampleGeometry& g, const void* from, void* to, int64_t begin, int64_t end,
                void* scratch) {
  using C = Compute<T>;
  const int64_t from_line = g.from_rows * g.inner, to_line = g.rows() * g.inner;
  auto* const packed = static_cast<C*>(scratch);
  alignas(64) C tile[kLanes * kLanes] = {}, turned[kLanes * kLanes];
  for (int64_t first = begin; first < end; first += kLanes) {
    const int64_t lines = end - first < kLanes ? end - first : kLanes;
    const T* x = static_cast<const T*>(from) + first * from_line;
    T* y = static_cast<T*>(to) + first * to_line;
    for (int64_t j = 0; j < from_line; j += kLanes) {
      const int64_t some = from_line - j;
      for (int64_t l = 0; l < lines; ++l) {
        const T* at = x + l * from_line + j;
        store(tile + l * kLanes, some >= kLanes ? load(at) : load_some(at, some, C{0}));
      }
      transpose_tile(tile, some >= kLanes ? packed + j * kLanes : turned);
      if (some < kLanes)
        __builtin_memcpy(packed + j * kLanes, turned, static_cast<size_t>(some * kLanes) * sizeof(C));
    }
    int64_t row = 0, channel = 0;
    for (int64_t j = 0; j < to_line; j += kLanes) {
      const int64_t some = to_line - j < kLanes ? to_line - j : kLanes;
      for (int64_t k = 0; k < some; ++k) {
        const ResampleTerm* terms = g.terms.data();
        const auto at = static_cast<size_t>(row);
        Vec<C> sum[1];
        sum_terms<1>(terms + g.first_term[at], terms + g.first_term[at + 1], packed + channel * kLanes,
                     g.inner * kLanes, sum);
        store(tile + k * kLanes, sum[0]);
        if (++channel == g.inner) {
          channel = 0;
          ++row;
        }
      }
      transpose_tile(tile, turned);
      for (int64_t l = 0; l < lines; ++l) {
        T* at = y + l * to_line + j;
        if (some == kLanes)
          store(at, load(turned + l * kLanes));
        else
          store_some(at, some, load(turned + l * kLanes));
      }
    }
  }
}

template <class T>
constexpr cpu::ResampleFunctions functions() {
  return {.rows = rows<T>, .short_rows = short_rows<T>};
}

}  // namespace

extern const cpu::ResampleTable kResampleTable = {.float32 = functions<float>(),
                                                  .float64 = functions<double>(),
                                                  .bfloat16 = functions<BFloat16>(),
                                                  .float16 = functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
