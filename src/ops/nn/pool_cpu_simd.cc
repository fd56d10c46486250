#include "ops/nn/pool_cpu_simd.h"

#include <cstring>
#include <type_traits>

namespace lockstep::cpu::LOCKSTEP_SIMD {
namespace {

template <class E, int n>
struct VectorOf {
  typedef E Type __attribute__((vector_size(n * sizeof(E))));
};
template <class E, int n>
using Vector = typename VectorOf<E, n>::Type;

// Arithmetic is float, or double for double.
template <class T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T, int lanes>
using Reals = Vector<Real<T>, lanes>;
template <class T, int lanes>  // as wide as Reals: what comparing them gives
using Ints = Vector<std::conditional_t<std::is_same_v<T, double>, int64_t, int32_t>, lanes>;

template <int lanes, class T>
inline void load(Reals<T, lanes>& v, const T* from) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    Vector<uint16_t, lanes> halves;
    std::memcpy(&halves, from, sizeof halves);
    const Vector<uint32_t, lanes> words = __builtin_convertvector(halves, Vector<uint32_t, lanes>) << 16;
    std::memcpy(&v, &words, sizeof v);
  } else if constexpr (std::is_same_v<T, float16>) {
    v[0] = static_cast<float>(*from);
  } else {
    std::memcpy(&v, from, sizeof v);
  }
}

template <int lanes, class T>
inline void store(T* to, const Reals<T, lanes>& v) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    Vector<uint32_t, lanes> words;
    std::memcpy(&words, &v, sizeof words);
    const Vector<uint32_t, lanes> rounded = (words + 0x7fff + (words >> 16 & 1)) >> 16;  // to nearest even
    const Vector<uint32_t, lanes> quiet = words >> 16 | 0x40;
    const auto halves = __builtin_convertvector(v == v ? rounded : quiet, Vector<uint16_t, lanes>);
    std::memcpy(&to->bits, &halves, sizeof halves);
  } else if constexpr (std::is_same_v<T, float16>) {
    *to = static_cast<float16>(v[0]);
  } else {
    std::memcpy(to, &v, sizeof v);
  }
}

// v where the positions at `from` are `position`, 0 elsewhere.
template <int lanes, class T, class P>
inline void keep_at(Reals<T, lanes>& v, const P* from, P position) {
  Vector<P, lanes> positions;
  std::memcpy(&positions, from, sizeof positions);
  // Comparing before widening: compilers widen a mask well, a byte badly.
  const auto hit = __builtin_convertvector(positions == position, Ints<T, lanes>);
  Ints<T, lanes> bits;
  std::memcpy(&bits, &v, sizeof bits);
  bits &= hit;
  std::memcpy(&v, &bits, sizeof v);
}

template <int lanes, class T, class P>
inline void store_positions(P* to, const Ints<T, lanes>& v) {
  // g++ narrows to a quarter well with AVX-512 only, in two steps well with the others.
  if constexpr (sizeof(P) == 1 && lanes < 16) {
    const auto halves = __builtin_convertvector(v, Vector<uint16_t, lanes>);
    const auto bytes = __builtin_convertvector(halves, Vector<P, lanes>);
    std::memcpy(to, &bytes, sizeof bytes);
  } else {
    const auto narrow = __builtin_convertvector(v, Vector<P, lanes>);
    std::memcpy(to, &narrow, sizeof narrow);
  }
}

// Calls f(c) for the first channel of every block; the last block overlaps the one before it where the
// channels are no multiple of `lanes` (what is computed twice is the same).
template <int lanes, class F>
inline void for_blocks(int64_t channels, F f) {
  for (int64_t c = 0; c < channels; c += lanes) f(c + lanes <= channels ? c : channels - lanes);
}

struct Range {
  int64_t begin, end;
};

// Taps of window `o` that lie inside the image.
inline Range taps_inside(const PoolAxis& axis, int64_t o) {
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

  // f(element, position) for the taps inside the image, in row-major order; `size`: rows and columns
  // of the window where they are known to the compiler and inside the image, else 0.
  template <int size, class T, class F>
  inline void each(T* first, F f) const {
    if constexpr (size > 0) {
      for (int i = 0; i < size; ++i)
        for (int j = 0; j < size; ++j) f(first + i * row_step + j * pixel_step, i * size + j);
    } else {
      for (int64_t i = rows.begin; i < rows.end; ++i, first += row_step) {
        T* at = first;
        for (int64_t j = columns.begin; j < columns.end; ++j, at += pixel_step) f(at, static_cast<int>(i * width + j));
      }
    }
  }
};

