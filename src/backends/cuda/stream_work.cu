#include "backends/cuda/stream_work.h"

#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/report.h"

namespace lockstep::cuda {
namespace {

template <class Unit>
__global__ void fill_units(Unit* target, Unit value, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) target[i] = value;
}

// Keeps the stream busy for so long.
__global__ void pause(uint64_t nanoseconds) {
  uint64_t start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}

}  // namespace

int64_t CudaStreamWork::timed(const std::function<void()>& launch, void* stream) const {
  // The device waits until all is queued, so that no time of the host gets in.
  constexpr uint64_t kHostTime = 40000;
  const auto on = static_cast<cudaStream_t>(stream);
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  pause<<<1, 1, 0, on>>>(kHostTime);
  check(cudaEventRecord(begin, on), "cudaEventRecord");
  launch();
  check(cudaEventRecord(end, on), "cudaEventRecord");
  check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

void CudaStreamWork::copy(void* target, const void* source, size_t bytes, void* stream) const {
  if (bytes > 0)
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
          "cudaMemcpyAsync");
}

void CudaStreamWork::fill(void* target, uint64_t pattern, size_t width, size_t count, void* stream) const {
  if (count == 0) return;
  if (width == 1 || pattern == 0) {
    check(cudaMemsetAsync(target, static_cast<unsigned char>(pattern), width * count,
                          static_cast<cudaStream_t>(stream)),
          "cudaMemsetAsync");
    return;
  }
  dispatch_bytes(width, [&]<class Unit>() {
    if constexpr (!std::is_same_v<Unit, uint4>)
      fill_units<<<blocks_for(static_cast<int64_t>(count)), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          static_cast<Unit*>(target), static_cast<Unit>(pattern), static_cast<int64_t>(count));
  });
  launched();
}

void CudaStreamWork::read(void* host, const void* source, size_t bytes, void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  check(cudaMemcpyAsync(host, source, bytes, cudaMemcpyDeviceToHost, on), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  throw_findings(stream);
}

}  // namespace lockstep::cuda
