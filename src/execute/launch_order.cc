#include "execute/launch_order.h"

#include <algorithm>
#include <utility>

namespace lockstep::execute {
namespace {

bool meet(const std::vector<MemoryRange>& a, const std::vector<MemoryRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const MemoryRange& x) {
    return std::any_of(b.begin(), b.end(), [&](const MemoryRange& y) { return x.meets(y); });
  });
}

// Whether the later one has to wait for the earlier.
bool in_order(const LaunchOrder::Launch& earlier, const LaunchOrder::Launch& later) {
  return later.last || (!later.pure && !earlier.pure) || meet(later.reads, earlier.writes) ||
         meet(later.writes, earlier.reads) || meet(later.writes, earlier.writes);
}

}  // namespace

void LaunchOrder::wait_for(size_t earlier, Added& launch, std::vector<size_t>& after) const {
  after.push_back(earlier);
  launch.before[earlier] = true;
  for (size_t k = 0; k < earlier; ++k)
    if (all_[earlier].before[k]) launch.before[k] = true;
}

std::vector<size_t> LaunchOrder::add(Launch launch) {
  Added added{std::move(launch), std::vector<bool>(all_.size())};
  std::vector<size_t> after;
  for (size_t j = all_.size(); j-- > 0;)
    if (!added.before[j] && in_order(all_[j].launch, added.launch)) wait_for(j, added, after);
  if (!added.launch.crosses) {
    // A branch whose last launch comes before it anyhow, the latest of them; a new branch; or the one that
    // has rested longest.
    size_t* branch = nullptr;
    for (size_t& last : lasts_)
      if (added.before[last] && (!branch || last > *branch)) branch = &last;
    if (!branch && lasts_.size() < branches_) branch = &lasts_.emplace_back();
    if (!branch) {
      branch = &*std::min_element(lasts_.begin(), lasts_.end());
      wait_for(*branch, added, after);
    }
    *branch = all_.size();
  }
  all_.push_back(std::move(added));
  return after;
}

}  // namespace lockstep::execute
