// How the launches of a phase synchronise with other streams: events that they wait for, and marks that they
// reach.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "device/stream.h"

namespace lockstep::execute {

struct MemoryRange {
  const char* begin;
  const char* end;
  bool meets(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

// Learns that launches have been made.
class LaunchMark {
 public:
  virtual ~LaunchMark() = default;
  // Behind those launches on `stream`. While the stream is being captured: there in every replay.
  virtual void reach(Stream& stream) = 0;
};

struct PhaseSync {
  // Launches that touch the memory wait for the events.
  struct Wait {
    std::vector<MemoryRange> memory;
    std::vector<const Event*> events;
  };
  // The mark is reached when the first `launches` of the plan have been made.
  struct Mark {
    size_t launches = 0;
    LaunchMark* mark = nullptr;
  };
  std::span<const Wait> waits;
  std::span<const Mark> marks;  // in the order of their launches

  bool empty() const { return waits.empty() && marks.empty(); }
};

}  // namespace lockstep::execute
