// A second stream of a device, for what happens beside its own: sums of gradients while the backward pass goes on.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/device/device.h"

namespace lockstep {

// A place in the order of a stream, for which other streams wait. It may be recorded again and again: who waits, waits
// for what was recorded last when it said so.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  // Behind all that is queued on the stream now. Where the stream's launches are being recorded (Device::record), here in
  // every repetition of them.
  virtual void record(void* stream) = 0;
  // What is queued on the stream from now on happens after it; recorded as above.
  virtual void wait(void* stream) const = 0;
  // From `earlier`, an event of the same device, to this one, where both were made to be timed; 0 where one of them has
  // not happened yet.
  virtual int64_t ns_since(const StreamEvent& earlier) const = 0;
};

// One thread at a time. Ends when all that was queued there has happened.
class SideStream {
 public:
  virtual ~SideStream() = default;
  // With the calling thread bound to its device.
  virtual void* stream() const = 0;
  enum class Timed : bool { no, yes };
  virtual std::unique_ptr<StreamEvent> event(Timed timed = Timed::no) const = 0;
};

// What a device with a stream is besides, where it can have more of them.
class HasSideStreams {
 public:
  virtual ~HasSideStreams() = default;
  virtual std::unique_ptr<SideStream> side_stream() const = 0;
};

// Null: the device has no stream, or can have but one.
inline const HasSideStreams* side_streams(const Device& device) {
  return dynamic_cast<const HasSideStreams*>(&device);
}

}  // namespace lockstep
