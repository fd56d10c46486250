#include "ops/nn/pool_cpu_simd.h"

#include <type_traits>

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::PoolAxis;
using cpu::PoolGeometry;
using cpu::PoolLoops;
using cpu::PoolMemory;
using cpu::WindowsOver;

template <int n>
using Constant = std::integral_constant<int, n>;

// --- channels ----------------------------------------------------------------------------------------------
// A block is 16 channels, or all of them where there are fewer.

// f(first channel) for every block; the last one overlaps the one before it where the channels are no
// multiple of 16 (what is computed twice is the same).
template <bool few, class F>
LOCKSTEP_INLINE void each_block(int64_t channels, F f) {
  if constexpr (few) {
    f(int64_t{0});
  } else {
    for (int64_t c = 0; c < channels; c += kLanes) f(c + kLanes <= channels ? c : channels - kLanes);
  }
}

template <bool few, class T>
LOCKSTEP_INLINE Vec<Compute<T>> load_block(const T* p, int64_t channels) {
  if constexpr (few)
    return load_some(p, channels, Compute<T>{0});
  else
    return load(p);
}

template <bool few, class T>
LOCKSTEP_INLINE void store_block(T* p, int64_t channels, const Vec<Compute<T>>& v) {
  if constexpr (few)
    store_some(p, channels, v);
  else
    store(p, v);
}

// Compilers narrow to a quarter well with AVX-512, in two steps well without.
template <class P, class I>
LOCKSTEP_INLINE void store_positions(P* p, const Vec<I>& v) {
  if constexpr (sizeof(P) < sizeof(int32_t) && kNativeBytes < 64) {
    using Halves [[gnu::vector_size(Vec<I>::kWidth * sizeof(uint16_t))]] = uint16_t;
    using Part [[gnu::vector_size(Vec<I>::kWidth * sizeof(P))]] = P;
    for (int i = 0; i < v.kParts; ++i) {
      const Part part = __builtin_convertvector(__builtin_convertvector(v.part[i], Halves), Part);
      __builtin_memcpy(p + i * v.kWidth, &part, sizeof part);
    }
  } else {
    narrow(p, v);
  }
}

