// What kernels written in CUDA share on the host's side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "backends/cuda/check.h"
#include "backends/cuda/stream.h"
#include "graph/kernel.h"

namespace lockstep::cuda {

inline constexpr int kThreads = 256;  // of a block, where nothing asks for another number

inline cudaStream_t stream_of(const LaunchArgs& args) { return cuda_stream(args.stream); }

template <class A, class B>
constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// Blocks for a loop over `items` that strides over the grid.
inline unsigned blocks_for(int64_t items, int threads = kThreads) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(items, threads), 1, 1 << 20));
}

// After every launch.
inline void launched(std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), "launching a kernel", where);
}

template <class K>
std::unique_ptr<Kernel> prepare(const KernelRequest& request) {
  return std::make_unique<K>(request);
}

}  // namespace lockstep::cuda
