// Sums of values by row on GPUs, always in the same order: the values' numbers are sorted by row, and runs of
// one row are summed in chunks; runs that go on over chunks leave parts that are then added in order.
#pragma once

#include "backends/cuda/columns.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/radix_sort.h"
#include "ops/array/indices_cuda.h"

namespace lockstep::cuda {

inline constexpr int64_t kSumChunk = 32;
inline constexpr int64_t kMostBlocksAcross = 65535;  // as the y of a grid; wider rows are gone over by them

// Rows that do not exist come last.
template <class Reader>
__global__ void number_values(Reader indices, int64_t count, uint64_t* keys, uint32_t* numbers) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t row = indices[i];
    keys[i] = static_cast<uint64_t>(row < 0 ? indices.limit : row);
    numbers[i] = static_cast<uint32_t>(i);
  }
}

// The place of a chunk among sorted rows.
struct SumChunk {
  int64_t begin, end;
  bool goes_on_before, goes_on_after;  // the first run, the last run

  __device__ SumChunk(const uint64_t* rows, int64_t count, int64_t chunk)
      : begin(chunk * kSumChunk), end(min(count, begin + kSumChunk)) {
    goes_on_before = begin > 0 && rows[begin - 1] == rows[begin];
    goes_on_after = end < count && rows[end] == rows[end - 1];
  }
};

// Where the sum of a run belongs whose values are sorted up to place `last`: in a tensor of all rows, ...
struct AmongAllRows {
  __device__ static int64_t of(uint64_t row, int64_t /*last*/) { return static_cast<int64_t>(row); }
};
// ... or at that place, in a tensor with as many rows as there are values.
struct AmongValues {
  __device__ static int64_t of(uint64_t /*row*/, int64_t last) { return last; }
};

// parts: [chunks, 2, width], of a chunk's first run and of its last, where they go on. Threads of one y have
// a chunk.
template <class Place, class T>
__global__ void add_runs(const T* values, const uint64_t* rows, const uint32_t* numbers, int64_t count,
                         uint64_t limit, T* out, Sum<T>* parts, int64_t width, int64_t chunks) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (number >= chunks) return;
  const SumChunk chunk(rows, count, number);
  for (int64_t column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; column < width;
       column += static_cast<int64_t>(gridDim.y) * blockDim.x) {
    bool first = true;
    for (int64_t i = chunk.begin; i < chunk.end;) {
      const uint64_t row = rows[i];
      Sum<T> sum = 0;
      for (; i < chunk.end && rows[i] == row; ++i)
        sum += static_cast<Sum<T>>(values[numbers[i] * width + column]);
      if (first && chunk.goes_on_before)
        parts[number * 2 * width + column] = sum;
      else if (i == chunk.end && chunk.goes_on_after)
        parts[(number * 2 + 1) * width + column] = sum;
      else if (row < limit)
        out[Place::of(row, i - 1) * width + column] = static_cast<T>(sum);
      first = false;
    }
  }
}

// The chunk in which a run begins adds what is in those after it.
template <class Place, class T>
__global__ void join_runs(const uint64_t* rows, int64_t count, uint64_t limit, T* out, const Sum<T>* parts,
                          int64_t width) {
  __shared__ Sum<T> shared[kThreads];
  const SumChunk chunk(rows, count, blockIdx.x);
  const uint64_t row = rows[chunk.end - 1];
  if (row >= limit || !chunk.goes_on_after) return;
  if (chunk.goes_on_before && rows[chunk.begin] == row) return;
  int64_t end = chunk.end, beyond = count;  // of the run: behind `end`, up to `beyond`
  while (end < beyond) {
    const int64_t middle = end + (beyond - end) / 2;
    if (rows[middle] == row)
      end = middle + 1;
    else
      beyond = middle;
  }
  const int64_t last = (end - 1) / kSumChunk;
  // All threads of the block go round equally often: sum_column() waits for every one of them, before it
  // writes `shared` as well.
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * blockDim.x; first < width;
       first += static_cast<int64_t>(gridDim.y) * blockDim.x) {
    const int64_t column = first + threadIdx.x;
    Sum<T> sum = 0;
    if (column < width)
      for (int64_t k = blockIdx.x + 1 + threadIdx.y; k <= last; k += blockDim.y)
        sum += parts[k * 2 * width + column];
    sum = sum_column(sum, shared);
    if (threadIdx.y == 0 && column < width)
      out[Place::of(row, end - 1) * width + column] =
          static_cast<T>(parts[(blockIdx.x * 2 + 1) * width + column] + sum);
  }
}

