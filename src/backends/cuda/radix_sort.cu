#include "backends/cuda/radix_sort.h"

#include <cub/device/device_radix_sort.cuh>

#include "backends/cuda/check.h"

namespace lockstep::cuda {

size_t radix_sort_bytes(int64_t count) {
  size_t bytes = 0;
  cub::DoubleBuffer<uint64_t> keys(nullptr, nullptr);
  cub::DoubleBuffer<uint32_t> values(nullptr, nullptr);
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, values, count, 0, 64), "cub::DeviceRadixSort");
  return bytes;
}

int radix_sort(const SortBuffers& buffers, int64_t count, int bits, void* scratch, cudaStream_t stream) {
  size_t bytes = radix_sort_bytes(count);
  cub::DoubleBuffer<uint64_t> keys(buffers.keys[0], buffers.keys[1]);
  cub::DoubleBuffer<uint32_t> values(buffers.values[0], buffers.values[1]);
  check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, values, count, 0, bits, stream),
        "cub::DeviceRadixSort");
  return keys.selector;
}

}  // namespace lockstep::cuda
