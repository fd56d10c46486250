#include "ops/nn/conv_products_cpu.h"

#include <algorithm>
#include <optional>

#include "backends/cpu/product_threads.h"
#include "backends/cpu/simple_matmul_simd.h"
#include "base/parallel.h"
#include "ops/array/strided_copy_cpu.h"
#include "ops/nn/conv_places_cpu.h"

namespace lockstep::cpu {
namespace {

// From so many of the results' channels in a group on, products are always faster than plain loops.
constexpr int64_t kLeastChannels = 4;

// What one product takes of the sum's depth: patches of so many elements stay in the second-level cache.
constexpr int64_t kDepth = 512;

// The fewest rows for which a tile's columns are packed: a multiple of how many rows each level of
// instructions multiplies together.
constexpr int64_t kLeastRows = 24;
static_assert(kTileRows % kLeastRows == 0);

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

// A thread's memory: what it has gathered, then that of a tile.
template <class T>
class ConvProducts : public Kernel {
 public:
  // Of each of `groups` a matrix [rows, columns], cut into tiles. `products` is how many there are in all.
  ConvProducts(const ConvPlaces& places, const KernelRequest& request, int64_t rows, int64_t columns,
               int64_t gathered, int64_t products)
      : places_(places),
        multiply_(
            pick_simd(simd_v2::kSimpleMatmulTable, simd_v3::kSimpleMatmulTable, simd_v4::kSimpleMatmulTable)
                .tile[static_cast<size_t>(dtype_of<T>)]),
        rows_(rows),
        columns_(columns),
        column_tiles_(blocks(columns, kTileColumns)),
        gathered_(blocks(gathered, kTileColumns) * kTileColumns) {
    const int threads = threads_for_products(products, request.threads);
    // Tiles are lower where there would not be one for every thread: their size does not change a sum.
    const int64_t wanted = blocks(threads, places.groups * column_tiles_);
    tile_rows_ = std::clamp(blocks(blocks(rows, wanted), kLeastRows) * kLeastRows, kLeastRows, kTileRows);
    row_tiles_ = blocks(rows, tile_rows_);
    threads_ = static_cast<int>(std::min<int64_t>(threads, tiles()));
  }

  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_) * static_cast<size_t>(gathered_ + kTileElements) * sizeof(T);
  }

 protected:
  struct Tile {
    int64_t group, row, rows, column, columns;
  };
  int64_t tiles() const { return places_.groups * row_tiles_ * column_tiles_; }
  Tile tile(int64_t index) const {
    const int64_t column = index % column_tiles_ * kTileColumns;
    const int64_t row = index / column_tiles_ % row_tiles_ * tile_rows_;
    return {.group = index / column_tiles_ / row_tiles_,
            .row = row,
            .rows = std::min(tile_rows_, rows_ - row),
            .column = column,
            .columns = std::min(kTileColumns, columns_ - column)};
  }
  // f(tile, memory for what is gathered, memory of the product) for every tile, on all threads.
  template <class F>
  void each_tile(void* workspace, F f) const {
    parallel(threads_, [&](int index) {
      T* const gathered = static_cast<T*>(workspace) + index * (gathered_ + kTileElements);
      for (int64_t t = tiles() * index / threads_; t < tiles() * (index + 1) / threads_; ++t)
        f(tile(t), gathered, gathered + gathered_);
    });
  }

  const ConvPlaces places_;
  const MatmulTileFunction multiply_;
  const int64_t rows_, columns_, column_tiles_;
  const int64_t gathered_;  // elements that a thread gathers at a time
  int64_t tile_rows_, row_tiles_;
  int threads_;
};

// Channels of results at places: of windows in the forward pass, of elements of the image in the gradient of
// the input. A row of a patch has, for every tap, the channels of the source's place that the tap leads to.
template <class T>
class ConvAtPlaces final : public ConvProducts<T> {
 public:
  ConvAtPlaces(const ConvPlaces& places, const KernelRequest& request, bool forward)
      : ConvProducts<T>(places, request,
                        places.batch * ConvPlaces::volume(forward ? places.output : places.input),
                        forward ? places.group_out : places.group_in,
                        kTileRows * taps_at_once(places, forward) * depth(places, forward),
                        places.batch * ConvPlaces::volume(places.output) * places.taps() * places.group_in *
                            places.out_channels),
        forward_(forward),
        bias_(request.attrs<ConvAttrs>().bias && forward),
        depth_(depth(places, forward)),
        taps_at_once_(taps_at_once(places, forward)) {
    if (forward) return;
    // (taps, group_in, out_channels) as (groups, taps, group_out, group_in).
    const Shape turned{places.groups, places.taps(), places.group_out, places.group_in};
    turn_.emplace(turned,
                  Strides{places.group_out, places.group_in * places.out_channels, 1, places.out_channels},
                  contiguous_strides(turned), dtype_of<T>);
    turned_bytes_ = static_cast<size_t>(turned.size()) * sizeof(T);
  }

