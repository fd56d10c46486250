#include "ops/nn/conv_cpu_simd.h"

#include <utility>

#include "backends/cpu/simd_vector.h"

namespace lockstep::LOCKSTEP_SIMD {
namespace {

using cpu::GreyConv;

// Results that are summed up at once: with 2 vectors of each, two operands and one broadcast they fill
// AVX-512's registers.
constexpr int kPixels = 13;

struct Taps {
  const float* rows[GreyConv::kMaxRows];  // where the first tap of each row of the window reads
  int64_t row_count, column_count, dilation;
  int64_t out_channels;
};

// f(0), ..., f(n - 1) with constant arguments, so that arrays indexed by them stay in registers.
template <int n, class F>
LOCKSTEP_INLINE void unrolled(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, n>());
}

// `pixels` neighbouring results by `vectors` vectors of output channels, from column x on. Without a whole
// vector: by the channels that there are.
template <int vectors, int pixels>
void block(const Taps& taps, int64_t x, const float* filter, const float* bias, float floor, float* y) {
  constexpr int kVectors = vectors + (vectors == 0);
  const auto get = [&](const float* from) __attribute__((always_inline)) {
    if constexpr (vectors > 0) return load(from);
    return load_some(from, taps.out_channels % kLanes, 0.0f);
  };
  F32 sum[pixels][kVectors];
  unrolled<kVectors>([&](auto v) {
    const F32 start = bias ? get(bias + v * kLanes) : splat(0.0f);
    unrolled<pixels>([&](auto p) { sum[p][v] = start; });
  });
  for (int64_t i = 0; i < taps.row_count; ++i) {
    const float* at = taps.rows[i] + x;
    for (int64_t j = 0; j < taps.column_count; ++j, at += taps.dilation, filter += taps.out_channels) {
      F32 weight[kVectors];
      unrolled<kVectors>([&](auto v) { weight[v] = get(filter + v * kLanes); });
      unrolled<pixels>([&](auto p) {
        const F32 pixel = splat(at[p]);
        unrolled<kVectors>([&](auto v) { sum[p][v] = mul_add(pixel, weight[v], sum[p][v]); });
      });
    }
  }
  const F32 least = splat(floor);
  unrolled<pixels>([&](auto p) {
    unrolled<kVectors>([&](auto v) {
      float* to = y + p * taps.out_channels + v * kLanes;
      const F32 result = select(sum[p][v] <= least, least, sum[p][v]);
      if constexpr (vectors > 0)
        store(to, result);
      else
        store_some(to, taps.out_channels % kLanes, result);
    });
  });
}

using Block = void (*)(const Taps&, int64_t, const float*, const float*, float, float*);

struct BlockTable {
  Block of[3][kPixels + 1] = {};  // by vectors and pixels
  constexpr BlockTable() {
    [&]<int... p>(std::integer_sequence<int, p...>) {
      ((of[0][p + 1] = block<0, p + 1>, of[1][p + 1] = block<1, p + 1>, of[2][p + 1] = block<2, p + 1>), ...);
    }
    (std::make_integer_sequence<int, kPixels>());
  }
};
constexpr BlockTable kBlocks;

// Row r of the padded image.
void pad_row(const GreyConv& conv, const float* image, int64_t r, float* target) {
  const float* row = image + (r - conv.above) * conv.width - conv.left;
  const bool inside = r >= conv.above && r < conv.above + conv.height;
  for (int64_t w = 0; w < conv.padded_width(); ++w)
    target[w] = inside && w >= conv.left && w < conv.left + conv.width ? row[w] : 0.0f;
}

void forward(const GreyConv& conv, const float* x, const float* filter, const float* bias, float* y,
             float* scratch, int64_t begin, int64_t end) {
  const int64_t out_height = conv.out_height(), out_width = conv.out_width(),
                out_channels = conv.out_channels;
  const int64_t row_step = conv.padded_width(), reach = (conv.window_height - 1) * conv.row_dilation + 1;
  const bool padded = conv.scratch() > conv.height * conv.width;
  // Blocks of about one width: a narrow last one would leave the arithmetic units waiting.
  const int64_t blocks = (out_width + kPixels - 1) / kPixels;
  const int64_t block_width = (out_width + blocks - 1) / blocks;
  const float floor = conv.relu ? 0.0f : -__builtin_inff();
  Taps taps{.rows = {},
            .row_count = conv.window_height,
            .column_count = conv.window_width,
            .dilation = conv.column_dilation,
            .out_channels = out_channels};
  int64_t padded_until = 0;  // rows of the padded image before this one are in `scratch`
  for (int64_t row = begin; row < end; ++row) {
    const float* image = x + row / out_height * conv.height * conv.width;
    const int64_t top = row % out_height;
    if (padded) {
      if (top == 0 || row == begin) padded_until = top;
      for (; padded_until < top + reach; ++padded_until)
        pad_row(conv, image, padded_until, scratch + padded_until * row_step);
    }
    for (int64_t i = 0; i < taps.row_count; ++i)
      taps.rows[i] = (padded ? scratch : image) + (top + i * conv.row_dilation) * row_step;
    float* target = y + row * out_width * out_channels;
    for (int64_t c = 0; c < out_channels;) {
      const int64_t whole = (out_channels - c) / kLanes, vectors = whole < 2 ? whole : 2;
      for (int64_t w = 0; w < out_width; w += block_width) {
        const int64_t pixels = out_width - w < block_width ? out_width - w : block_width;
        kBlocks.of[vectors][pixels](taps, w, filter + c, bias ? bias + c : nullptr, floor,
                                    target + w * out_channels + c);
      }
      c += vectors > 0 ? vectors * kLanes : out_channels - c;
    }
  }
}

}  // namespace

extern const cpu::GreyConvTable kGreyConvTable = {.forward = forward};

}  // namespace lockstep::LOCKSTEP_SIMD
