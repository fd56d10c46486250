// Rows of a tensor, each of which a warp or a block works on together.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "backends/cuda/block.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/launch.h"

namespace lockstep::cuda {

// How rows of n elements are given to threads; depends on the shape alone.
struct RowGrid {
  static constexpr int64_t kLongest = 1024;  // a warp's
  bool warps;
  int threads;
  unsigned blocks;

  RowGrid(int64_t rows, int64_t n)
      : warps(n <= kLongest),
        threads(warps       ? kThreads
                : n <= 8192 ? 256
                            : 1024),
        blocks(static_cast<unsigned>(
            std::clamp<int64_t>(warps ? ceil_div(rows, kThreads / 32) : rows, 1, INT32_MAX))) {}
};

// The threads that share a row.
template <bool warps>
struct RowTeam {
  __device__ int rank() const { return warps ? threadIdx.x % kWarp : threadIdx.x; }
  __device__ int size() const { return warps ? kWarp : static_cast<int>(blockDim.x); }
  __device__ int64_t first_row() const {
    return warps ? static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp : blockIdx.x;
  }
  __device__ int64_t row_step() const {
    return warps ? static_cast<int64_t>(gridDim.x) * (blockDim.x / kWarp) : gridDim.x;
  }
  template <class C, class Op>
  __device__ C fold(C value, C neutral, Op op) const {
    if constexpr (warps) {
      return warp_fold(value, op);
    } else {
      __shared__ C shared[kWarp];
      return block_fold(value, neutral, shared, op);
    }
  }
  template <class C>
  __device__ C sum(C value) const {
    return fold(value, C(0), Add());
  }
};

// Elements that are moved together: 16 bytes of them.
template <class T>
struct alignas(16) RowUnit {
  static constexpr int kSize = 16 / sizeof(T);
  T element[kSize];

  // How many elements from `p` on lie before the first whole unit.
  static __device__ int before(const T* p, int64_t n) {
    const int misfit = static_cast<int>(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
    return static_cast<int>(min(n, static_cast<int64_t>(misfit == 0 ? 0 : kSize - misfit)));
  }
};

// f(position, element) for the elements of a row that are this thread's.
template <class T, class Team, class F>
__device__ void each_in_row(const Team& team, const T* x, int64_t n, F f) {
  constexpr int kSize = RowUnit<T>::kSize;
  const int head = RowUnit<T>::before(x, n);
  const int64_t tail = head + (n - head) / kSize * kSize;
  if (team.rank() < head) f(team.rank(), x[team.rank()]);
  for (int64_t i = head + team.rank() * kSize; i < tail; i += team.size() * kSize) {
    const auto unit = *reinterpret_cast<const RowUnit<T>*>(x + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) f(i + k, unit.element[k]);
  }
  if (const int64_t i = tail + team.rank(); i < n) f(i, x[i]);
}

// y[i] = f(i, x[i]). y may be x.
template <class T, class Team, class F>
__device__ void map_row(const Team& team, const T* x, T* y, int64_t n, F f) {
  using C = Real<T>;
  constexpr int kSize = RowUnit<T>::kSize;
  const auto one = [&](int64_t i) { y[i] = static_cast<T>(f(i, static_cast<C>(x[i]))); };
  if ((reinterpret_cast<uintptr_t>(x) ^ reinterpret_cast<uintptr_t>(y)) % 16 != 0) {
    for (int64_t i = team.rank(); i < n; i += team.size()) one(i);
    return;
  }
  const int head = RowUnit<T>::before(x, n);
  const int64_t tail = head + (n - head) / kSize * kSize;
  if (team.rank() < head) one(team.rank());
  for (int64_t i = head + team.rank() * kSize; i < tail; i += team.size() * kSize) {
    auto unit = load_pack<T, kSize>(x + i);
    C values[kSize];
    unit.get(values);
#pragma unroll
    for (int k = 0; k < kSize; ++k) values[k] = f(i + k, values[k]);
    unit.set(values);
    store_pack(y + i, unit);
  }
  if (const int64_t i = tail + team.rank(); i < n) one(i);
}

// Whether rows of n elements that begin at these pointers are whole units.
template <class T>
bool in_units(int64_t n, std::initializer_list<const void*> pointers) {
  bool aligned = n % RowUnit<T>::kSize == 0;
  for (const void* p : pointers) aligned = aligned && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  return aligned;
}

}  // namespace lockstep::cuda