  size_t workspace_bytes() const override { return ConvProducts<T>::workspace_bytes() + turned_bytes_; }

  void launch(const LaunchArgs& args) const override {
    const ConvPlaces& p = places_;
    const T* source = static_cast<const T*>(args.inputs[forward_ ? 0 : 1]);
    const T* filter = static_cast<const T*>(args.inputs[forward_ ? 1 : 0]);
    const T* bias = bias_ ? static_cast<const T*>(args.inputs[2]) : nullptr;
    T* out = static_cast<T*>(args.outputs[0]);
    if (turn_) {
      T* turned = static_cast<T*>(args.workspace) + ConvProducts<T>::workspace_bytes() / sizeof(T);
      turn_->run(filter, turned, this->threads_);
      filter = turned;
    }
    // Of one tap, and of the channels of one group.
    const int64_t filter_row = forward_ ? p.out_channels : p.group_in;
    const int64_t filter_group = forward_ ? p.group_out : p.taps() * p.group_out * p.group_in;
    const int64_t channels = forward_ ? p.out_channels : p.in_channels;
    this->each_tile(args.workspace, [&](const auto& tile, T* patches, T* workspace) {
      const T* product = nullptr;
      for (int64_t tap = 0; tap < p.taps(); tap += taps_at_once_) {
        const int64_t taps = std::min(taps_at_once_, p.taps() - tap);
        gather(source, tile.group, tile.row, tile.rows, tap, taps, patches);
        product = static_cast<const T*>(this->multiply_(
            {.a = patches,
             .a_row = taps * depth_,
             .a_column = 1,
             .b = filter + tile.group * filter_group + tap * depth_ * filter_row + tile.column,
             .b_row = filter_row,
             .b_column = 1,
             .rows = tile.rows,
             .columns = tile.columns,
             .depth = taps * depth_,
             .add = tap > 0,
             .workspace = workspace}));
      }
      const int64_t first = tile.group * this->columns_ + tile.column;
      for (int64_t r = 0; r < tile.rows; ++r) {
        const T* from = product + r * kTileColumns;
        T* to = out + (tile.row + r) * channels + first;
        for (int64_t c = 0; c < tile.columns; ++c) to[c] = bias ? from[c] + bias[first + c] : from[c];
      }
    });
  }

 private:
  using ConvProducts<T>::places_;

  static int64_t depth(const ConvPlaces& places, bool forward) {
    return forward ? places.group_in : places.group_out;
  }
  static int64_t taps_at_once(const ConvPlaces& places, bool forward) {
    return std::clamp<int64_t>(kDepth / depth(places, forward), 1, places.taps());
  }

  // Rows [row, row + rows) of the patches, of `taps` taps from `tap` on. Taps that lead nowhere meet zeros.
  void gather(const T* source, int64_t group, int64_t row, int64_t rows, int64_t tap, int64_t taps,
              T* patches) const {
    const ConvPlaces& p = places_;
    const auto& places = forward_ ? p.output : p.input;
    const auto& source_places = forward_ ? p.input : p.output;
    const int64_t channels = forward_ ? p.in_channels : p.out_channels;
    std::fill_n(patches, rows * taps * depth_, T{0});
    for (int64_t r = row; r < row + rows; ++r, patches += taps * depth_) {
      const int64_t at[3] = {r / places[2] / places[1] % places[0], r / places[2] % places[1], r % places[2]};
      const T* image = source +
                       r / ConvPlaces::volume(places) * ConvPlaces::volume(source_places) * channels +
                       group * depth_;
      const auto copy = [&](int64_t t, int64_t place) {
        if (t >= tap && t < tap + taps)
          std::copy_n(image + place * channels, depth_, patches + (t - tap) * depth_);
      };
      // One call each, so that the compiler knows the function and inlines it.
      if (forward_)
        p.each_tap(at, source_places, &ConvPlaces::under, copy);
      else
        p.each_tap(at, source_places, &ConvPlaces::window_over, copy);
    }
  }

  const bool forward_, bias_;
  const int64_t depth_;         // channels of the source in one group
  const int64_t taps_at_once_;  // that are gathered and multiplied together
  // The gradient of the input multiplies with the filter's channels the other way round.
  std::optional<StridedCopy> turn_;
  size_t turned_bytes_ = 0;
};

