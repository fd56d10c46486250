// Streams and events: the order in which devices work.
//
// What is queued on a stream happens in the order of the calls; streams know nothing of each other but by
// events. A CPU's stream does everything at once on the calling thread (host_stream.h), a GPU's later and
// beside it: code that is right for the second is right for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/worker.h"

namespace lockstep {

class DeviceBackend;
class Stream;

// A place in the order of a stream. It may be recorded again and again: who waits, waits for what was
// recorded last when it said so, and for nothing where it never was. One thread records it at a time; any may
// wait.
class Event {
 public:
  enum class Timed : bool { no, yes };

  Event() = default;
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Behind all that is queued on the stream, one of the event's device, now. On a stream that is being
  // captured (DeviceBackend::capture_graph): there in every replay.
  void record(Stream& stream) {
    queue_record(stream);
    recordings_.raise();
  }
  // What is queued on the stream, of whichever device, from now on happens after it; captured as above.
  virtual void wait(Stream& stream) const = 0;
  // The calling thread waits until it has happened. Throws deferred device errors of kernels before
  // it, as Stream::synchronize() does.
  virtual void synchronize() const = 0;
  // From `earlier`, an event of the same device, to this one, where both were made to be timed; 0 where one
  // of them has not happened yet.
  virtual int64_t ns_since(const Event& earlier) const = 0;

  // Calls of record() so far; replays of a captured graph are none.
  uint32_t recordings() const { return recordings_.value(); }
  // The calling thread waits until there have been `count`: wait() and synchronize() then mean a record()
  // that another thread was yet to make. Of a CPU's event, that it has happened.
  void wait_recorded(uint32_t count, Waiting waiting) const { recordings_.wait(count, waiting); }

 private:
  virtual void queue_record(Stream& stream) = 0;

  WaitableCounter recordings_;
};

// A queue of one device's work. The compute stream is thread-safe; others are for one thread at a time, and
// end when all that was queued there has happened.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  DeviceBackend& device() const { return device_; }
  // False: what is queued here has happened when the call returns. Seldom worth asking: where a launch is so
  // cheap that preparing for one later would cost more than it saves.
  bool asynchronous() const { return asynchronous_; }

  // Between two places that kernels of the device can reach and that do not overlap.
  virtual void copy(void* target, const void* source, size_t bytes) = 0;
  // `count` times the lowest `width` bytes (1, 2, 4 or 8) of `pattern`.
  virtual void fill(void* target, uint64_t pattern, size_t width, size_t count) = 0;
  // To the host's memory; waits for it. Throws deferred device errors of kernels before it.
  virtual void read(void* host, const void* source, size_t bytes) = 0;
  // Returns when all that was queued has happened. Throws deferred device errors: kernels launched earlier
  // met bad values (a label out of range), as CUDA reports asynchronous errors at the next synchronization.
  virtual void synchronize() = 0;
  // Calls `launch`, waits for what it queued here, and gives the nanoseconds that it took on the device.
  virtual int64_t timed(const std::function<void()>& launch) = 0;

  // What is queued here from now on happens after all that is queued on the other stream now.
  void wait_for(Stream& other);

 protected:
  Stream(DeviceBackend& device, bool asynchronous) : device_(device), asynchronous_(asynchronous) {}

 private:
  DeviceBackend& device_;
  const bool asynchronous_;
  std::mutex handover_mutex_;
  std::unique_ptr<Event> handover_;  // for those who wait_for() this one; null: nobody did
};

// One launch of those that a graph is captured from.
struct CapturedLaunch {
  std::function<void(Stream&)> launch;
  std::vector<size_t> after;  // earlier ones that must have happened
};

// Launches that are replayed as one. The memory that they read and write, and the kernels that made them,
// must be there as long as this is.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  // Queues all of them on a stream of the device.
  virtual void replay(Stream& stream) = 0;
};

}  // namespace lockstep
