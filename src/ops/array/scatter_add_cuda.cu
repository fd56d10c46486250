// scatter_add on GPUs, always in the same order: the values' numbers are sorted by row, and runs of one row are summed in
// chunks; runs that go on over chunks leave parts that are then added in order. Little work is done directly.
#include "backends/cuda/columns.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/radix_sort.h"
#include "ops/array/indices_cuda.h"
#include "ops/array/lookup.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kChunk = 32;

// One thread per element of the result.
template <class T>
__global__ void add_directly(const T* values, Indices::Reader indices, int64_t count, T* out,
                             int64_t elements, Divider width) {
  for (int64_t i = first_index(); i < elements; i += index_step()) {
    const int64_t row = width.quotient(i), column = i - row * width.divisor();
    Sum<T> sum = 0;
    for (int64_t k = 0; k < count; ++k)
      if (indices[k] == row) sum += static_cast<Sum<T>>(values[k * width.divisor() + column]);
    out[i] = static_cast<T>(sum);
  }
}

__global__ void note_all(Indices::Reader indices, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) indices[i];
}

// Rows that do not exist come last.
__global__ void number_values(Indices::Reader indices, int64_t count, uint64_t* keys, uint32_t* numbers) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t row = indices[i];
    keys[i] = static_cast<uint64_t>(row < 0 ? indices.limit : row);
    numbers[i] = static_cast<uint32_t>(i);
  }
}

// The place of a chunk among sorted rows.
struct Chunk {
  int64_t begin, end;
  bool goes_on_before, goes_on_after;  // the first run, the last run

  __device__ Chunk(const uint64_t* rows, int64_t count, int64_t chunk)
      : begin(chunk * kChunk), end(min(count, begin + kChunk)) {
    goes_on_before = begin > 0 && rows[begin - 1] == rows[begin];
    goes_on_after = end < count && rows[end] == rows[end - 1];
  }
};

// parts: [chunks, 2, width], of a chunk's first run and of its last, where they go on. Threads of one y have a chunk.
template <class T>
__global__ void add_runs(const T* values, const uint64_t* rows, const uint32_t* numbers, int64_t count,
                         uint64_t limit, T* out, Sum<T>* parts, int64_t width, int64_t chunks) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  if (column >= width || number >= chunks) return;
  const Chunk chunk(rows, count, number);
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
      out[static_cast<int64_t>(row) * width + column] = static_cast<T>(sum);
    first = false;
  }
}

// The chunk in which a run begins adds what is in those after it.
template <class T>
__global__ void join_runs(const uint64_t* rows, int64_t count, uint64_t limit, T* out, const Sum<T>* parts,
                          int64_t width) {
  __shared__ Sum<T> shared[kThreads];
  const Chunk chunk(rows, count, blockIdx.x);
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
  const int64_t last = (end - 1) / kChunk;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
  Sum<T> sum = 0;
  if (column < width)
    for (int64_t k = blockIdx.x + 1 + threadIdx.y; k <= last; k += blockDim.y)
      sum += parts[k * 2 * width + column];
  sum = sum_column(sum, shared);
  if (threadIdx.y == 0 && column < width)
    out[static_cast<int64_t>(row) * width + column] =
        static_cast<T>(parts[(blockIdx.x * 2 + 1) * width + column] + sum);
}

