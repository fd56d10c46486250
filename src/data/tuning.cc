#include "data/tuning.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data {
namespace {

// More than the mean: elements do not take the same time each.
constexpr double kHeadroom = 1.1;
// Fewer threads only where they would do with this to spare, so that counts do not swing.
constexpr double kHeadroomOfFewer = 1.3;
constexpr int64_t kMostSlots = 1024;

double busy_ns(const Load& load) { return load.work_ns + load.fetch_ns; }

// Threads that keep the consumer from waiting, or that one thread's fetching can feed.
double threads_needed(const Load& load, double interval_ns) {
  const double made = static_cast<double>(load.made),
               taken = static_cast<double>(std::max<int64_t>(1, load.taken));
  const double consumer = std::max(0.0, interval_ns - load.consumer_wait_ns) / taken;
  const double fetch = load.fetch_ns / made;
  return busy_ns(load) / made / std::max({consumer, fetch, 1.0});
}

int tuned_threads(const Load& load, double interval_ns, const TuningLimits& limits, double all_busy_ns) {
  if (!load.tunes_threads || load.made == 0) return load.threads;
  const double needed = threads_needed(load, interval_ns);
  // Its share of the cores, where all that stages do takes more of them than there are.
  const double share = std::round(limits.threads * busy_ns(load) / std::max(all_busy_ns, 1.0));
  const double most = std::max(1.0, share);
  const auto wanted = [&](double headroom) {
    return static_cast<int>(std::min(std::ceil(needed * headroom), most));
  };
  if (const int more = wanted(kHeadroom); more > load.threads) return more;
  // One at a time: a short lull is no reason to start anew.
  return std::max(1, wanted(kHeadroomOfFewer)) < load.threads ? load.threads - 1 : load.threads;
}

// Without growth, which depends on what memory the others leave.
int64_t slots_to_keep(const Load& load, Setting& setting) {
  // Where threads work side by side, one that is slow must not stop the others at once.
  const int64_t least = load.tunes_threads ? 2 * setting.threads : 2;
  const bool half_would_do = load.taken > 0 && load.least_ready > load.slots / 2;
  setting.looks_with_half_empty = half_would_do ? load.looks_with_half_empty + 1 : 0;
  int64_t slots = load.slots;
  if (setting.looks_with_half_empty >= kLooksBeforeShrinking) {
    slots /= 2;
    setting.looks_with_half_empty = 0;
  }
  return std::max(slots, least);
}

}  // namespace

std::vector<Setting> tune(std::span<const Load> loads, double interval_ns, const TuningLimits& limits) {
  double all_busy_ns = 0;
  for (const Load& load : loads) all_busy_ns += busy_ns(load);
  std::vector<Setting> settings;
  int64_t bytes = 0;
  for (const Load& load : loads) {
    Setting setting{.threads = tuned_threads(load, interval_ns, limits, all_busy_ns), .slots = load.slots};
    if (load.tunes_slots) setting.slots = slots_to_keep(load, setting);
    bytes += setting.slots * load.element_bytes;
    settings.push_back(setting);
  }
  const auto resize = [&](size_t i, int64_t slots) {
    bytes += (slots - settings[i].slots) * loads[i].element_bytes;
    settings[i].slots = slots;
  };
  for (size_t i = 0; i < loads.size(); ++i) {
    const bool grows = loads[i].tunes_slots && loads[i].ran_empty && loads[i].ran_full;
    const int64_t more = std::min(2 * loads[i].slots, kMostSlots);
    if (grows && more > settings[i].slots &&
        bytes + (more - settings[i].slots) * loads[i].element_bytes <= limits.bytes)
      resize(i, more);
  }
  // Elements have become larger: the largest buffers give way. A thread needs a slot for what it works on.
  const auto can_shrink = [&](size_t i) {
    return loads[i].tunes_slots && settings[i].slots > 1 && loads[i].element_bytes > 0;
  };
  const auto held = [&](size_t i) { return can_shrink(i) ? settings[i].slots * loads[i].element_bytes : 0; };
  while (bytes > limits.bytes) {
    size_t largest = 0;
    for (size_t i = 1; i < loads.size(); ++i)
      if (held(i) > held(largest)) largest = i;
    if (!can_shrink(largest)) break;
    resize(largest, settings[largest].slots / 2);
    if (loads[largest].tunes_threads)
      settings[largest].threads =
          static_cast<int>(std::min<int64_t>(settings[largest].threads, settings[largest].slots));
  }
  return settings;
}

}  // namespace lockstep::data