// The gradient of the filter: its rows are taps with their channels, and the sum goes over all windows.
template <class T>
class ConvOfFilter final : public ConvProducts<T> {
 public:
  ConvOfFilter(const ConvPlaces& places, const KernelRequest& request)
      : ConvProducts<T>(places, request, places.taps() * places.group_in, places.group_out,
                        kDepth * kTileRows,
                        places.batch * ConvPlaces::volume(places.output) * places.taps() * places.group_in *
                            places.out_channels) {}

  void launch(const LaunchArgs& args) const override {
    const ConvPlaces& p = places_;
    const T *x = static_cast<const T*>(args.inputs[0]), *dy = static_cast<const T*>(args.inputs[1]);
    T* out = static_cast<T*>(args.outputs[0]);
    const int64_t windows = p.batch * ConvPlaces::volume(p.output);
    this->each_tile(args.workspace, [&](const auto& tile, T* patches, T* workspace) {
      const int64_t first = tile.group * p.group_out + tile.column;
      const T* product = nullptr;
      for (int64_t window = 0; window < windows; window += kDepth) {
        const int64_t count = std::min(kDepth, windows - window);
        gather(x, tile.group, tile.row, tile.rows, window, count, patches);
        product = static_cast<const T*>(this->multiply_({.a = patches,
                                                         .a_row = 1,
                                                         .a_column = tile.rows,
                                                         .b = dy + window * p.out_channels + first,
                                                         .b_row = p.out_channels,
                                                         .b_column = 1,
                                                         .rows = tile.rows,
                                                         .columns = tile.columns,
                                                         .depth = count,
                                                         .add = window > 0,
                                                         .workspace = workspace}));
      }
      for (int64_t r = 0; r < tile.rows; ++r)
        std::copy_n(product + r * kTileColumns, tile.columns, out + (tile.row + r) * p.out_channels + first);
    });
  }

 private:
  using ConvProducts<T>::places_;

  // Of `count` windows from `window` on, each the channels of rows [row, row + rows) of the filter.
  void gather(const T* x, int64_t group, int64_t row, int64_t rows, int64_t window, int64_t count,
              T* patches) const {
    const ConvPlaces& p = places_;
    std::fill_n(patches, rows * count, T{0});
    for (int64_t w = window; w < window + count; ++w, patches += rows) {
      const int64_t at[3] = {w / p.output[2] / p.output[1] % p.output[0], w / p.output[2] % p.output[1],
                             w % p.output[2]};
      const T* image = x + w / ConvPlaces::volume(p.output) * ConvPlaces::volume(p.input) * p.in_channels +
                       group * p.group_in;
      p.each_tap(at, p.input, &ConvPlaces::under, [&](int64_t tap, int64_t place) {
        const int64_t begin = std::max(tap * p.group_in, row),
                      end = std::min((tap + 1) * p.group_in, row + rows);
        if (begin < end)
          std::copy_n(image + place * p.in_channels + begin - tap * p.group_in, end - begin,
                      patches + begin - row);
      });
    }
  }
};

template <class T>
std::unique_ptr<Kernel> prepare(const KernelRequest& request, const ConvPlaces& places,
                                ConvDirection direction) {
  if (direction == ConvDirection::backprop_filter) return std::make_unique<ConvOfFilter<T>>(places, request);
  return std::make_unique<ConvAtPlaces<T>>(places, request, direction == ConvDirection::forward);
}

}  // namespace

std::unique_ptr<Kernel> prepare_conv_products(const KernelRequest& request) {
  const ConvDirection direction = conv_direction(request.op);
  const Shape& result = request.outputs[0].spec.shape;
  const Shape& x = direction == ConvDirection::backprop_input ? result : request.shape(0);
  const Shape& y = direction == ConvDirection::forward ? result : request.shape(1);
  for (const OperandLayout& operand : request.inputs)
    if (operand.spec.shape.size() == 0) return nullptr;
  if (result.size() == 0) return nullptr;
  const ConvPlaces places(request, x, y);
  // Few channels fill a part of a vector only. For the gradient of the input, whose loops sum along dense
  // channels, and for many narrow groups the plain loops are faster then; else even such products are.
  const bool backprop_input = direction == ConvDirection::backprop_input;
  const int64_t channels = backprop_input ? places.group_in : places.group_out;
  if (channels < kLeastChannels && (backprop_input || places.groups > 1)) return nullptr;
  return request.dtype(0) == DType::float64 ? prepare<double>(request, places, direction)
                                            : prepare<float>(request, places, direction);
}

}  // namespace lockstep::cpu
