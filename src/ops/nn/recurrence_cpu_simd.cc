#include "ops/nn/recurrence_cpu_simd.h"

#include <utility>

#include "backends/cpu/simd_activations.h"
#include "ops/nn/recurrence_cells.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::RecurrenceBackward;
using cpu::RecurrenceForward;

static_assert(cpu::kRecurrenceLanes == kLanes);

template <class C>
struct VectorMath {
  using Value = F32;
  LOCKSTEP_INLINE static F32 one() { return splat(1.0f); }
  LOCKSTEP_INLINE static F32 sigmoid(const F32& x) { return LOCKSTEP_SIMD::sigmoid(x); }
  LOCKSTEP_INLINE static F32 tanh(const F32& x) { return LOCKSTEP_SIMD::tanh(x); }
};
template <>
struct VectorMath<double> {
  using Value = F64;
  LOCKSTEP_INLINE static F64 one() { return splat(1.0); }
  LOCKSTEP_INLINE static F64 sigmoid(const F64& x) {
    F64 r;
    LOCKSTEP_EACH_PART(i, r)
    for (int l = 0; l < r.kWidth; ++l) r.part[i][l] = 1 / (1 + __builtin_exp(-x.part[i][l]));
    return r;
  }
  LOCKSTEP_INLINE static F64 tanh(const F64& x) {
    F64 r;
    LOCKSTEP_EACH_PART(i, r)
    for (int l = 0; l < r.kWidth; ++l) r.part[i][l] = __builtin_tanh(x.part[i][l]);
    return r;
  }
};

// --- products ----------------------------------------------------------------------------------------------

template <class T>
void pack(const void* matrix, bool transposed, int64_t depth, int64_t columns, int64_t groups, void* to,
          int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t width = columns / groups, panels = (width + kLanes - 1) / kLanes;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t first = panel % panels * kLanes, column = panel / panels * width + first;
    const int64_t count = width - first < kLanes ? width - first : kLanes;
    C* out = static_cast<C*>(to) + panel * depth * kLanes;
    for (int64_t k = 0; k < depth; ++k, out += kLanes) {
      if (transposed) {
        T line[kLanes] = {};
        for (int64_t l = 0; l < count; ++l) line[l] = static_cast<const T*>(matrix)[(column + l) * depth + k];
        store(out, load(line));
      } else {
        const T* from = static_cast<const T*>(matrix) + k * columns + column;
        store(out, count == kLanes ? load(from) : load_some(from, count, C(0)));
      }
    }
  }
}

// Rows that are computed together: as many as the registers hold sums of.
template <class C>
constexpr int kRows = kNativeBytes == 64    ? 8
                      : Vec<C>::kParts < 12 ? 12 / Vec<C>::kParts
                                            : 1;

// to[row, 16 of each panel] = a[row, depth] panel. `a` has rows of `a_row` elements, `to` of `to_row`.
template <int Rows, int Panels, class C>
void multiply(const C* a, int64_t a_row, const C* panels, int64_t panel_stride, int64_t depth, C* to,
              int64_t to_row, int64_t to_panel) {
  Vec<C> sums[Rows][Panels];
  LOCKSTEP_UNROLL
  for (int r = 0; r < Rows; ++r) {
    LOCKSTEP_UNROLL
    for (int p = 0; p < Panels; ++p) sums[r][p] = splat(C(0));
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<C> line[Panels];
    LOCKSTEP_UNROLL
    for (int p = 0; p < Panels; ++p) line[p] = load(panels + p * panel_stride + k * kLanes);
    LOCKSTEP_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const Vec<C> factor = splat(a[r * a_row + k]);
      LOCKSTEP_UNROLL
      for (int p = 0; p < Panels; ++p) sums[r][p] = mul_add(factor, line[p], sums[r][p]);
    }
  }
  LOCKSTEP_UNROLL
  for (int r = 0; r < Rows; ++r) {
    LOCKSTEP_UNROLL
    for (int p = 0; p < Panels; ++p) store(to + r * to_row + p * to_panel, sums[r][p]);
  }
}

// The same for up to kRows rows and 1 to 4 panels. One row alone takes the panels together: the sums of one
// would wait for each other.
template <class C>
__attribute__((noinline)) void multiply(int64_t rows, int panels, const C* a, int64_t a_row, const C* b,
                                        int64_t panel_stride, int64_t depth, C* to, int64_t to_row,
                                        int64_t to_panel) {
  if (rows == 1 && panels == 4) return multiply<1, 4>(a, a_row, b, panel_stride, depth, to, to_row, to_panel);
  if (rows == 1 && panels == 3) return multiply<1, 3>(a, a_row, b, panel_stride, depth, to, to_row, to_panel);
  for (int p = 0; p < panels; ++p) {
    const C* panel = b + p * panel_stride;
    C* out = to + p * to_panel;
    const auto run = [&]<int... R>(std::integer_sequence<int, R...>) {
      (void)((rows == R + 1 && (multiply<R + 1, 1>(a, a_row, panel, 0, depth, out, to_row, 0), true)) || ...);
    };
    run(std::make_integer_sequence<int, kRows<C>>());
  }
}

