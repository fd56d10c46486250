// Sorting and searching on GPUs. Short rows are sorted in shared memory, one block per row; all others
// together by digits, with the row's number above the element in the key.
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/radix_sort.h"
#include "ops/sort/sort.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kLongest = 2048;  // of the rows that are sorted in shared memory

template <class T>
using Order = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// An unsigned integer that is ordered as x: zeros are equal, NaN is the largest.
template <class T>
__device__ Order<T> ordered(T x) {
  using U = Order<T>;
  constexpr U kSign = U(1) << (8 * sizeof(U) - 1);
  if constexpr (kIs16Bit<T>) {
    return ordered(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return ~U(0);
    U bits;
    if constexpr (sizeof(T) == 8)
      bits = static_cast<U>(__double_as_longlong(__dadd_rn(x, 0.0)));  // -0 + 0 is 0
    else
      bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return bits & kSign ? ~bits : bits | kSign;
  } else if constexpr (sizeof(T) == 1) {
    return static_cast<U>(x);
  } else {
    return static_cast<U>(x) ^ kSign;
  }
}

// A bitonic network over `padded` items, a power of two; items behind the row are the last.
template <class T>
__global__ void sort_row(const T* x, T* values, int32_t* places, int n, int padded, int64_t k,
                         bool descending) {
  using U = Order<T>;
  __shared__ U keys[kLongest];
  __shared__ uint32_t at[kLongest];
  const T* row = x + blockIdx.x * static_cast<int64_t>(n);
  const U flip = descending ? ~U(0) : U(0);
  for (int i = threadIdx.x; i < padded; i += blockDim.x) {
    keys[i] = i < n ? ordered(row[i]) ^ flip : ~U(0);
    at[i] = static_cast<uint32_t>(i);
  }
  __syncthreads();
  for (int size = 2; size <= padded; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int t = threadIdx.x; t < padded / 2; t += blockDim.x) {
        const int a = 2 * t - (t & (stride - 1)), b = a + stride;
        const bool swap = keys[a] != keys[b] ? keys[a] > keys[b] : at[a] > at[b];
        if (swap == ((a & size) == 0)) {
          const U key = keys[a];
          const uint32_t place = at[a];
          keys[a] = keys[b], at[a] = at[b];
          keys[b] = key, at[b] = place;
        }
      }
      __syncthreads();
    }
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    places[blockIdx.x * k + i] = static_cast<int32_t>(at[i]);
    values[blockIdx.x * k + i] = row[at[i]];
  }
}

// Keys with the row above 32 bits of order, or 64 bits of order alone.
template <class T>
__global__ void make_keys(const T* x, uint64_t* keys, uint32_t* numbers, int64_t count, Divider n,
                          bool descending) {
  using U = Order<T>;
  const U flip = descending ? ~U(0) : U(0);
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const U key = ordered(x[i]) ^ flip;
    keys[i] = sizeof(U) == 8 ? key : static_cast<uint64_t>(n.quotient(i)) << 32 | key;
    numbers[i] = static_cast<uint32_t>(i);
  }
}

__global__ void rows_as_keys(const uint32_t* numbers, uint64_t* keys, int64_t count, Divider n) {
  for (int64_t i = first_index(); i < count; i += index_step())
    keys[i] = static_cast<uint64_t>(n.quotient(numbers[i]));
}

template <class T>
__global__ void take_first(const T* x, const uint32_t* numbers, T* values, int32_t* places, int64_t results,
                           Divider k, int64_t n) {
  for (int64_t i = first_index(); i < results; i += index_step()) {
    const int64_t row = k.quotient(i);
    const uint32_t number = numbers[row * n + (i - row * k.divisor())];
    places[i] = static_cast<int32_t>(number - row * n);
    values[i] = x[number];
  }
}

class SortKernel final : public Kernel {
 public:
  explicit SortKernel(const KernelRequest& request)
      : attrs_(request.attrs<SortAttrs>()),
        dtype_(request.dtype(0)),
        n_(request.shape(0)[-1]),
        rows_(request.shape(0).drop_last(1).size()) {
    const int64_t count = rows_ * n_;
    if (n_ <= kLongest || count == 0) return;
    require(count < INT64_C(1) << 32, ErrorCode::unsupported, request.where,
            "sort: a GPU sorts fewer than 2^32 elements, received ", request.shape(0));
    while (int64_t{1} << row_bits_ < rows_) ++row_bits_;
    const auto take = [&](int64_t bytes) {
      const size_t place = workspace_;
      workspace_ += static_cast<size_t>(ceil_div(bytes, 256) * 256);
      return place;
    };
    for (int i = 0; i < 2; ++i) keys_[i] = take(count * 8), numbers_[i] = take(count * 4);
    scratch_ = take(static_cast<int64_t>(radix_sort_bytes(count)));
  }

