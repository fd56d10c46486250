#include "ops/nn/conv_cpu_simd.h"

#include <cstring>
#include <limits>
#include <utility>

namespace lockstep::cpu::LOCKSTEP_SIMD {
namespace {

constexpr int64_t kLanes = GreyConv::kLanes;
// With 2 vectors of results a pixel, two operands and one broadcast this fills AVX-512's registers.
constexpr int kPixels = 13;

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

struct Taps {
  const float* rows[GreyConv::kMaxRows];  // where the first tap of each row of the window reads
  int64_t row_count, column_count, dilation;
  int64_t out_channels;
};

// f(0), ..., f(n - 1) with constant arguments, so that arrays indexed by them stay in registers.
template <int n, class F>
inline void unrolled(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (f(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, n>());
}

inline void load(Vector& v, const float* from) { std::memcpy(&v, from, sizeof v); }

// `pixels` neighbouring results by `vectors` vectors of output channels, from column x on.
template <int vectors, int pixels>
void block(const Taps& taps, int64_t x, const float* filter, const float* bias, float floor, float* y) {
  Vector sum[pixels][vectors];
  unrolled<vectors>([&](auto v) {
    Vector start{};
    if (bias) load(start, bias + v * kLanes);
    unrolled<pixels>([&](auto p) { sum[p][v] = start; });
  });
  for (int64_t i = 0; i < taps.row_count; ++i) {
    const float* at = taps.rows[i] + x;
    for (int64_t j = 0; j < taps.column_count; ++j, at += taps.dilation, filter += taps.out_channels) {
      Vector weight[vectors];
      unrolled<vectors>([&](auto v) { load(weight[v], filter + v * kLanes); });
      unrolled<pixels>([&](auto p) { unrolled<vectors>([&](auto v) { sum[p][v] += at[p] * weight[v]; }); });
    }
  }
  const Vector least = Vector{} + floor;
  unrolled<pixels>([&](auto p) {
    unrolled<vectors>([&](auto v) {
      const Vector result = sum[p][v] < least ? least : sum[p][v];
      std::memcpy(y + p * taps.out_channels + v * kLanes, &result, sizeof result);
    });
  });
}

using Block = void (*)(const Taps&, int64_t, const float*, const float*, float, float*);

struct Table {
  Block of[3][kPixels + 1] = {};  // by vectors and pixels
  constexpr Table() {
    [&]<int... p>(std::integer_sequence<int, p...>) {
      ((of[1][p + 1] = block<1, p + 1>, of[2][p + 1] = block<2, p + 1>), ...);
    }(std::make_integer_sequence<int, kPixels>());
  }
};
constexpr Table kTable;

// Row h of the image with zeros around it.
void pad_row(const GreyConv& conv, const float* image, int64_t h, float* target) {
  const int64_t width = conv.window.input[1], before = conv.window.before[1];
  std::memset(target, 0, static_cast<size_t>(conv.padded_width()) * sizeof(float));
  if (h >= 0 && h < conv.window.input[0])
    std::memcpy(target + before, image + h * width, static_cast<size_t>(width) * sizeof(float));
}

void forward(const GreyConv& conv, const float* x, const float* filter, const float* bias, float* y, float* band,
             int64_t begin, int64_t end) {
  const Window2d& window = conv.window;
  const int64_t height = window.input[0], width = window.input[1], padded_width = conv.padded_width();
  const int64_t out_height = window.output(0), out_width = window.output(1), out_channels = conv.out_channels;
  const bool padded = padded_width > width || window.before[0] + window.after[0] > 0;
  // Blocks of about one width: a narrow last one would leave the arithmetic units waiting.
  const int64_t blocks = (out_width + kPixels - 1) / kPixels;
  const int64_t block_width = (out_width + blocks - 1) / blocks;
  const float floor = conv.relu ? 0.0f : -std::numeric_limits<float>::infinity();
  Taps taps{.rows = {},
            .row_count = window.size[0],
            .column_count = window.size[1],
            .dilation = window.dilations[1],
            .out_channels = out_channels};
  int64_t padded_until = 0;  // rows of the padded image before this one are in the band
  for (int64_t row = begin; row < end; ++row) {
    const float* image = x + row / out_height * height * width;
    const int64_t top = row % out_height;
    if (padded) {
      if (top == 0 || row == begin) padded_until = top;
      for (; padded_until < top + window.extent(0); ++padded_until)
        pad_row(conv, image, padded_until - window.before[0], band + padded_until * padded_width);
    }
    for (int64_t i = 0; i < taps.row_count; ++i)
      taps.rows[i] = (padded ? band : image) + (top + i * window.dilations[0]) * padded_width;
    float* target = y + row * out_width * out_channels;
    for (int64_t c = 0; c < out_channels;) {
      const int vectors = out_channels - c >= 2 * kLanes ? 2 : 1;
      for (int64_t w = 0; w < out_width; w += block_width) {
        const int64_t pixels = out_width - w < block_width ? out_width - w : block_width;
        kTable.of[vectors][pixels](taps, w, filter + c, bias ? bias + c : nullptr, floor,
                                   target + w * out_channels + c);
      }
      c += vectors * kLanes;
    }
  }
}

}  // namespace

extern const GreyConvForward grey_conv_forward = forward;

}  // namespace lockstep::cpu::LOCKSTEP_SIMD