// --- steps -------------------------------------------------------------------------------------------------

// The first n of 16 elements, zeros behind them.
template <class T>
LOCKSTEP_INLINE Vec<Compute<T>> get(const T* p, int64_t n) {
  return n >= kLanes ? load(p) : load_some(p, n, Compute<T>(0));
}
template <class T>
LOCKSTEP_INLINE void put(T* p, int64_t n, const Vec<Compute<T>>& v) {
  if (n >= kLanes)
    store(p, v);
  else
    store_some(p, n, v);
}

// f(first unit) for each 16 units.
template <class F>
LOCKSTEP_INLINE void each_block(int64_t units, F&& f) {
  for (int64_t u = 0; u < units; u += kLanes) f(u);
}

template <template <class> class CellOf, class T>
void forward(const RecurrenceForward& r, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using Cell = CellOf<VectorMath<C>>;
  constexpr int kGates = Cell::kGates, kKept = Cell::kKept;
  const int64_t units = r.units, padded = r.padded;
  const auto typed = [](auto* p) { return static_cast<const T*>(p); };
  const auto result = [](void* p) { return static_cast<T*>(p); };
  C *now = static_cast<C*>(r.now), *next = static_cast<C*>(r.next), *cells = static_cast<C*>(r.cells);
  for (int64_t row = begin; row < end; ++row)
    each_block(
        units, [&](int64_t u) __attribute__((always_inline)) {
          store(now + row * padded + u, get(typed(r.h0) + row * units + u, units - u));
          if constexpr (Cell::kCells)
            store(cells + row * padded + u, get(typed(r.c0) + row * units + u, units - u));
        });

  C tile[kRows<C> * kGates * kLanes];
  for (int64_t step = 0; step < r.time; ++step) {
    const int64_t t = r.reverse ? r.time - 1 - step : step;
    each_block(
        units, [&](int64_t u) __attribute__((always_inline)) {
          const C* panels = static_cast<const C*>(r.panels) + u / kLanes * units * kLanes;
          for (int64_t first = begin; first < end; first += kRows<C>) {
            const int64_t rows = end - first < kRows<C> ? end - first : kRows<C>;
            multiply(rows, kGates, now + first * padded, padded, panels, padded * units, units, tile,
                     kGates * kLanes, kLanes);
            for (int64_t i = 0; i < rows; ++i) {
              const int64_t row = first + i, place = t * r.batch + row, n = units - u;
              Vec<C> x[kGates], p[kGates], kept[kKept + 1], h = load(now + row * padded + u), c = h;
              if constexpr (Cell::kCells) c = load(cells + row * padded + u);
              if (!r.mask || r.mask[place]) {
                LOCKSTEP_UNROLL
                for (int g = 0; g < kGates; ++g) {
                  x[g] = get(typed(r.x) + (place * kGates + g) * units + u, n);
                  p[g] = load(tile + (i * kGates + g) * kLanes);
                  if constexpr (Cell::kInputGradient) p[g] = p[g] + get(typed(r.bias) + g * units + u, n);
                }
                Cell::forward(x, p, h, c, kept);
              } else {
                LOCKSTEP_UNROLL
                for (int k = 0; k < kKept; ++k) kept[k] = splat(C(0));
              }
              store(next + row * padded + u, h);
              put(result(r.h) + place * units + u, n, h);
              if constexpr (Cell::kCells) {
                store(cells + row * padded + u, c);
                put(result(r.c) + place * units + u, n, c);
              }
              LOCKSTEP_UNROLL
              for (int k = 0; k < kKept; ++k)
                put(result(r.kept) + (place * kKept + k) * units + u, n, kept[k]);
            }
          }
        });
    C* swapped = now;
    now = next;
    next = swapped;
  }
  for (int64_t row = begin; row < end; ++row)
    each_block(
        units, [&](int64_t u) __attribute__((always_inline)) {
          put(result(r.last) + row * units + u, units - u, load(now + row * padded + u));
          if constexpr (Cell::kCells)
            put(result(r.last_cell) + row * units + u, units - u, load(cells + row * padded + u));
        });
}

