#include "ops/array/strided_copy_cuda.h"

#include <algorithm>

#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"

namespace lockstep::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8;

struct CopyDims {
  int rank = 0;
  Divider size[kMaxRank];  // innermost first
  int64_t source[kMaxRank], target[kMaxRank];

  struct Offsets {
    int64_t source = 0, target = 0;
  };
  __device__ Offsets at(int64_t index) const {
    Offsets offsets;
#pragma unroll 1
    for (int d = 0; d < rank; ++d) {
      const int64_t rest = size[d].quotient(index);
      const auto place = index - rest * size[d].divisor();
      offsets.source += place * source[d];
      offsets.target += place * target[d];
      index = rest;
    }
    return offsets;
  }
};

template <class Unit>
__global__ void copy(const Unit* source, Unit* target, CopyDims dims, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const auto at = dims.at(i);
    target[at.target] = source[at.source];
  }
}

// The source is dense along `lanes`, the target along `runs`.
template <class Unit>
__global__ void transpose(const Unit* source, Unit* target, CopyDims outer, int64_t tiles, Divider lane_tiles,
                          Divider run_tiles, int64_t lanes, int64_t runs, int64_t run_source,
                          int64_t lane_target) {
  __shared__ Unit tile[kTile][kTile + 1];
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t rest = lane_tiles.quotient(t), outside = run_tiles.quotient(rest);
    const int64_t lane = (t - rest * lane_tiles.divisor()) * kTile;
    const int64_t run = (rest - outside * run_tiles.divisor()) * kTile;
    const auto at = outer.at(outside);
    for (int r = threadIdx.y; r < kTile; r += kTileRows)
      if (run + r < runs && lane + threadIdx.x < lanes)
        tile[r][threadIdx.x] = source[at.source + (run + r) * run_source + lane + threadIdx.x];
    __syncthreads();
    for (int r = threadIdx.y; r < kTile; r += kTileRows)
      if (lane + r < lanes && run + threadIdx.x < runs)
        target[at.target + (lane + r) * lane_target + run + threadIdx.x] = tile[threadIdx.x][r];
    __syncthreads();
  }
}

// The same for 2-byte elements, two of which move together on both sides: all places are even.
__global__ void transpose_pairs(const uint16_t* source, uint16_t* target, CopyDims outer, int64_t tiles,
                                Divider lane_tiles, Divider run_tiles, int64_t lanes, int64_t runs,
                                int64_t run_source, int64_t lane_target) {
  __shared__ __align__(4) uint16_t tile[2 * kTile][2 * kTile + 2];
  const int pair = 2 * static_cast<int>(threadIdx.x);
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t rest = lane_tiles.quotient(t), outside = run_tiles.quotient(rest);
    const int64_t lane = (t - rest * lane_tiles.divisor()) * 2 * kTile;
    const int64_t run = (rest - outside * run_tiles.divisor()) * 2 * kTile;
    const auto at = outer.at(outside);
    for (int r = threadIdx.y; r < 2 * kTile; r += kTileRows)
      if (run + r < runs && lane + pair < lanes)
        *reinterpret_cast<uint32_t*>(&tile[r][pair]) =
            *reinterpret_cast<const uint32_t*>(source + at.source + (run + r) * run_source + lane + pair);
    __syncthreads();
    for (int r = threadIdx.y; r < 2 * kTile; r += kTileRows)
      if (lane + r < lanes && run + pair < runs)
        *reinterpret_cast<uint32_t*>(target + at.target + (lane + r) * lane_target + run + pair) =
            tile[pair][r] | static_cast<uint32_t>(tile[pair + 1][r]) << 16;
    __syncthreads();
  }
}

}  // namespace

