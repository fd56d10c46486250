// The dependencies between the launches of a captured graph.
#pragma once

#include <cstddef>
#include <vector>

#include "execute/phase_sync.h"

namespace lockstep::execute {

// Each launch waits for the earlier ones whose memory it shares, and no more than `branches` of them run side
// by side. A graph has as many edges as are needed: what an awaited launch has waited for is not named again.
class LaunchOrder {
 public:
  explicit LaunchOrder(size_t branches) : branches_(branches) {}

  struct Launch {
    std::vector<MemoryRange> reads = {}, writes = {};
    bool pure = true;      // else it keeps its place among those that are not, whatever their memory
    bool crosses = false;  // it waits for another stream or tells it something: no work, and in no branch
    bool last = false;     // behind all earlier ones
  };

  // The launches, numbered as they were added, that this next one waits for: the latest first.
  std::vector<size_t> add(Launch launch);

 private:
  struct Added {
    Launch launch;
    std::vector<bool> before;  // which earlier ones happen before it, directly or not
  };
  void wait_for(size_t earlier, Added& launch, std::vector<size_t>& after) const;

  size_t branches_;
  std::vector<Added> all_;
  std::vector<size_t> lasts_;  // by branch: its last launch
};

}  // namespace lockstep::execute
