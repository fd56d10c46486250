#include "backends/cuda/side_stream.h"

#include "backends/cuda/check.h"

namespace lockstep::cuda {
namespace {

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

// While a stream is captured the event becomes a node of the graph that speaks to streams outside of it.
class CudaEvent final : public StreamEvent {
 public:
  explicit CudaEvent(bool timed) {
    check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  void record(void* stream) override {
    const auto on = static_cast<cudaStream_t>(stream);
    check(cudaEventRecordWithFlags(event_, on,
                                   is_capturing(on) ? cudaEventRecordExternal : cudaEventRecordDefault),
          "cudaEventRecordWithFlags");
  }
  void wait(void* stream) const override {
    const auto on = static_cast<cudaStream_t>(stream);
    check(cudaStreamWaitEvent(on, event_, is_capturing(on) ? cudaEventWaitExternal : cudaEventWaitDefault),
          "cudaStreamWaitEvent");
  }
  int64_t ns_since(const StreamEvent& earlier) const override {
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
  cudaEvent_t event_ = nullptr;
};

class CudaSideStream final : public SideStream {
 public:
  // What it does is waited for: it comes before what the card could do instead.
  explicit CudaSideStream(const Device& device) : device_(device) {
    int least = 0, greatest = 0;
    device_.stream();  // binds the thread
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
          "cudaStreamCreateWithPriority");
  }
  ~CudaSideStream() override {
    // Where the process ends, the driver may have gone first.
    if (cudaStreamSynchronize(stream_) == cudaSuccess) cudaStreamDestroy(stream_);
  }
  void* stream() const override {
    device_.stream();  // binds the thread
    return stream_;
  }
  std::unique_ptr<StreamEvent> event(Timed timed) const override {
    device_.stream();
    return std::make_unique<CudaEvent>(timed == Timed::yes);
  }

 private:
  const Device& device_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<SideStream> make_side_stream(const Device& device) {
  return std::make_unique<CudaSideStream>(device);
}

}  // namespace lockstep::cuda