template <int n>
using Constant = std::integral_constant<int, n>;

// Calls f(size, view, its first element inside the image, index of the result's first channel) for
// every window of these rows.
template <class T, class F>
void for_windows(const PoolGeometry& g, T* x, int64_t begin, int64_t end, F f) {
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
      if (size == 2 && view.taps() == 4)
        f(Constant<2>(), view, first, out);
      else if (size == 3 && view.taps() == 9)
        f(Constant<3>(), view, first, out);
      else
        f(Constant<0>(), view, first, out);
    }
  }
}

template <class T, class P>
struct Max {
  template <int lanes>
  static void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
    using V = Reals<T, lanes>;
    using I = Ints<T, lanes>;
    T* y = static_cast<T*>(memory.to);
    P* positions = static_cast<P*>(memory.positions);
    for_windows(g, static_cast<const T*>(memory.from), begin, end,
                [&](auto size, const View& view, const T* first, int64_t out) {
                  for_blocks<lanes>(g.channels, [&](int64_t c) {
                    V best;
                    load<lanes>(best, first + c);
                    I position = I{} + static_cast<int32_t>(view.first_position());
                    view.each<size>(first + c, [&](const T* at, int k) {
                      if (size > 0 && k == 0) return;  // the first tap is there already
                      V v;
                      load<lanes>(v, at);
                      const I take = (v > best) | (v != v);
                      position = take ? I{} + k : position;
                      best = take ? v : best;
                    });
                    store<lanes>(y + out + c, best);
                    store_positions<lanes, T>(positions + out + c, position);
                  });
                });
  }
};

template <class T, class P>
struct MaxGather {
  template <int lanes>
  static void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
    T* y = static_cast<T*>(memory.to);
    const P* positions = static_cast<const P*>(memory.positions);
    for_windows(g, static_cast<const T*>(memory.from), begin, end,
                [&](auto size, const View& view, const T* first, int64_t out) {
                  for_blocks<lanes>(g.channels, [&](int64_t c) {
                    Reals<T, lanes> value{};
                    view.each<size>(first + c, [&](const T* at, int k) {
                      Reals<T, lanes> v;
                      load<lanes>(v, at);
                      keep_at<lanes, T>(v, positions + out + c, static_cast<P>(k));
                      value += v;
                    });
                    store<lanes>(y + out + c, value);
                  });
                });
  }
};

template <class T>
struct Avg {
  template <int lanes>
  static void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
    T* y = static_cast<T*>(memory.to);
    for_windows(g, static_cast<const T*>(memory.from), begin, end,
                [&](auto size, const View& view, const T* first, int64_t out) {
                  const auto count = static_cast<Real<T>>(view.taps());
                  for_blocks<lanes>(g.channels, [&](int64_t c) {
                    Reals<T, lanes> sum{};
                    view.each<size>(first + c, [&](const T* at, int) {
                      Reals<T, lanes> v;
                      load<lanes>(v, at);
                      sum += v;
                    });
                    store<lanes>(y + out + c, sum / count);
                  });
                });
  }
};

// Zeros the pixels of the rows of windows [begin, end) that no window reaches, where windows do not
// overlap. The rows between two windows belong to the upper one, the image's last rows to the last.
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

template <class T, class P>
struct MaxGradApart {
  template <int lanes>
  static void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
    const T* dy = static_cast<const T*>(memory.from);
    T* dx = static_cast<T*>(memory.to);
    const P* positions = static_cast<const P*>(memory.positions);
    for_windows(g, dx, begin, end, [&](auto size, const View& view, T* first, int64_t out) {
      for_blocks<lanes>(g.channels, [&](int64_t c) {
        Reals<T, lanes> gradient;
        load<lanes>(gradient, dy + out + c);
        view.each<size>(first + c, [&](T* at, int k) {
          Reals<T, lanes> v = gradient;
          keep_at<lanes, T>(v, positions + out + c, static_cast<P>(k));
          store<lanes>(at, v);
        });
      });
    });
    zero_between(g, dx, begin, end);
  }
};

template <class T>
struct AvgGradApart {
  template <int lanes>
  static void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
    const T* dy = static_cast<const T*>(memory.from);
    T* dx = static_cast<T*>(memory.to);
    for_windows(g, dx, begin, end, [&](auto size, const View& view, T* first, int64_t out) {
      const auto count = static_cast<Real<T>>(view.taps());
      for_blocks<lanes>(g.channels, [&](int64_t c) {
        Reals<T, lanes> v;
        load<lanes>(v, dy + out + c);
        v /= count;
        view.each<size>(first + c, [&](T* at, int) { store<lanes>(at, v); });
      });
    });
    zero_between(g, dx, begin, end);
  }
};