StridedCopy::StridedCopy(const Shape& shape, const Strides& source, const Strides& target, DType dtype)
    : elements_(shape.size()), width_(size_of(dtype)) {
  if (elements_ == 0) return;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] > 1) dims_.push_back({shape[i], source[i], target[i]});
  const auto length = [](int64_t stride) { return stride < 0 ? -stride : stride; };
  std::stable_sort(dims_.begin(), dims_.end(),
                   [&](const Dim& a, const Dim& b) { return length(a.target) > length(b.target); });
  // Dimensions that are one run of places in both layouts become one.
  std::vector<Dim> merged;
  for (const Dim& dim : dims_) {
    if (!merged.empty() && merged.back().source == dim.source * dim.size &&
        merged.back().target == dim.target * dim.size)
      merged.back() = {merged.back().size * dim.size, dim.source, dim.target};
    else
      merged.push_back(dim);
  }
  dims_ = std::move(merged);
  if (dims_.size() < 2 || dims_.back().source == 1 || dims_.back().target != 1) return;
  for (size_t i = 0; i + 1 < dims_.size(); ++i)
    if (dims_[i].source == 1) lanes_ = static_cast<int>(i);
}

bool StridedCopy::transposes() const {
  constexpr int64_t kFewest = 8;
  return lanes_ >= 0 && dims_[static_cast<size_t>(lanes_)].size >= kFewest && dims_.back().size >= kFewest;
}

// Whether all places and sizes of a transposition are even, so that pairs of elements are words.
bool StridedCopy::in_pairs(const void* source, const void* target) const {
  uint64_t places = (reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(target)) / width_;
  const int last = static_cast<int>(dims_.size()) - 1;
  for (int i = 0; i <= last; ++i) {
    const Dim& dim = dims_[static_cast<size_t>(i)];
    if (i == lanes_ || i == last) places |= static_cast<uint64_t>(dim.size);
    if (i != lanes_) places |= static_cast<uint64_t>(dim.source);
    if (i != last) places |= static_cast<uint64_t>(dim.target);
  }
  return places % 2 == 0;
}

// The widest unit that divides all runs and places.
size_t StridedCopy::unit_of(const void* source, const void* target) const {
  if (dims_.empty() || dims_.back().source != 1 || dims_.back().target != 1) return width_;
  uint64_t places = reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(target) |
                    static_cast<uint64_t>(dims_.back().size) * width_;
  for (size_t i = 0; i + 1 < dims_.size(); ++i)
    places |= static_cast<uint64_t>(dims_[i].source | dims_[i].target) * width_;
  size_t unit = 16;
  while (unit > width_ && places % unit != 0) unit /= 2;
  return unit;
}

void StridedCopy::run(const void* source, void* target, cudaStream_t stream) const {
  if (elements_ == 0) return;
  const bool tiles = transposes();
  const size_t unit = tiles ? width_ : unit_of(source, target);
  const auto factor = static_cast<int64_t>(unit / width_);
  CopyDims dims;
  const size_t last = dims_.size() - 1;
  for (size_t k = dims_.size(); k-- > 0;) {
    if (tiles && (k == last || static_cast<int>(k) == lanes_)) continue;
    const bool inner = k == last;
    dims.size[dims.rank] = Divider(inner ? dims_[k].size / factor : dims_[k].size);
    dims.source[dims.rank] = inner ? dims_[k].source : dims_[k].source / factor;
    dims.target[dims.rank] = inner ? dims_[k].target : dims_[k].target / factor;
    ++dims.rank;
  }
  dispatch_bytes(unit, [&]<class Unit>() {
    const auto* from = static_cast<const Unit*>(source);
    auto* to = static_cast<Unit*>(target);
    if (!tiles) {
      copy<<<blocks_for(elements_ / factor), kThreads, 0, stream>>>(from, to, dims, elements_ / factor);
      return;
    }
    const Dim &lanes = dims_[static_cast<size_t>(lanes_)], &runs = dims_.back();
    const auto start = [&](auto kernel, const auto* in, auto* out, int tile) {
      const int64_t lane_tiles = ceil_div(lanes.size, tile), run_tiles = ceil_div(runs.size, tile);
      const int64_t all = elements_ / lanes.size / runs.size * lane_tiles * run_tiles;
      kernel<<<static_cast<unsigned>(std::min<int64_t>(all, 1 << 20)), dim3(kTile, kTileRows), 0, stream>>>(
          in, out, dims, all, Divider(lane_tiles), Divider(run_tiles), lanes.size, runs.size, runs.source,
          lanes.target);
    };
    if constexpr (sizeof(Unit) == 2)
      if (in_pairs(source, target)) return start(transpose_pairs, from, to, 2 * kTile);
    start(transpose<Unit>, from, to, kTile);
  });
  launched();
}

}  // namespace lockstep::cuda
