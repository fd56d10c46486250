// Streams and events of GPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "device/device_backend.h"

namespace lockstep::cuda {

// Binds the calling thread to its device where CUDA asks for it.
class CudaStream final : public Stream {
 public:
  // `urgent`: others wait for what it does, so that it comes before what the GPU could do instead.
  // `captures`: where the graphs are captured that this stream replays; their kernels' deferred errors show
  // where this one is waited for.
  enum class Priority : bool { normal, urgent };
  explicit CudaStream(DeviceBackend& device, Priority priority = Priority::normal,
                      const CudaStream* captures = nullptr);
  ~CudaStream() override;

  cudaStream_t handle() const { return handle_; }

  void copy(void* target, const void* source, size_t bytes) override;
  void fill(void* target, uint64_t pattern, size_t width, size_t count) override;
  void read(void* host, const void* source, size_t bytes) override;
  void synchronize() override;
  int64_t timed(const std::function<void()>& launch) override;

  // When the host has waited for it: the deferred errors of its kernels.
  void throw_deferred_errors() const;

 private:
  const CudaStream* const captures_;
  cudaStream_t handle_ = nullptr;
};

// The CUDA handle of a GPU's stream.
inline cudaStream_t cuda_stream(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).handle();
}

std::unique_ptr<Event> make_event(const DeviceBackend& device, Event::Timed timed);

}  // namespace lockstep::cuda