// Some bytes, one by one or, where the instructions are there, at once.
template <class P>
LOCKSTEP_INLINE void copy_some(P* to, const P* from, int64_t n) {
#if defined(__AVX512BW__)
  if constexpr (sizeof(P) == 1) {
    const auto some = static_cast<__mmask16>((1u << n) - 1);
    return _mm_mask_storeu_epi8(to, some, _mm_maskz_loadu_epi8(some, from));
  }
#endif
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

template <bool few, class P, class I>
LOCKSTEP_INLINE void store_positions(P* p, int64_t channels, const Vec<I>& v) {
  if constexpr (few) {
    P buffer[kLanes];
    store_positions(buffer, v);
    copy_some(p, buffer, channels);
  } else {
    store_positions(p, v);
  }
}

// Positions as they lie in memory, beside vectors of C.
template <class C, class P>
struct Places {
  using Part [[gnu::vector_size(Vec<C>::kWidth * sizeof(P))]] = P;
  Part part[Vec<C>::kParts];
};

template <class C, bool few, class P>
LOCKSTEP_INLINE Places<C, P> load_places(const P* p, int64_t channels) {
  if constexpr (few) {
    P buffer[kLanes] = {};
    copy_some(buffer, p, channels);
    return load_places<C, false>(buffer, channels);
  } else {
    Places<C, P> r;
    for (int i = 0; i < Vec<C>::kParts; ++i)
      __builtin_memcpy(&r.part[i], p + i * Vec<C>::kWidth, sizeof r.part[i]);
    return r;
  }
}

// v where the positions are k, 0 elsewhere. Comparing comes before widening: compilers widen a mask well, a
// byte badly.
template <class C, class P>
LOCKSTEP_INLINE Vec<C> keep_at(const Vec<C>& v, const Places<C, P>& places, int64_t k) {
  using Bits = typename MaskOf<C>::type;
  Mask<C> hit;
  for (int i = 0; i < hit.kParts; ++i)
    hit.part[i] = __builtin_convertvector(places.part[i] == static_cast<P>(k), typename Mask<C>::Native);
  return bits_as<C>(bits_as<Bits>(v) & hit);
}

// --- windows -----------------------------------------------------------------------------------------------

struct Range {
  int64_t begin, end;
};

// Taps of window `o` that lie inside the image.
LOCKSTEP_INLINE Range taps_inside(const PoolAxis& axis, int64_t o) {
  const int64_t start = o * axis.stride - axis.before;
  const int64_t end = axis.input - start;
  return {start < 0 ? -start : 0, end < axis.size ? end : axis.size};
}

// One window on an image.
struct View {
  Range rows, columns;
  int64_t width;                 // of the window
  int64_t row_step, pixel_step;  // of the image, in elements

  int64_t first_position() const { return rows.begin * width + columns.begin; }
  int64_t taps() const { return (rows.end - rows.begin) * (columns.end - columns.begin); }

  // f(element, position) for the taps inside the image, in row-major order; `size`: rows and columns of the
  // window where it is square, small and inside the image, so that the compiler can unroll; else 0.
  template <int size, class T, class F>
  LOCKSTEP_INLINE void each(T* first, F f) const {
    if constexpr (size > 0) {
      for (int i = 0; i < size; ++i)
        for (int j = 0; j < size; ++j) f(first + i * row_step + j * pixel_step, i * size + j);
    } else {
      for (int64_t i = rows.begin; i < rows.end; ++i, first += row_step) {
        T* at = first;
        for (int64_t j = columns.begin; j < columns.end; ++j, at += pixel_step)
          f(at, static_cast<int>(i * width + j));
      }
    }
  }
};

// f(size, view, its first element inside the image, index of the result's first channel) for every window of
// these rows. Sizes other than 0 are used where `unroll` says so.
template <bool unroll, class T, class F>
LOCKSTEP_INLINE void each_window(const PoolGeometry& g, T* x, int64_t begin, int64_t end, F f) {
  const int64_t channels = g.channels, row_step = g.columns.input * channels;
  const int64_t size = g.rows.size == g.columns.size ? g.rows.size : 0;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t oh = row % g.rows.output;
    const int64_t top = oh * g.rows.stride - g.rows.before;
    const Range rows = taps_inside(g.rows, oh);
    T* image_row = x + (row / g.rows.output * g.rows.input + top + rows.begin) * row_step;
    for (int64_t ow = 0; ow < g.columns.output; ++ow) {
      const int64_t left = ow * g.columns.stride - g.columns.before;
      const Range columns = taps_inside(g.columns, ow);
      const View view{rows, columns, g.columns.size, row_step, channels};
      T* first = image_row + (left + columns.begin) * channels;
      const int64_t out = (row * g.columns.output + ow) * channels;
      if constexpr (unroll) {
        if (size == 2 && view.taps() == 4) {
          f(Constant<2>(), view, first, out);
          continue;
        }
        if (size == 3 && view.taps() == 9) {
          f(Constant<3>(), view, first, out);
          continue;
        }
      }
      f(Constant<0>(), view, first, out);
    }
  }
}

// Windows of 2 x 2 and 3 x 3 in the types that networks compute in.
template <class T, bool few>
inline constexpr bool kUnroll = sizeof(T) == 4 || (!few && std::is_same_v<T, BFloat16>);

template <class T, class P, bool few>
void max(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  using C = Compute<T>;
  using I = typename MaskOf<C>::type;
  const auto* x = static_cast<const T*>(memory.from);
  auto* y = static_cast<T*>(memory.to);
  auto* positions = static_cast<P*>(memory.positions);
  each_window<kUnroll<T, few> && sizeof(P) == 1>(
      g, x, begin, end, [&](auto size, const View& view, const T* first, int64_t out) {
        each_block<few>(g.channels, [&](int64_t c) {
          Vec<C> best;
          Vec<I> position;
          // takes(v, best): where v is the larger element.
          const auto scan = [&](auto takes) {
            best = load_block<few>(first + c, g.channels);
            position = splat(static_cast<I>(view.first_position()));
            view.each<size>(first + c, [&](const T* at, int k) {
              if (size > 0 && k == 0) return;  // the first tap is there already
              const Vec<C> v = load_block<few>(at, g.channels);
              const Mask<C> take = takes(v, best);
              position = select(take, splat(static_cast<I>(k)), position);
              best = select(take, v, best);
            });
          };
          // Additions cost less than comparisons with oneself, and a NaN shows in the sum.
          Vec<C> sum = splat(C(0));
          scan([&](const Vec<C>& v, const Vec<C>& than) {
            sum = sum + v;
            return v > than;
          });
          sum = sum + load_block<few>(first + c, g.channels);
          if (lane_bits(sum != sum) != 0) [[unlikely]]
            scan([](const Vec<C>& v, const Vec<C>& than) { return (v > than) | (v != v); });
          store_block<few>(y + out + c, g.channels, best);
          store_positions<few>(positions + out + c, g.channels, position);
        });
      });
}

