#include "ops/nn/pool_cpu_simd.h"

#include <cstring>
#include <limits>
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

// Channels that are computed at once.
template <class T>
constexpr int kLanes = std::is_same_v<T, float> || std::is_same_v<T, bfloat16> ? 16 : 1;

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

template <int lanes, class V, class P>
inline void load_positions(V& v, const P* from) {
  Vector<P, lanes> narrow;
  std::memcpy(&narrow, from, sizeof narrow);
  v = __builtin_convertvector(narrow, V);
}

template <int lanes, class V, class P>
inline void store_positions(P* to, const V& v) {
  const auto narrow = __builtin_convertvector(v, Vector<P, lanes>);
  std::memcpy(to, &narrow, sizeof narrow);
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
inline Range taps_inside(const Window2d& window, int axis, int64_t o) {
  const int64_t start = o * window.strides[axis] - window.before[axis];
  const int64_t end = window.input[axis] - start;
  return {start < 0 ? -start : 0, end < window.size[axis] ? end : window.size[axis]};
}

// The elements of one window: f(pointer, position) in row-major order.
struct WindowView {
  Range rows, columns;
  int64_t width, row_step, pixel_step;  // of the window; of x from one row to the next, from one pixel to the next
  template <class T, class F>
  inline void each(const T* first, F f) const {
    const T* row = first;
    for (int64_t i = rows.begin; i < rows.end; ++i, row += row_step) {
      const T* at = row;
      for (int64_t j = columns.begin; j < columns.end; ++j, at += pixel_step) f(at, i * width + j);
    }
  }
};

// Calls f(view, first element of x, index of y's first channel) for every window of the rows.
template <class T, class F>
void for_windows(const PoolGeometry& g, const T* x, int64_t begin, int64_t end, F f) {
  const Window2d& window = g.window;
  const int64_t height = window.input[0], width = window.input[1], channels = g.channels;
  const int64_t out_height = window.output(0), out_width = window.output(1);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t oh = row % out_height;
    const int64_t top = oh * window.strides[0] - window.before[0];
    const Range rows = taps_inside(window, 0, oh);
    const T* image_row = x + (row / out_height * height + top + rows.begin) * width * channels;
    for (int64_t ow = 0; ow < out_width; ++ow) {
      const int64_t left = ow * window.strides[1] - window.before[1];
      const Range columns = taps_inside(window, 1, ow);
      f(WindowView{rows, columns, window.size[1], width * channels, channels},
        image_row + (left + columns.begin) * channels, (row * out_width + ow) * channels);
    }
  }
}

template <class T, class P, int lanes>
void max(const PoolGeometry& g, const T* x, T* y, P* positions, int64_t begin, int64_t end) {
  using V = Reals<T, lanes>;
  using I = Ints<T, lanes>;
  const V least = V{} + (g.relu ? Real<T>{0} : -std::numeric_limits<Real<T>>::infinity());
  for_windows(g, x, begin, end, [&](const WindowView& view, const T* first, int64_t out) {
    const int64_t start = g.relu ? -1 : view.rows.begin * view.width + view.columns.begin;
    for_blocks<lanes>(g.channels, [&](int64_t c) {
      V best = least;
      I position = I{} + static_cast<int32_t>(start);
      view.each(first + c, [&](const T* at, int64_t k) {
        V v;
        load<lanes>(v, at);
        const I take = (v > best) | (v != v);
        best = take ? v : best;
        position = take ? I{} + static_cast<int32_t>(k) : position;
      });
      store<lanes>(y + out + c, best);
      store_positions<lanes>(positions + out + c, position);
    });
  });
}

template <class T, class P, int lanes>
void max_gather(const PoolGeometry& g, const T* x, const P* positions, T* y, int64_t begin, int64_t end) {
  using V = Reals<T, lanes>;
  using I = Ints<T, lanes>;
  for_windows(g, x, begin, end, [&](const WindowView& view, const T* first, int64_t out) {
    for_blocks<lanes>(g.channels, [&](int64_t c) {
      V value{};
      I position;
      load_positions<lanes>(position, positions + out + c);
      view.each(first + c, [&](const T* at, int64_t k) {
        V v;
        load<lanes>(v, at);
        value = position == static_cast<int32_t>(k) ? v : value;
      });
      store<lanes>(y + out + c, value);
    });
  });
}

template <class T, int lanes>
void avg(const PoolGeometry& g, const T* x, T* y, int64_t begin, int64_t end) {
  using V = Reals<T, lanes>;
  for_windows(g, x, begin, end, [&](const WindowView& view, const T* first, int64_t out) {
    const auto count = static_cast<Real<T>>((view.rows.end - view.rows.begin) * (view.columns.end - view.columns.begin));
    for_blocks<lanes>(g.channels, [&](int64_t c) {
      V sum{};
      view.each(first + c, [&](const T* at, int64_t) {
        V v;
        load<lanes>(v, at);
        sum += v;
      });
      store<lanes>(y + out + c, sum / count);
    });
  });
}

