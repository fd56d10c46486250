#include "ops/array/strided_copy_cpu.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/parallel.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kTile = 16;
constexpr int64_t kBytesPerThread = 128 << 10;

// Short runs, the channels of a pixel say, are over before memcpy has found out how to copy them.
void copy_run(char* target, const char* source, size_t bytes) {
  constexpr size_t kStep = 16, kShort = 256;
  if (bytes < kStep || bytes > kShort) {
    std::memcpy(target, source, bytes);
    return;
  }
  for (size_t at = 0; at + kStep <= bytes; at += kStep) std::memcpy(target + at, source + at, kStep);
  std::memcpy(target + bytes - kStep, source + bytes - kStep, kStep);
}

// buffer[i][j] = source[j][i] for a whole tile of 32-bit elements, four by four in registers.
void turn_whole(const uint32_t* source, int64_t source_stride, uint32_t* buffer) {
  using Four [[gnu::vector_size(16)]] = uint32_t;
  for (int64_t j = 0; j < kTile; j += 4)
    for (int64_t i = 0; i < kTile; i += 4) {
      Four r[4];
      for (int64_t k = 0; k < 4; ++k) std::memcpy(&r[k], source + (j + k) * source_stride + i, sizeof r[k]);
      const Four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
                 b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
      const Four c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7),
                 d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
      const Four turned[4] = {
          __builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
          __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
      for (int64_t k = 0; k < 4; ++k) std::memcpy(buffer + (i + k) * kTile + j, &turned[k], sizeof turned[k]);
    }
}

// target[i][j] = source[j][i] for i < rows, j < columns; both indices at most kTile. The tile is turned in a
// buffer: lines of memory a power of two apart fall into one set of the cache and would push each other out.
template <class Element>
void turn_tile(const Element* source, int64_t source_stride, Element* target, int64_t target_stride,
               int64_t rows, int64_t columns) {
  alignas(64) Element buffer[kTile * kTile];
  if (std::is_same_v<Element, uint32_t> && rows == kTile && columns == kTile) {
    turn_whole(reinterpret_cast<const uint32_t*>(source), source_stride, reinterpret_cast<uint32_t*>(buffer));
  } else if (rows == kTile) {
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < kTile; ++i) buffer[i * kTile + j] = source[j * source_stride + i];
  } else {
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) buffer[i * kTile + j] = source[j * source_stride + i];
  }
  if (columns == kTile) {
    for (int64_t i = 0; i < rows; ++i)
      std::memcpy(target + i * target_stride, buffer + i * kTile, kTile * sizeof(Element));
  } else {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(buffer + i * kTile, columns, target + i * target_stride);
  }
}

}  // namespace

StridedCopy::StridedCopy(const Shape& shape, const Strides& source, const Strides& target, DType dtype)
    : elements_(shape.size()), width_(size_of(dtype)) {
  std::vector<Dim> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const Dim dim{shape[i], source[i], target[i]};
    if (!dims.empty() && dims.back().source == dim.source * dim.size &&
        dims.back().target == dim.target * dim.size)
      dims.back() = {dims.back().size * dim.size, dim.source, dim.target};
    else
      dims.push_back(dim);
  }
  if (dims.empty()) return;
  inner_ = dims.back();
  dims.pop_back();
  if (inner_.target != 1) {
    kind_ = Inner::single;
  } else if (inner_.source == 1) {
    kind_ = Inner::run;
  } else if (inner_.source == 0) {
    kind_ = Inner::repeat;
  } else if (inner_.source == -1) {
    kind_ = Inner::backwards;
  } else {
    kind_ = Inner::single;
    const auto dense = std::find_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.source == 1; });
    if (dense != dims.end()) {
      kind_ = Inner::tile;
      lanes_ = *dense;
      dims.erase(dense);
    }
  }
  outer_ = std::move(dims);
}

void StridedCopy::run(const void* source, void* target, int threads) const {
  if (elements_ == 0) return;
  const auto as = [&]<class Element>(Element) {
    run_as(static_cast<const Element*>(source), static_cast<Element*>(target), threads);
  };
  switch (width_) {
    case 1: return as(uint8_t{});
    case 2: return as(uint16_t{});
    case 4: return as(uint32_t{});
    default: return as(uint64_t{});
  }
}

// One row of the inner dimension, or a band of kTile rows of a tile copy.
template <class Element>
void StridedCopy::copy_inner(const Element* source, Element* target, int64_t lanes) const {
  const int64_t n = inner_.size;
  switch (kind_) {
    case Inner::run:
      copy_run(reinterpret_cast<char*>(target), reinterpret_cast<const char*>(source),
               static_cast<size_t>(n) * sizeof(Element));
      return;
    case Inner::repeat: std::fill_n(target, n, *source); return;
    case Inner::backwards:  // a stride that the compiler knows, so that it shuffles vectors
      for (int64_t i = 0; i < n; ++i) target[i] = source[-i];
      return;
    case Inner::single:
      for (int64_t i = 0; i < n; ++i) target[i * inner_.target] = source[i * inner_.source];
      return;
    case Inner::tile:
      for (int64_t j = 0; j < n; j += kTile)
        turn_tile(source + j * inner_.source, inner_.source, target + j, lanes_.target, lanes,
                  std::min(kTile, n - j));
      return;
  }
}

template <class Element>
void StridedCopy::run_as(const Element* source, Element* target, int threads) const {
  const int64_t bytes = elements_ * static_cast<int64_t>(sizeof(Element));
  threads = static_cast<int>(std::clamp<int64_t>(bytes / kBytesPerThread, 1, threads));
  if (outer_.empty() && kind_ == Inner::run) {
    parallel_for(inner_.size, 4096, threads, [&](int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin) * sizeof(Element));
    });
    return;
  }
  // Items: every position of the outer dimensions, times the bands of a tile copy.
  const int64_t bands = (lanes_.size + kTile - 1) / kTile;
  const int64_t items = elements_ / inner_.size / lanes_.size * bands;
  parallel_for(items, 1, threads, [&](int64_t begin, int64_t end) {
    // The position counts up like an odometer: divisions only where a thread starts.
    int64_t position[kMaxRank] = {};
    const auto rank = static_cast<int>(outer_.size());
    int64_t from = 0;
    int64_t to = 0;
    int64_t rest = begin / bands;
    for (int d = rank - 1; d >= 0; --d) {
      const Dim& dim = outer_[static_cast<size_t>(d)];
      position[d] = rest % dim.size;
      rest /= dim.size;
      from += position[d] * dim.source;
      to += position[d] * dim.target;
    }
    int64_t band = begin % bands;
    for (int64_t item = begin; item < end; ++item) {
      copy_inner(source + from + band * kTile, target + to + band * kTile * lanes_.target,
                 std::min(kTile, lanes_.size - band * kTile));
      if (++band < bands) continue;
      band = 0;
      for (int d = rank - 1; d >= 0; --d) {
        const Dim& dim = outer_[static_cast<size_t>(d)];
        from += dim.source;
        to += dim.target;
        if (++position[d] < dim.size) break;
        from -= dim.source * dim.size;
        to -= dim.target * dim.size;
        position[d] = 0;
      }
    }
  });
}

}  // namespace lockstep::cpu