template <class T, class P, bool few>
void max_gather(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  const auto* x = static_cast<const T*>(memory.from);
  auto* y = static_cast<T*>(memory.to);
  const auto* positions = static_cast<const P*>(memory.positions);
  each_window<kUnroll<T, few> && sizeof(P) == 1>(
      g, x, begin, end, [&](auto size, const View& view, const T* first, int64_t out) {
        each_block<few>(g.channels, [&](int64_t c) {
          const auto places = load_places<Compute<T>, few>(positions + out + c, g.channels);
          Vec<Compute<T>> value = splat(Compute<T>{0});
          view.each<size>(first + c, [&](const T* at, int k) {
            value = value + keep_at(load_block<few>(at, g.channels), places, k);
          });
          store_block<few>(y + out + c, g.channels, value);
        });
      });
}

template <class T, bool few>
void avg(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  const auto* x = static_cast<const T*>(memory.from);
  auto* y = static_cast<T*>(memory.to);
  each_window<kUnroll<T, few>>(
      g, x, begin, end, [&](auto size, const View& view, const T* first, int64_t out) {
        const auto count = splat(static_cast<Compute<T>>(view.taps()));
        each_block<few>(g.channels, [&](int64_t c) {
          Vec<Compute<T>> sum = splat(Compute<T>{0});
          view.each<size>(first + c, [&](const T* at, int) { sum = sum + load_block<few>(at, g.channels); });
          store_block<few>(y + out + c, g.channels, sum / count);
        });
      });
}

// --- gradients, windows apart: each window writes its own pixels -------------------------------------------

// Zeros the pixels of the rows of windows [begin, end) that no window reaches. The rows between two windows
// belong to the upper one, the image's last rows to the last.
template <class T>
void zero_between(const PoolGeometry& g, T* dx, int64_t begin, int64_t end) {
  const PoolAxis &rows = g.rows, &columns = g.columns;
  const auto zero = [&](T* row, int64_t from, int64_t to) {
    for (T* at = row + from * g.channels; at < row + to * g.channels; ++at) *at = T{};
  };
  for (int64_t row = begin; row < end; ++row) {
    const int64_t oh = row % rows.output;
    const int64_t top = oh * rows.stride - rows.before;
    const int64_t bottom = oh + 1 < rows.output ? top + rows.stride : rows.input;
    for (int64_t h = top < 0 ? 0 : top; h < bottom; ++h) {
      T* image_row = dx + (row / rows.output * rows.input + h) * columns.input * g.channels;
      if (h >= top + rows.size) {
        zero(image_row, 0, columns.input);
        continue;
      }
      if (columns.stride > columns.size)
        for (int64_t ow = 0; ow + 1 < columns.output; ++ow) {
          const int64_t next = (ow + 1) * columns.stride - columns.before;
          zero(image_row, next - columns.stride + columns.size, next);
        }
      zero(image_row, (columns.output - 1) * columns.stride - columns.before + columns.size, columns.input);
    }
  }
}

template <class T, class P, bool few>
void max_grad_apart(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  const auto* dy = static_cast<const T*>(memory.from);
  auto* dx = static_cast<T*>(memory.to);
  const auto* positions = static_cast<const P*>(memory.positions);
  each_window<kUnroll<T, few> && sizeof(P) == 1>(
      g, dx, begin, end, [&](auto size, const View& view, T* first, int64_t out) {
        each_block<few>(g.channels, [&](int64_t c) {
          const auto gradient = load_block<few>(dy + out + c, g.channels);
          const auto places = load_places<Compute<T>, few>(positions + out + c, g.channels);
          view.each<size>(first + c, [&](T* at, int k) {
            store_block<few>(at, g.channels, keep_at(gradient, places, k));
          });
        });
      });
  zero_between(g, dx, begin, end);
}