// Calls f(windows over the row, windows over the column, row of windows, index of dx's first channel)
// for every pixel of the rows.
template <class F>
void for_pixels(const PoolGeometry& g, int64_t begin, int64_t end, F f) {
  const int64_t height = g.window.input[0], width = g.window.input[1];
  const int64_t out_height = g.window.output(0);
  for (int64_t row = begin; row < end; ++row) {
    const WindowsOver& rows = g.over[0][static_cast<size_t>(row % height)];
    const int64_t out_row = row / height * out_height + rows.first;
    for (int64_t w = 0; w < width; ++w)
      f(rows, g.over[1][static_cast<size_t>(w)], out_row, (row * width + w) * g.channels);
  }
}

template <class T, class P, int lanes>
void max_grad(const PoolGeometry& g, const T* dy, const P* positions, T* dx, int64_t begin, int64_t end) {
  using V = Reals<T, lanes>;
  using I = Ints<T, lanes>;
  const int64_t channels = g.channels, out_width = g.window.output(1), window_width = g.window.size[1];
  const int64_t row_stride = g.window.strides[0], column_stride = g.window.strides[1];
  for_pixels(g, begin, end, [&](const WindowsOver& rows, const WindowsOver& columns, int64_t out_row, int64_t in) {
    for_blocks<lanes>(channels, [&](int64_t c) {
      V sum{};
      for (int64_t i = 0; i < rows.count; ++i)
        for (int64_t j = 0; j < columns.count; ++j) {
          const int64_t out = ((out_row + i) * out_width + columns.first + j) * channels + c;
          const int64_t k = (rows.tap - i * row_stride) * window_width + columns.tap - j * column_stride;
          V v;
          I position;
          load<lanes>(v, dy + out);
          load_positions<lanes>(position, positions + out);
          sum += position == static_cast<int32_t>(k) ? v : V{};
        }
      store<lanes>(dx + in + c, sum);
    });
  });
}

template <class T, int lanes>
void avg_grad(const PoolGeometry& g, const T* dy, T* dx, int64_t begin, int64_t end) {
  using V = Reals<T, lanes>;
  const int64_t channels = g.channels, out_width = g.window.output(1);
  for_pixels(g, begin, end, [&](const WindowsOver& rows, const WindowsOver& columns, int64_t out_row, int64_t in) {
    for_blocks<lanes>(channels, [&](int64_t c) {
      V sum{};
      for (int64_t i = 0; i < rows.count; ++i)
        for (int64_t j = 0; j < columns.count; ++j) {
          V v;
          load<lanes>(v, dy + ((out_row + i) * out_width + columns.first + j) * channels + c);
          const int64_t count = int64_t{g.inside[0][static_cast<size_t>(rows.first + i)]} *
                                g.inside[1][static_cast<size_t>(columns.first + j)];
          sum += v / static_cast<Real<T>>(count);
        }
      store<lanes>(dx + in + c, sum);
    });
  });
}

// Narrow images go one channel at a time: a block needs `lanes` channels.
template <class T, class F>
void for_width(const PoolGeometry& g, F f) {
  if (g.channels >= kLanes<T>)
    f(std::integral_constant<int, kLanes<T>>());
  else
    f(std::integral_constant<int, 1>());
}

template <class T, class P>
constexpr PoolLoops kLoops{
    .max =
        [](const PoolGeometry& g, const void* x, void* y, void* positions, int64_t begin, int64_t end) {
          for_width<T>(g, [&](auto lanes) {
            max<T, P, lanes>(g, static_cast<const T*>(x), static_cast<T*>(y), static_cast<P*>(positions), begin, end);
          });
        },
    .max_grad =
        [](const PoolGeometry& g, const void* dy, const void* positions, void* dx, int64_t begin, int64_t end) {
          for_width<T>(g, [&](auto lanes) {
            max_grad<T, P, lanes>(g, static_cast<const T*>(dy), static_cast<const P*>(positions), static_cast<T*>(dx),
                                  begin, end);
          });
        },
    .max_gather =
        [](const PoolGeometry& g, const void* x, const void* positions, void* y, int64_t begin, int64_t end) {
          for_width<T>(g, [&](auto lanes) {
            max_gather<T, P, lanes>(g, static_cast<const T*>(x), static_cast<const P*>(positions), static_cast<T*>(y),
                                    begin, end);
          });
        },
    .avg =
        [](const PoolGeometry& g, const void* x, void* y, int64_t begin, int64_t end) {
          for_width<T>(g, [&](auto lanes) {
            avg<T, lanes>(g, static_cast<const T*>(x), static_cast<T*>(y), begin, end);
          });
        },
    .avg_grad =
        [](const PoolGeometry& g, const void* dy, void* dx, int64_t begin, int64_t end) {
          for_width<T>(g, [&](auto lanes) {
            avg_grad<T, lanes>(g, static_cast<const T*>(dy), static_cast<T*>(dx), begin, end);
          });
        },
};

}  // namespace

PoolLoops pool_loops(DType dtype, DType positions) {
  const bool bytes = positions == DType::uint8;
  switch (dtype) {
    case DType::float64: return bytes ? kLoops<double, uint8_t> : kLoops<double, int32_t>;
    case DType::bfloat16: return bytes ? kLoops<bfloat16, uint8_t> : kLoops<bfloat16, int32_t>;
    case DType::float16: return bytes ? kLoops<float16, uint8_t> : kLoops<float16, int32_t>;
    default: return bytes ? kLoops<float, uint8_t> : kLoops<float, int32_t>;
  }
}

}  // namespace lockstep::cpu::LOCKSTEP_SIMD
