// Devices to which the host's bytes travel beside what they compute.
#pragma once

#include <cstddef>
#include <span>

#include "device/stream.h"

namespace lockstep {

// What DeviceBackend::sends_ahead() gives where a backend can do so. Thread-safe.
class SendsAhead {
 public:
  virtual ~SendsAhead() = default;

  struct Piece {
    const void* source;
    size_t offset, bytes;  // in the target; pieces come in this order and do not overlap
  };
  // Queues copies of the pieces into a block of the device's memory, behind `after`, and records `sent` behind them; the
  // compute stream waits for that, and the calling thread for nothing. What lies between pieces may be written over.
  // True: sources are read until `sent` has happened. False: they may be overwritten.
  virtual bool send_ahead(void* target, std::span<const Piece> pieces, const Event& after, Event& sent) = 0;

 protected:
  SendsAhead() = default;
  SendsAhead(const SendsAhead&) = default;
  SendsAhead& operator=(const SendsAhead&) = default;
};

}  // namespace lockstep