class RowSums {
 public:
  // Of `count` values of `width` elements each; more than none.
  RowSums(int64_t count, int64_t rows, int64_t width, std::source_location where)
      : count_(count), rows_(rows), width_(width), chunks_(ceil_div(count, kSumChunk)) {
    require(count < INT64_C(1) << 32, ErrorCode::unsupported, where,
            "scatter_add: a GPU adds fewer than 2^32 rows, received ", count);
    while (uint64_t{1} << bits_ <= static_cast<uint64_t>(rows_)) ++bits_;
    const auto take = [&](int64_t bytes) {
      const size_t place = workspace_;
      workspace_ += static_cast<size_t>(ceil_div(bytes, 256) * 256);
      return place;
    };
    for (int i = 0; i < 2; ++i) keys_[i] = take(count * 8), numbers_[i] = take(count * 4);
    parts_ = take(chunks_ * 2 * width_ * 8);
    scratch_ = take(static_cast<int64_t>(radix_sort_bytes(count)));
  }

  size_t workspace_bytes() const { return workspace_; }

  // The rows in order, those that do not exist, which are no smaller than the number of rows, behind the
  // others.
  struct Sorted {
    const uint64_t* rows;
    const uint32_t* numbers;  // of the values
  };
  Sorted sort(Indices::Reader indices, char* workspace, cudaStream_t stream) const {
    SortBuffers buffers;
    for (int i = 0; i < 2; ++i) {
      buffers.keys[i] = reinterpret_cast<uint64_t*>(workspace + keys_[i]);
      buffers.values[i] = reinterpret_cast<uint32_t*>(workspace + numbers_[i]);
    }
    number_values<<<blocks_for(count_), kThreads, 0, stream>>>(indices, count_, buffers.keys[0],
                                                               buffers.values[0]);
    const int sorted = radix_sort(buffers, count_, bits_, workspace + scratch_, stream);
    return {buffers.keys[sorted], buffers.values[sorted]};
  }

  // Writes the sums of the rows that have values, and nothing else of `out`.
  template <class Place, class T>
  void add(const Sorted& sorted, const T* values, T* out, char* workspace, cudaStream_t stream) const {
    auto* parts = reinterpret_cast<Sum<T>*>(workspace + parts_);
    const auto limit = static_cast<uint64_t>(rows_);
    int lanes = kThreads;
    while (lanes > 1 && lanes / 2 >= width_) lanes /= 2;
    const dim3 threads(static_cast<unsigned>(lanes), static_cast<unsigned>(kThreads / lanes));
    const auto across = [this](int columns) {
      return static_cast<unsigned>(std::min(ceil_div(width_, columns), kMostBlocksAcross));
    };
    add_runs<Place>
        <<<dim3(static_cast<unsigned>(ceil_div(chunks_, threads.y)), across(lanes)), threads, 0, stream>>>(
            values, sorted.rows, sorted.numbers, count_, limit, out, parts, width_, chunks_);
    if (chunks_ == 1) return;
    // Few threads for the columns: runs may be long, and most chunks have none to join.
    const int columns = std::min(lanes, 32);
    join_runs<Place>
        <<<dim3(static_cast<unsigned>(chunks_), across(columns)),
           dim3(static_cast<unsigned>(columns), static_cast<unsigned>(kThreads / columns)), 0, stream>>>(
            sorted.rows, count_, limit, out, parts, width_);
  }

 private:
  int64_t count_, rows_, width_, chunks_;
  int bits_ = 1;
  size_t workspace_ = 0, keys_[2] = {}, numbers_[2] = {}, parts_ = 0, scratch_ = 0;
};

}  // namespace lockstep::cuda