class ScatterAddKernel final : public Kernel {
 public:
  explicit ScatterAddKernel(const KernelRequest& request)
      : indices_(request, 1, request.attrs<ScatterAddAttrs>().rows),
        dtype_(request.dtype(0)),
        rows_(request.attrs<ScatterAddAttrs>().rows) {
    const Shape& out = request.outputs[0].spec.shape;
    for (int i = 1; i < out.rank(); ++i) width_ *= out[i];
    const int64_t count = indices_.count();
    constexpr int64_t kFew = 256, kLittle = 1 << 22;
    direct_ = count == 0 || (count <= kFew && count * rows_ * width_ <= kLittle);
    if (direct_) return;
    require(count < INT64_C(1) << 32, ErrorCode::unsupported, request.where,
            "scatter_add: a GPU adds fewer than 2^32 rows, received ", count);
    chunks_ = ceil_div(count, kChunk);
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

  size_t workspace_bytes() const override { return workspace_; }

  void launch(const LaunchArgs& args) const override {
    if (width_ == 0) return;
    if (rows_ == 0 && indices_.count() > 0)  // none of them exists
      note_all<<<1, kThreads, 0, stream_of(args)>>>(indices_.read(args), indices_.count());
    if (rows_ == 0) return launched();
    dispatch_elements(dtype_, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>) direct_ ? run_directly<T>(args) : run<T>(args);
    });
    launched();
  }

 private:
  template <class T>
  void run_directly(const LaunchArgs& args) const {
    add_directly<<<blocks_for(rows_ * width_), kThreads, 0, stream_of(args)>>>(
        static_cast<const T*>(args.inputs[0]), indices_.read(args), indices_.count(),
        static_cast<T*>(args.outputs[0]), rows_ * width_, Divider(width_));
  }

  template <class T>
  void run(const LaunchArgs& args) const {
    const cudaStream_t stream = stream_of(args);
    const int64_t count = indices_.count();
    char* workspace = static_cast<char*>(args.workspace);
    SortBuffers buffers;
    for (int i = 0; i < 2; ++i) {
      buffers.keys[i] = reinterpret_cast<uint64_t*>(workspace + keys_[i]);
      buffers.values[i] = reinterpret_cast<uint32_t*>(workspace + numbers_[i]);
    }
    auto* parts = reinterpret_cast<Sum<T>*>(workspace + parts_);
    auto* out = static_cast<T*>(args.outputs[0]);
    const auto limit = static_cast<uint64_t>(rows_);
    number_values<<<blocks_for(count), kThreads, 0, stream>>>(indices_.read(args), count, buffers.keys[0],
                                                              buffers.values[0]);
    check(cudaMemsetAsync(out, 0, static_cast<size_t>(rows_ * width_) * sizeof(T), stream),
          "cudaMemsetAsync");
    const int sorted = radix_sort(buffers, count, bits_, workspace + scratch_, stream);
    int lanes = kThreads;
    while (lanes > 1 && lanes / 2 >= width_) lanes /= 2;
    const dim3 threads(static_cast<unsigned>(lanes), static_cast<unsigned>(kThreads / lanes));
    const auto across = static_cast<unsigned>(ceil_div(width_, lanes));
    add_runs<<<dim3(static_cast<unsigned>(ceil_div(chunks_, threads.y)), across), threads, 0, stream>>>(
        static_cast<const T*>(args.inputs[0]), buffers.keys[sorted], buffers.values[sorted], count, limit,
        out, parts, width_, chunks_);
    if (chunks_ == 1) return;
    // Few threads for the columns: runs may be long, and most chunks have none to join.
    const int columns = std::min(lanes, 32);
    join_runs<<<dim3(static_cast<unsigned>(chunks_), static_cast<unsigned>(ceil_div(width_, columns))),
                dim3(static_cast<unsigned>(columns), static_cast<unsigned>(kThreads / columns)), 0, stream>>>(
        buffers.keys[sorted], count, limit, out, parts, width_);
  }

  Indices indices_;
  DType dtype_;
  int64_t rows_, width_ = 1, chunks_ = 0;
  bool direct_ = true;
  int bits_ = 1;
  size_t workspace_ = 0, keys_[2] = {}, numbers_[2] = {}, parts_ = 0, scratch_ = 0;
};

const RegisterKernel registered(DeviceKind::gpu, kScatterAdd, {.prepare = prepare<ScatterAddKernel>});

}  // namespace
}  // namespace lockstep::cuda