template <template <class> class CellOf, class T>
void backward(const RecurrenceBackward& r, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using Cell = CellOf<VectorMath<C>>;
  constexpr int kGates = Cell::kGates, kKept = Cell::kKept;
  const int64_t units = r.units, padded = r.padded, depth = kGates * units;
  const auto typed = [](auto* p) { return static_cast<const T*>(p); };
  const auto result = [](void* p) { return static_cast<T*>(p); };
  C *dhs = static_cast<C*>(r.dh), *dcs = static_cast<C*>(r.dc), *products = static_cast<C*>(r.products);
  const auto get_or_zero = [&](const void* p, int64_t at, int64_t n) __attribute__((always_inline)) {
    return p ? get(typed(p) + at, n) : splat(C(0));
  };
  for (int64_t row = begin; row < end; ++row)
    each_block(
        units, [&](int64_t u) __attribute__((always_inline)) {
          store(dhs + row * padded + u, get_or_zero(r.dlast, row * units + u, units - u));
          if constexpr (Cell::kCells)
            store(dcs + row * padded + u, get_or_zero(r.dlast_cell, row * units + u, units - u));
        });

  constexpr int kPanels = 4;  // of a row that is alone
  C tile[(kRows<C> > kPanels ? kRows<C> : kPanels) * kLanes];
  for (int64_t step = r.time - 1; step >= 0; --step) {
    const int64_t t = r.reverse ? r.time - 1 - step : step;
    const T* before = step > 0 ? typed(r.s) + (r.reverse ? t + 1 : t - 1) * r.batch * units : typed(r.s0);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t place = t * r.batch + row;
      const bool counts = !r.mask || r.mask[place];
      each_block(
          units, [&](int64_t u) __attribute__((always_inline)) {
            const int64_t n = units - u, at = place * units + u;
            Vec<C> dh = load(dhs + row * padded + u) + get_or_zero(r.dsteps, at, n), dc = dh;
            Vec<C> dp[kGates], dx[kGates], kept[kKept + 1], dkept[kKept + 1];
            if constexpr (Cell::kCells) dc = load(dcs + row * padded + u) + get_or_zero(r.dcells, at, n);
            if (counts) {
              LOCKSTEP_UNROLL
              for (int k = 0; k < kKept; ++k) {
                kept[k] = get(typed(r.kept) + (place * kKept + k) * units + u, n);
                dkept[k] = get_or_zero(r.dkept, (place * kKept + k) * units + u, n);
              }
              Cell::backward(kept, dkept, get(typed(r.s) + at, n), get(before + row * units + u, n), dh, dc,
                             dp, dx);
            } else {
              LOCKSTEP_UNROLL
              for (int g = 0; g < kGates; ++g) dp[g] = dx[g] = splat(C(0));
            }
            store(dhs + row * padded + u, dh);
            if constexpr (Cell::kCells) store(dcs + row * padded + u, dc);
            LOCKSTEP_UNROLL
            for (int g = 0; g < kGates; ++g) {
              put(result(r.dp) + (place * kGates + g) * units + u, n, dp[g]);
              put(products + row * depth + g * units + u, n, dp[g]);
              if constexpr (Cell::kInputGradient)
                put(result(r.dx) + (place * kGates + g) * units + u, n, dx[g]);
            }
          });
    }
    const auto add = [&](int64_t row, int64_t u, const C* product) __attribute__((always_inline)) {
      C* dh = dhs + row * padded + u;
      store(dh, load(dh) + load(product));
    };
    const int64_t blocks = padded / kLanes;
    for (int64_t block = 0, panels; block < blocks; block += panels) {
      panels = end - begin == 1 && block + kPanels <= blocks ? kPanels : 1;
      const C* b = static_cast<const C*>(r.panels) + block * depth * kLanes;
      for (int64_t first = begin; first < end; first += kRows<C>) {
        const int64_t rows = end - first < kRows<C> ? end - first : kRows<C>;
        multiply(rows, static_cast<int>(panels), products + first * depth, depth, b, depth * kLanes, depth,
                 tile, kLanes, kLanes);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t p = 0; p < panels; ++p) add(first + i, (block + p) * kLanes, tile + (i + p) * kLanes);
      }
    }
  }
  for (int64_t row = begin; row < end; ++row)
    each_block(
        units, [&](int64_t u) __attribute__((always_inline)) {
          put(result(r.dh0) + row * units + u, units - u, load(dhs + row * padded + u));
          if constexpr (Cell::kCells)
            put(result(r.dc0) + row * units + u, units - u, load(dcs + row * padded + u));
        });
}

template <class T>
constexpr cpu::RecurrenceCells cells() {
  return {.simple = {forward<SimpleCell, T>, backward<SimpleCell, T>},
          .lstm = {forward<LstmCell, T>, backward<LstmCell, T>},
          .gru = {forward<GruCell, T>, backward<GruCell, T>},
          .pack = pack<T>};
}

}  // namespace

extern const cpu::RecurrenceTable kRecurrenceTable = {cells<float>(), cells<double>(), cells<BFloat16>(),
                                                      cells<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
