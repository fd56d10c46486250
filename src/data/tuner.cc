#include "data/tuner.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "data/pipeline.h"
#include "lockstep/base/clock.h"

namespace lockstep::data {
namespace {

// The first looks follow each other quickly, later ones see enough to be sure.
constexpr int64_t kFirstIntervalNs = 2'000'000;
constexpr int64_t kIntervalNs = 64'000'000;
// The iterator's calls look at the clock about so often.
constexpr int64_t kStepNs = 200'000;
constexpr int64_t kMostCallsUnseen = 1024;

int64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (int64_t kib = 0; file >> name >> kib; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (name == "MemAvailable:") return kib << 10;
  return int64_t{4} << 30;
}

}  // namespace

int64_t Tuner::elapsed_ns() const { return last_step_ns_.load() - start_ns_.load(); }

void Tuner::step() {
  if (--calls_left_ > 0) return;
  const int64_t now = monotonic_ns();
  if (start_ns_ == 0) {
    start_ns_ = last_step_ns_ = now;
    const std::lock_guard lock(mutex_);
    last_look_ns_ = now;
    interval_ns_ = kFirstIntervalNs;
    next_look_ns_ = now + interval_ns_;
  }
  // As many calls at once as fit between two looks at the clock, found by doubling.
  const int64_t since = now - last_step_ns_.exchange(now);
  stride_ = since < kStepNs / 2 ? std::min(2 * stride_, kMostCallsUnseen)
            : since > kStepNs   ? std::max<int64_t>(1, stride_ / 2)
                                : stride_;
  if (since > 8 * kStepNs) stride_ = 1;
  calls_left_ = stride_;
  look(now);
}

int64_t Tuner::memory_budget() {
  if (memory_budget_ == 0) {
    const int64_t told = pipeline_.options().memory_budget;
    memory_budget_ = told > 0 ? told : free_memory() / 4;
  }
  return memory_budget_;
}

int64_t Tuner::collect(Stage& stage, int64_t now_ns) {
  int64_t waited_beneath = 0;
  for (const auto& input : stage.inputs)
    if (input) waited_beneath += collect(*input, now_ns);
  if (stage.threads == 0) return waited_beneath;

  Seen& seen = seen_[&stage];
  const auto since = [](int64_t value, int64_t& last) {
    return std::max<int64_t>(0, value - std::exchange(last, value));
  };
  // A wait that has not ended yet counts as far as it has come.
  const int64_t finished_wait = stage.consumer_wait_ns, waiting_since = stage.waiting_since_ns;
  const int64_t wait = finished_wait + (waiting_since > 0 ? now_ns - waiting_since : 0);
  Load load{.tunes_threads = stage.tunes_threads,
            .tunes_slots = stage.tunes_slots,
            .threads = stage.threads,
            .slots = stage.slots,
            .made = since(stage.worked, seen.made),
            .taken = since(stage.elements, seen.taken),
            .work_ns = static_cast<double>(since(stage.work_ns, seen.work_ns)),
            .fetch_ns = static_cast<double>(
                std::max<int64_t>(0, since(stage.fetch_ns, seen.fetch_ns) - waited_beneath)),
            .consumer_wait_ns = static_cast<double>(since(wait, seen.consumer_wait_ns)),
            .ran_empty = since(stage.empty, seen.empty) > 0,
            .ran_full = since(stage.producer_wait_ns, seen.producer_wait_ns) > 0,
            .least_ready = stage.least_ready.exchange(Stage::kNoTake),
            .element_bytes = stage.element_bytes,
            .looks_with_half_empty = seen.looks_with_half_empty};
  loads_.push_back(load);
  stages_.push_back(&stage);
  return since(finished_wait, seen.finished_wait_ns);
}

void Tuner::tune(int64_t now_ns) {
  // Whoever comes meanwhile has better to do.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || now_ns < next_look_ns_) return;
  const std::lock_guard stages(pipeline_.stages_mutex());
  loads_.clear();
  stages_.clear();
  if (pipeline_.root()) collect(*pipeline_.root(), now_ns);
  const bool tuned = std::any_of(loads_.begin(), loads_.end(),
                                 [](const Load& load) { return load.tunes_threads || load.tunes_slots; });
  if (tuned) {
    const std::vector<Setting> settings =
        data::tune(loads_, static_cast<double>(now_ns - last_look_ns_),
                   {.threads = pipeline_.threads(), .bytes = memory_budget()});
    for (size_t i = 0; i < settings.size(); ++i) {
      seen_[stages_[i]].looks_with_half_empty = settings[i].looks_with_half_empty;
      stages_[i]->slots = settings[i].slots;
      stages_[i]->threads = settings[i].threads;
    }
  }
  last_look_ns_ = now_ns;
  interval_ns_ = std::min(2 * interval_ns_, kIntervalNs);
  next_look_ns_ = now_ns + interval_ns_;
}

}  // namespace lockstep::data
