// Bytes in the order of a stream, on a card.
#pragma once

#include "device/stream_work.h"

namespace lockstep::cuda {

class CudaStreamWork final : public StreamWork {
 public:
  void copy(void* target, const void* source, size_t bytes, void* stream) const override;
  void fill(void* target, uint64_t pattern, size_t width, size_t count, void* stream) const override;
  void read(void* host, const void* source, size_t bytes, void* stream) const override;
  int64_t timed(const std::function<void()>& launch, void* stream) const override;
};

}  // namespace lockstep::cuda
