// Columns of a matrix [rows, n]: sums over its rows, and passes in which a thread keeps to its columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "backends/cuda/block.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/launch.h"

namespace lockstep::cuda {

// Blocks of `lanes` columns times kThreads / lanes rows; the rows are cut into chunks. All of it depends on
// the shape alone, and so does the order of sums.
struct ColumnGrid {
  int lanes = 32;
  int64_t chunks, chunk_rows;
  dim3 threads, blocks;

  // A thread has `unit` neighbouring columns. `most_blocks`: about as many as there are to be, where there
  // are rows for them.
  ColumnGrid(int64_t rows, int64_t n, int unit = 1, int64_t max_chunks = 65535, int64_t most_blocks = 1024) {
    constexpr int64_t kRowsPerThread = 8;
    while (lanes > 1 && lanes / 2 * unit >= n) lanes /= 2;
    const int64_t across = ceil_div(n, lanes * unit), team = kThreads / lanes;
    chunks = std::clamp<int64_t>(most_blocks / across, 1,
                                 std::min(max_chunks, std::max<int64_t>(1, rows / (team * kRowsPerThread))));
    chunk_rows = std::max<int64_t>(1, ceil_div(rows, chunks));
    chunks = std::max<int64_t>(1, ceil_div(rows, chunk_rows));
    threads = dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(team));
    blocks = dim3(static_cast<unsigned>(across), static_cast<unsigned>(chunks));
  }
};

// Threads and blocks that join what the chunks have left for each of n columns: 32 threads per column.
inline dim3 join_threads() { return dim3(kThreads / 32, 32); }
inline unsigned join_blocks(int64_t n) { return static_cast<unsigned>(ceil_div(n, kThreads / 32)); }

// The most chunks that one of join_threads() joins: all are in its registers, so that it waits for memory
// once.
inline constexpr int kChunksPerThread = 17;
inline constexpr int64_t kMostChunks = kChunksPerThread * 32;

// Reads what chunks left, a value every `step` elements from `at` on: values[k] is that of chunk
// threadIdx.y + k * blockDim.y, 0 behind the last.
template <class C>
__device__ void load_chunks(const C* at, int64_t step, int64_t chunks, C (&values)[kChunksPerThread]) {
#pragma unroll
  for (int k = 0; k < kChunksPerThread; ++k) {
    const int64_t chunk = threadIdx.y + static_cast<int64_t>(k) * blockDim.y;
    values[k] = chunk < chunks ? at[chunk * step] : C(0);
  }
}

// Where a thread is in a block of columns, and the columns of the block if each of its x threads has `unit`.
__device__ inline int thread_in_block() { return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); }
template <int unit>
__device__ int columns_of_block() {
  return static_cast<int>(blockDim.x) * unit;
}
// f(its number in the block, its number) for each of the columns that are those of `block`, in a thread of
// its own.
template <int unit, class F>
__device__ void each_column(int64_t block, int64_t n, F f) {
  const int own = thread_in_block();
  const int64_t column = block * columns_of_block<unit>() + own;
  if (own < columns_of_block<unit>() && column < n) f(own, column);
}

// Folds over the y threads of a block of `threads`, whose x threads, a power of two up to 32, have `unit`
// neighbouring columns each: the threads of a warp by shuffles, its results into `shared`, which has
// threads * unit places and which nobody else still uses. Behind it folded_column() is the result of any of
// the block's columns.
template <int threads, int unit, class C, class Op>
__device__ void fold_columns(C (&values)[unit], C* shared, Op op) {
  const int lanes = static_cast<int>(blockDim.x), thread = thread_in_block();
#pragma unroll
  for (int k = 0; k < unit; ++k)
    for (int step = kWarp / 2; step >= lanes; step /= 2)
      values[k] = op(values[k], shuffle_xor(values[k], step));
  if (thread % kWarp < lanes) {
    C* const to = shared + thread / kWarp * columns_of_block<unit>() + static_cast<int>(threadIdx.x) * unit;
#pragma unroll
    for (int k = 0; k < unit; ++k) to[k] = values[k];
  }
  __syncthreads();
}
template <int threads, int unit, class C, class Op>
__device__ C folded_column(const C* shared, int column, Op op) {
  C value = shared[column];
#pragma unroll
  for (int warp = 1; warp < threads / kWarp; ++warp)
    value = op(value, shared[warp * columns_of_block<unit>() + column]);
  return value;
}
// Sums where a thread has one column: in all threads of the column. `shared` has kThreads places.
template <class C>
__device__ C sum_column(C value, C* shared) {
  C values[1] = {value};
  __syncthreads();
  fold_columns<kThreads>(values, shared, Add());
  return folded_column<kThreads, 1>(shared, static_cast<int>(threadIdx.x), Add());
}

// f.operator()<rows>(row) for rows `row`, row + blockDim.y, ...: `most` at a time, so that their loads are
// under way together, and what is left by halves of that.
template <int most, class F>
__device__ void each_row_from(int64_t row, int64_t last, F f) {
  for (; row + (most - 1) * blockDim.y < last; row += most * blockDim.y) f.template operator()<most>(row);
  if constexpr (most > 1) each_row_from<most / 2>(row, last, f);
}
// Those of a thread.
template <int most, class F>
__device__ void each_row(int64_t first, int64_t last, F f) {
  each_row_from<most>(first + threadIdx.y, last, f);
}

// Neighbouring columns of a thread.
template <int unit, class T>
__device__ void load_columns(const T* p, Real<T> (&values)[unit]) {
  load_pack<T, unit>(p).get(values);
}
template <int unit, class T>
__device__ void store_columns(T* p, const Real<T> (&values)[unit]) {
  Pack<T, unit> pack;
  pack.set(values);
  store_pack(p, pack);
}

// Calls f.template operator()<unit>() with the columns of type T that fit into 16 bytes where n and these
// pointers allow it, else with 1.
template <class T, class F>
void dispatch_unit(int64_t n, std::initializer_list<const void*> pointers, F f) {
  constexpr int kUnit = 16 / sizeof(T);
  bool aligned = n % kUnit == 0;
  for (const void* p : pointers) aligned = aligned && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  aligned ? f.template operator()<kUnit>() : f.template operator()<1>();
}

}  // namespace lockstep::cuda
