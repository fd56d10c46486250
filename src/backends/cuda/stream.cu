#include "backends/cuda/stream.h"

#include <atomic>

#include "backends/cuda/deferred_errors.h"
#include "backends/cuda/elements.h"
#include "backends/cuda/index.h"
#include "backends/cuda/launch.h"

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

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

// While a stream is captured the event becomes a node of the graph that speaks to streams outside of it.
class CudaEvent final : public Event {
 public:
  CudaEvent(const DeviceBackend& device, Timed timed) {
    device.bind_thread();
    check(cudaEventCreateWithFlags(&event_, timed == Timed::yes ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  void wait(Stream& stream) const override {
    if (!stream.asynchronous()) return synchronize();
    stream.device().bind_thread();
    const cudaStream_t on = cuda_stream(stream);
    check(cudaStreamWaitEvent(on, event_, is_capturing(on) ? cudaEventWaitExternal : cudaEventWaitDefault),
          "cudaStreamWaitEvent");
  }
  void synchronize() const override {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    if (const CudaStream* on = recorded_on_.load(std::memory_order_relaxed)) on->throw_deferred_errors();
  }
  int64_t ns_since(const Event& earlier) const override {
    float milliseconds = 0;
    const cudaError_t status =
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event_, event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // it would be reported again by the next call that asks
      return 0;
    }
    check(status, "cudaEventElapsedTime");
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  void queue_record(Stream& stream) override {
    stream.device().bind_thread();
    const cudaStream_t on = cuda_stream(stream);
    const bool captured = is_capturing(on);
    check(cudaEventRecordWithFlags(event_, on, captured ? cudaEventRecordExternal : cudaEventRecordDefault),
          "cudaEventRecordWithFlags");
    if (!captured) recorded_on_.store(static_cast<CudaStream*>(&stream), std::memory_order_relaxed);
  }

  cudaEvent_t event_ = nullptr;
  std::atomic<const CudaStream*> recorded_on_{nullptr};
};

}  // namespace

std::unique_ptr<Event> make_event(const DeviceBackend& device, Event::Timed timed) {
  return std::make_unique<CudaEvent>(device, timed);
}

CudaStream::CudaStream(DeviceBackend& device, Priority priority, const CudaStream* captures)
    : Stream(device, true), captures_(captures) {
  device.bind_thread();
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking,
                                     priority == Priority::urgent ? greatest : 0),
        "cudaStreamCreateWithPriority");
}

CudaStream::~CudaStream() {
  // Where the process ends, the driver may have gone first.
  if (cudaStreamSynchronize(handle_) == cudaSuccess) cudaStreamDestroy(handle_);
}

void CudaStream::copy(void* target, const void* source, size_t bytes) {
  if (bytes == 0) return;
  device().bind_thread();
  check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, handle_),
        "cudaMemcpyAsync on the device");
}

void CudaStream::fill(void* target, uint64_t pattern, size_t width, size_t count) {
  if (count == 0) return;
  device().bind_thread();
  if (width == 1 || pattern == 0) {
    check(cudaMemsetAsync(target, static_cast<unsigned char>(pattern), width * count, handle_),
          "cudaMemsetAsync");
    return;
  }
  dispatch_bytes(width, [&]<class Unit>() {
    if constexpr (!std::is_same_v<Unit, uint4>)
      fill_units<<<blocks_for(static_cast<int64_t>(count)), kThreads, 0, handle_>>>(
          static_cast<Unit*>(target), static_cast<Unit>(pattern), static_cast<int64_t>(count));
  });
  launched();
}

void CudaStream::read(void* host, const void* source, size_t bytes) {
  device().bind_thread();
  check(cudaMemcpyAsync(host, source, bytes, cudaMemcpyDeviceToHost, handle_), "cudaMemcpyAsync to the host");
  synchronize();
}

void CudaStream::synchronize() {
  device().bind_thread();
  check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
  throw_deferred_errors();
}

void CudaStream::throw_deferred_errors() const {
  cuda::throw_deferred_errors(*this);
  if (captures_) cuda::throw_deferred_errors(*captures_);
}

int64_t CudaStream::timed(const std::function<void()>& launch) {
  // The device waits until all is queued, so that no time of the host gets in.
  constexpr uint64_t kHostTime = 40000;
  device().bind_thread();
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  pause<<<1, 1, 0, handle_>>>(kHostTime);
  check(cudaEventRecord(begin, handle_), "cudaEventRecord");
  launch();
  check(cudaEventRecord(end, handle_), "cudaEventRecord");
  check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

}  // namespace lockstep::cuda
