// Sorting pairs of 64-bit keys and 32-bit values on a GPU; equal keys keep their order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

// Two sets of arrays of `count` elements each: the sorted one is that which radix_sort() says.
struct SortBuffers {
  uint64_t* keys[2];
  uint32_t* values[2];
};

size_t radix_sort_bytes(int64_t count);

// By bits [0, bits) of the keys in set 0; returns the set that holds the result, which depends on count and
// bits alone. `scratch` has radix_sort_bytes(count) bytes.
int radix_sort(const SortBuffers& buffers, int64_t count, int bits, void* scratch, cudaStream_t stream);

}  // namespace lockstep::cuda