template <class T, bool few>
void avg_grad_apart(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  const auto* dy = static_cast<const T*>(memory.from);
  auto* dx = static_cast<T*>(memory.to);
  each_window<kUnroll<T, few>>(g, dx, begin, end, [&](auto size, const View& view, T* first, int64_t out) {
    const auto count = splat(static_cast<Compute<T>>(view.taps()));
    each_block<few>(g.channels, [&](int64_t c) {
      const auto share = load_block<few>(dy + out + c, g.channels) / count;
      view.each<size>(first + c, [&](T* at, int) { store_block<few>(at, g.channels, share); });
    });
  });
  zero_between(g, dx, begin, end);
}

// --- gradients, overlapping windows: each pixel sums over the windows it lies in, always in the same order ----

// add(sum, index of the window's channel, row and column of the window, position in it).
template <class T, bool few, class F>
LOCKSTEP_INLINE void sum_windows(const PoolGeometry& g, T* dx, int64_t begin, int64_t end, F add) {
  for (int64_t row = begin; row < end; ++row) {
    const WindowsOver& rows = g.rows.over[static_cast<size_t>(row % g.rows.input)];
    const int64_t out_row = row / g.rows.input * g.rows.output + rows.first;
    for (int64_t w = 0; w < g.columns.input; ++w) {
      const WindowsOver& columns = g.columns.over[static_cast<size_t>(w)];
      each_block<few>(g.channels, [&](int64_t c) {
        Vec<Compute<T>> sum = splat(Compute<T>{0});
        for (int64_t i = 0; i < rows.count; ++i)
          for (int64_t j = 0; j < columns.count; ++j) {
            const int64_t out = ((out_row + i) * g.columns.output + columns.first + j) * g.channels + c;
            const int64_t k =
                (rows.tap - i * g.rows.stride) * g.columns.size + columns.tap - j * g.columns.stride;
            add(sum, out, rows.first + i, columns.first + j, k);
          }
        store_block<few>(dx + (row * g.columns.input + w) * g.channels + c, g.channels, sum);
      });
    }
  }
}

template <class T, class P, bool few>
void max_grad(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  const auto* dy = static_cast<const T*>(memory.from);
  const auto* positions = static_cast<const P*>(memory.positions);
  sum_windows<T, few>(g, static_cast<T*>(memory.to), begin, end,
                      [&](Vec<Compute<T>>& sum, int64_t out, int64_t, int64_t, int64_t k) {
                        const auto places = load_places<Compute<T>, few>(positions + out, g.channels);
                        sum = sum + keep_at(load_block<few>(dy + out, g.channels), places, k);
                      });
}

template <class T, bool few>
void avg_grad(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  const auto* dy = static_cast<const T*>(memory.from);
  const int64_t *row_taps = g.rows.inside.data(), *column_taps = g.columns.inside.data();
  sum_windows<T, few>(g, static_cast<T*>(memory.to), begin, end,
                      [&](Vec<Compute<T>>& sum, int64_t out, int64_t oh, int64_t ow, int64_t) {
                        const auto count = static_cast<Compute<T>>(row_taps[oh] * column_taps[ow]);
                        sum = sum + load_block<few>(dy + out, g.channels) / splat(count);
                      });
}

// --- table -------------------------------------------------------------------------------------------------

template <cpu::PoolLoop many, cpu::PoolLoop few>
void by_channels(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  if (g.channels >= kLanes)
    many(g, memory, begin, end);
  else
    few(g, memory, begin, end);
}

template <class T, class P>
constexpr PoolLoops loops() {
  return {.max = by_channels<max<T, P, false>, max<T, P, true>>,
          .max_gather = by_channels<max_gather<T, P, false>, max_gather<T, P, true>>,
          .avg = by_channels<avg<T, false>, avg<T, true>>,
          .max_grad = by_channels<max_grad<T, P, false>, max_grad<T, P, true>>,
          .avg_grad = by_channels<avg_grad<T, false>, avg_grad<T, true>>,
          .max_grad_apart = by_channels<max_grad_apart<T, P, false>, max_grad_apart<T, P, true>>,
          .avg_grad_apart = by_channels<avg_grad_apart<T, false>, avg_grad_apart<T, true>>};
}

template <class T>
constexpr cpu::PoolFunctions functions() {
  return {.bytes = loops<T, uint8_t>(), .words = loops<T, int32_t>()};
}

}  // namespace

extern const cpu::PoolTable kPoolTable = {.float32 = functions<float>(),
                                          .float64 = functions<double>(),
                                          .bfloat16 = functions<BFloat16>(),
                                          .float16 = functions<Float16>()};

}  // namespace lockstep::LOCKSTEP_SIMD