// Every pixel of these rows of dx is the sum over the windows it lies in, always in the same order.
// add(sum, index of the window's channel, row and column of the window, position in it).
template <int lanes, class T, class F>
void sum_windows(const PoolGeometry& g, T* dx, int64_t begin, int64_t end, F add) {
  for (int64_t row = begin; row < end; ++row) {
    const WindowsOver& rows = g.rows.over[static_cast<size_t>(row % g.rows.input)];
    const int64_t out_row = row / g.rows.input * g.rows.output + rows.first;
    for (int64_t w = 0; w < g.columns.input; ++w) {
      const WindowsOver& columns = g.columns.over[static_cast<size_t>(w)];
      for_blocks<lanes>(g.channels, [&](int64_t c) {
        Reals<T, lanes> sum{};
        for (int64_t i = 0; i < rows.count; ++i)
          for (int64_t j = 0; j < columns.count; ++j) {
            const int64_t out = ((out_row + i) * g.columns.output + columns.first + j) * g.channels + c;
            const int64_t k = (rows.tap - i * g.rows.stride) * g.columns.size + columns.tap - j * g.columns.stride;
            add(sum, out, rows.first + i, columns.first + j, k);
          }
        store<lanes>(dx + (row * g.columns.input + w) * g.channels + c, sum);
      });
    }
  }
}

template <class T, class P>
struct MaxGrad {
  template <int lanes>
  static void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
    const T* dy = static_cast<const T*>(memory.from);
    const P* positions = static_cast<const P*>(memory.positions);
    sum_windows<lanes>(g, static_cast<T*>(memory.to), begin, end,
                       [&](auto& sum, int64_t out, int64_t, int64_t, int64_t k) {
                         Reals<T, lanes> v;
                         load<lanes>(v, dy + out);
                         keep_at<lanes, T>(v, positions + out, static_cast<P>(k));
                         sum += v;
                       });
  }
};

template <class T>
struct AvgGrad {
  template <int lanes>
  static void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
    const T* dy = static_cast<const T*>(memory.from);
    const int64_t *row_taps = g.rows.inside.data(), *column_taps = g.columns.inside.data();
    sum_windows<lanes>(g, static_cast<T*>(memory.to), begin, end,
                       [&](auto& sum, int64_t out, int64_t oh, int64_t ow, int64_t) {
                         Reals<T, lanes> v;
                         load<lanes>(v, dy + out);
                         sum += v / static_cast<Real<T>>(row_taps[oh] * column_taps[ow]);
                       });
  }
};

// The widest blocks of channels that the image has room for.
template <class T, class Body>
void run(const PoolGeometry& g, const PoolMemory& memory, int64_t begin, int64_t end) {
  constexpr int kLanes = __BIGGEST_ALIGNMENT__ / sizeof(float);
  constexpr bool kVectors = std::is_same_v<T, float> || std::is_same_v<T, bfloat16>;
  if (kVectors && g.channels >= kLanes)
    Body::template run<kVectors ? kLanes : 1>(g, memory, begin, end);
  else if (kVectors && g.channels >= 4)
    Body::template run<kVectors ? 4 : 1>(g, memory, begin, end);
  else
    Body::template run<1>(g, memory, begin, end);
}

template <class T, class P>
PoolLoops loops() {
  return {.max = run<T, Max<T, P>>,
          .max_gather = run<T, MaxGather<T, P>>,
          .avg = run<T, Avg<T>>,
          .max_grad = run<T, MaxGrad<T, P>>,
          .avg_grad = run<T, AvgGrad<T>>,
          .max_grad_apart = run<T, MaxGradApart<T, P>>,
          .avg_grad_apart = run<T, AvgGradApart<T>>};
}

}  // namespace

PoolLoops pool_loops(DType dtype, DType positions) {
  const bool bytes = positions == DType::uint8;
  switch (dtype) {
    case DType::float64: return bytes ? loops<double, uint8_t>() : loops<double, int32_t>();
    case DType::bfloat16: return bytes ? loops<bfloat16, uint8_t>() : loops<bfloat16, int32_t>();
    case DType::float16: return bytes ? loops<float16, uint8_t>() : loops<float16, int32_t>();
    default: return bytes ? loops<float, uint8_t>() : loops<float, int32_t>();
  }
}

}  // namespace lockstep::cpu::LOCKSTEP_SIMD
