// Asynchronous host-to-device prefetch: copies on a copy stream that overlap with compute.
#pragma once

#include <cstddef>
#include <span>

#include "device/stream.h"

namespace lockstep {

// What DeviceBackend::async_host_copies() gives where the backend has a copy stream. Thread-safe.
class AsyncHostCopies {
 public:
  virtual ~AsyncHostCopies() = default;

  struct Piece {
    const void* source;
    size_t offset, bytes;  // in the target; pieces come in this order and do not overlap
  };
  // Queues copies of the pieces into a block of the device's memory on the copy stream, behind `after`, and
  // records `copied` behind them; the compute stream waits for that, and the calling thread for nothing. What
  // lies between pieces may be written over. True: sources are read until `copied` has happened. False: they
  // may be overwritten.
  virtual bool copy_async(void* target, std::span<const Piece> pieces, const Event& after, Event& copied) = 0;

 protected:
  AsyncHostCopies() = default;
  AsyncHostCopies(const AsyncHostCopies&) = default;
  AsyncHostCopies& operator=(const AsyncHostCopies&) = default;
};

}  // namespace lockstep
