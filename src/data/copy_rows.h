// Rows from anywhere in an array, one behind the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace lockstep::data {

// Rows [begin, end) of `bytes` each to their places behind `target`; row_at(i) is where row i begins.
template <class RowAt>
void copy_rows(const RowAt& row_at, size_t bytes, size_t begin, size_t end, char* target) {
  // Where the processor's own prefetching has seen enough of a row to go on by itself.
  constexpr size_t kLine = 64, kAheadBytes = 8 * kLine, kRowsAhead = 2;
  if (bytes == 8) {  // labels: a copy of known size is one instruction
    for (size_t i = begin; i < end; ++i) std::memcpy(target + 8 * i, row_at(i), 8);
    return;
  }
  for (size_t i = begin; i < end; ++i) {
    // Rows are anywhere: the next ones are on their way while this one is copied.
    if (i + kRowsAhead < end)
      for (size_t at = 0; at < std::min(bytes, kAheadBytes); at += kLine)
        __builtin_prefetch(row_at(i + kRowsAhead) + at);
    std::memcpy(target + i * bytes, row_at(i), bytes);
  }
}

}  // namespace lockstep::data
