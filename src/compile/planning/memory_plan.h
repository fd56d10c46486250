// Places buffers with known lifetimes into one arena.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::compile {

// Alive from call `first` of the plan to call `last`, both included.
struct Lifetime {
  size_t bytes = 0;
  int first = 0;
  int last = 0;
};

// Buffers in an arena begin on cache lines of their own.
inline constexpr size_t kArenaAlignment = 64;
inline constexpr size_t aligned(size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

struct MemoryPlan {
  std::vector<size_t> offsets;  // of each buffer, aligned
  size_t size = 0;              // of the arena
  size_t peak = 0;              // most bytes alive at one call: no arena can be smaller
};

MemoryPlan plan_memory(std::span<const Lifetime> buffers);

}  // namespace lockstep::compile
