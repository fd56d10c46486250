#include "data/row_gather.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "data/host.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// Less than this is not worth giving to one more thread of a team.
constexpr size_t kThreadBytes = size_t{16} << 10;

// Rows [begin, end) of `bytes` each to their places behind `target`; row_at(i) is where row i begins.
template <class RowAt>
void copy_rows(const RowAt& row_at, size_t bytes, size_t begin, size_t end, char* target) {
  if (bytes == 8) {  // labels: a copy of known size is one instruction
    for (size_t i = begin; i < end; ++i) std::memcpy(target + 8 * i, row_at(i), 8);
    return;
  }
  // Rows are anywhere: with every cache line that is copied, the same one of a later row is prefetched.
  constexpr size_t kLine = 64, kPrefetchDistance = 2;
  for (size_t i = begin; i < end; ++i) {
    const char *from = row_at(i), *later = row_at(std::min(i + kPrefetchDistance, end - 1));
    char* to = target + i * bytes;
    size_t at = 0;
    for (; at + kLine <= bytes; at += kLine) {
      __builtin_prefetch(later + at);
      std::memcpy(to + at, from + at, kLine);
    }
    __builtin_prefetch(later + at);
    std::memcpy(to + at, from + at, bytes - at);
  }
}

}  // namespace

void RowGather::claim(const TensorList& arrays, std::span<const int64_t> rows, TensorList& batch) {
  copies_.clear();
  rows_ = rows;
  batch.resize(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    Shape shape = arrays[i].shape();
    shape[0] = static_cast<int64_t>(rows.size());
    const TensorSpec spec{arrays[i].dtype(), shape};
    if (!batch[i].defined() || !(batch[i].spec() == spec) || !sole_owner(batch[i]))
      batch[i] = Tensor::empty(spec.dtype, spec.shape, host_device());
    copies_.push_back({static_cast<const char*>(arrays[i].impl()->data()),
                       static_cast<char*>(batch[i].impl()->data()), spec.bytes() / rows.size()});
  }
}

void RowGather::copy(int threads) const {
  for (const Copy& copy : copies_) {
    const auto rows_per_thread = static_cast<int64_t>(kThreadBytes / std::max<size_t>(1, copy.row_bytes) + 1);
    parallel_for(
        static_cast<int64_t>(rows_.size()), rows_per_thread, threads, [&](int64_t begin, int64_t end) {
          const auto row = [&](size_t i) {
            return copy.source + static_cast<size_t>(rows_[i]) * copy.row_bytes;
          };
          copy_rows(row, copy.row_bytes, static_cast<size_t>(begin), static_cast<size_t>(end), copy.target);
        });
  }
}

}  // namespace lockstep::data