  size_t workspace_bytes() const override { return workspace_; }

  void launch(const LaunchArgs& args) const override {
    if (rows_ * n_ == 0 || attrs_.k == 0) return;
    dispatch_elements(dtype_, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>) n_ <= kLongest ? sort_rows<T>(args) : sort_together<T>(args);
    });
    launched();
  }

 private:
  template <class T>
  void sort_rows(const LaunchArgs& args) const {
    int padded = 2;
    while (padded < n_) padded *= 2;
    const int threads = std::clamp(padded / 2, 32, 512);
    sort_row<<<static_cast<unsigned>(rows_), threads, 0, stream_of(args)>>>(
        static_cast<const T*>(args.inputs[0]), static_cast<T*>(args.outputs[0]),
        static_cast<int32_t*>(args.outputs[1]), static_cast<int>(n_), padded, attrs_.k, attrs_.descending);
  }

  template <class T>
  void sort_together(const LaunchArgs& args) const {
    const cudaStream_t stream = stream_of(args);
    const int64_t count = rows_ * n_;
    char* workspace = static_cast<char*>(args.workspace);
    SortBuffers buffers;
    for (int i = 0; i < 2; ++i) {
      buffers.keys[i] = reinterpret_cast<uint64_t*>(workspace + keys_[i]);
      buffers.values[i] = reinterpret_cast<uint32_t*>(workspace + numbers_[i]);
    }
    const auto* x = static_cast<const T*>(args.inputs[0]);
    constexpr bool kWide = sizeof(Order<T>) == 8;
    make_keys<<<blocks_for(count), kThreads, 0, stream>>>(x, buffers.keys[0], buffers.values[0], count,
                                                          Divider(n_), attrs_.descending);
    int sorted = radix_sort(buffers, count, kWide ? 64 : 32 + row_bits_, workspace + scratch_, stream);
    if (kWide && rows_ > 1) {
      // Sorting once more, by rows, keeps the order inside of them.
      if (sorted == 1) {
        std::swap(buffers.keys[0], buffers.keys[1]);
        std::swap(buffers.values[0], buffers.values[1]);
      }
      rows_as_keys<<<blocks_for(count), kThreads, 0, stream>>>(buffers.values[0], buffers.keys[0], count,
                                                               Divider(n_));
      sorted = radix_sort(buffers, count, row_bits_, workspace + scratch_, stream);
    }
    take_first<<<blocks_for(rows_ * attrs_.k), kThreads, 0, stream>>>(
        x, buffers.values[sorted], static_cast<T*>(args.outputs[0]), static_cast<int32_t*>(args.outputs[1]),
        rows_ * attrs_.k, Divider(attrs_.k), n_);
  }

  SortAttrs attrs_;
  DType dtype_;
  int64_t n_, rows_;
  int row_bits_ = 0;
  size_t workspace_ = 0, keys_[2] = {}, numbers_[2] = {}, scratch_ = 0;
};

template <class T>
__global__ void search(const T* sorted, const T* values, int32_t* out, int64_t count, Divider m, int64_t n,
                       bool right) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const T* row = sorted + m.quotient(i) * n;
    const auto value = ordered(values[i]);
    int64_t first = 0, length = n;
    while (length > 0) {
      const int64_t half = length / 2;
      const auto element = ordered(row[first + half]);
      if (right ? element <= value : element < value) {
        first += half + 1;
        length -= half + 1;
      } else {
        length = half;
      }
    }
    out[i] = static_cast<int32_t>(first);
  }
}

class SearchKernel final : public Kernel {
 public:
  explicit SearchKernel(const KernelRequest& request)
      : right_(request.attrs<SearchsortedAttrs>().right),
        dtype_(request.dtype(0)),
        n_(request.shape(0)[-1]),
        m_(request.shape(1)[-1]),
        values_(request.shape(1).size()) {}

  void launch(const LaunchArgs& args) const override {
    if (values_ == 0) return;
    dispatch_elements(dtype_, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool>)
        search<<<blocks_for(values_), kThreads, 0, stream_of(args)>>>(
            static_cast<const T*>(args.inputs[0]), static_cast<const T*>(args.inputs[1]),
            static_cast<int32_t*>(args.outputs[0]), values_, Divider(m_), n_, right_);
    });
    launched();
  }

 private:
  bool right_;
  DType dtype_;
  int64_t n_, m_, values_;
};

const RegisterKernel registered[] = {{DeviceKind::gpu, kSort, {.prepare = prepare<SortKernel>}},
                                     {DeviceKind::gpu, kSearchsorted, {.prepare = prepare<SearchKernel>}}};

}  // namespace
}  // namespace lockstep::cuda
