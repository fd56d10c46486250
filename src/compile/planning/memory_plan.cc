#include "compile/planning/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace lockstep::compile {
namespace {

size_t peak_of(std::span<const Lifetime> buffers) {
  std::map<int, int64_t> changes;
  for (const Lifetime& b : buffers) {
    changes[b.first] += static_cast<int64_t>(aligned(b.bytes));
    changes[b.last + 1] -= static_cast<int64_t>(aligned(b.bytes));
  }
  int64_t alive = 0;
  int64_t peak = 0;
  for (const auto& [call, change] : changes) peak = std::max(peak, alive += change);
  return static_cast<size_t>(peak);
}

// Each buffer in turn goes to the lowest gap among those that are alive at the same time.
size_t place(std::span<const Lifetime> buffers, std::span<const size_t> order, std::vector<size_t>& offsets) {
  std::vector<size_t> placed;  // by offset
  size_t size = 0;
  for (const size_t i : order) {
    const Lifetime& buffer = buffers[i];
    size_t offset = 0;
    for (const size_t other : placed) {
      if (buffers[other].last < buffer.first || buffer.last < buffers[other].first) continue;
      if (offset + aligned(buffer.bytes) <= offsets[other]) break;
      offset = std::max(offset, offsets[other] + aligned(buffers[other].bytes));
    }
    offsets[i] = offset;
    size = std::max(size, offset + aligned(buffer.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }),
                  i);
  }
  return size;
}

}  // namespace

MemoryPlan plan_memory(std::span<const Lifetime> buffers) {
  MemoryPlan best;
  best.peak = peak_of(buffers);
  std::vector<size_t> order(buffers.size());
  const auto attempt = [&](auto before) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), before);
    std::vector<size_t> offsets(buffers.size());
    const size_t size = place(buffers, order, offsets);
    if (best.offsets.size() == buffers.size() && size >= best.size && !buffers.empty()) return;
    best.size = size;
    best.offsets = std::move(offsets);
  };
  // No one order wins everywhere; all are cheap.
  attempt([&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  attempt([&](size_t a, size_t b) {
    return buffers[a].last - buffers[a].first > buffers[b].last - buffers[b].first;
  });
  attempt([&](size_t a, size_t b) { return buffers[a].first < buffers[b].first; });
  attempt([&](size_t a, size_t b) {
    const auto area = [&](size_t i) {
      return buffers[i].bytes * static_cast<size_t>(buffers[i].last - buffers[i].first + 1);
    };
    return area(a) > area(b);
  });
  return best;
}

}  // namespace lockstep::compile
