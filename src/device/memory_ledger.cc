#include "device/memory_ledger.h"

#include <algorithm>
#include <cstdlib>
#include <deque>

#include "lockstep/base/clock.h"

namespace lockstep {
namespace {

constexpr size_t kMostSamples = 256;
constexpr int64_t kFirstIntervalNs = 1'000'000;
constexpr int64_t kTraceIntervalNs = 20'000;
constexpr int64_t kLargeChange = 64 << 10;  // bytes
constexpr size_t kMostUses = 1024;          // of which later ones are counted as tensors

struct Uses {
  std::mutex mutex;
  std::deque<std::string> names = {"tensors"};
};
Uses& uses() {
  static auto* all = new Uses;
  return *all;
}

thread_local MemoryLedger::Use current_use = MemoryLedger::kTensors;

}  // namespace

MemoryLedger::Use memory_use(std::string_view name) {
  Uses& all = uses();
  const std::lock_guard lock(all.mutex);
  const auto found = std::find(all.names.begin(), all.names.end(), name);
  if (found != all.names.end()) return static_cast<MemoryLedger::Use>(found - all.names.begin());
  if (all.names.size() == kMostUses) return MemoryLedger::kTensors;
  all.names.emplace_back(name);
  return static_cast<MemoryLedger::Use>(all.names.size() - 1);
}

MemoryLedger::Use current_memory_use() { return current_use; }

MemoryUseScope::MemoryUseScope(MemoryLedger::Use use) : outer_(current_use) { current_use = use; }
MemoryUseScope::~MemoryUseScope() { current_use = outer_; }

MemoryLedger::MemoryLedger(std::string device, int index)
    : device_(std::move(device)), index_(index), began_ns_(monotonic_ns()), interval_ns_(kFirstIntervalNs) {
  entries_.resize(16);
  samples_.reserve(kMostSamples);
}

MemoryLedger::Use MemoryLedger::add(size_t bytes) noexcept {
  const Use use = current_use;
  changed(use, static_cast<int64_t>(bytes));
  return use;
}

void MemoryLedger::remove(Use use, size_t bytes) noexcept { changed(use, -static_cast<int64_t>(bytes)); }

void MemoryLedger::move(Use from, Use to, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  entry(from).current -= static_cast<int64_t>(bytes);
  entry(to).current += static_cast<int64_t>(bytes);
}

MemoryLedger::Entry& MemoryLedger::entry(Use use) noexcept {
  if (static_cast<size_t>(use) >= entries_.size()) entries_.resize(static_cast<size_t>(use) + 16);
  return entries_[static_cast<size_t>(use)];
}

void MemoryLedger::changed(Use use, int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  // The peak is written down when it is left.
  if (bytes < 0 && new_peak_) {
    for (Entry& entry : entries_) entry.at_peak = entry.current;
    peak_ns_ = monotonic_ns() - began_ns_;
    new_peak_ = false;
  }
  entry(use).current += bytes;
  current_ += bytes;
  if (current_ > peak_) {
    peak_ = current_;
    new_peak_ = true;
  }
  // Looking at the clock takes as long as all of the above: of small changes, only some do.
  thread_local unsigned changes = 0;
  if (std::abs(bytes) < kLargeChange && ++changes % 16 != 0 && !observe::tracing()) return;
  const int64_t now = monotonic_ns();
  if (now - sampled_ns_ >= interval_ns_) sample(now);
  if (observe::tracing() && now - traced_ns_ >= kTraceIntervalNs) [[unlikely]] {
    traced_ns_ = now;
    observe::record_counter(observe::intern("memory in use on " + device_), static_cast<double>(current_),
                            {.device = index_});
  }
}

// Half of them go when there are too many, and from then on half as many come.
void MemoryLedger::sample(int64_t now) noexcept {
  if (samples_.size() == kMostSamples) {
    for (size_t i = 0; i < kMostSamples / 2; ++i) samples_[i] = samples_[2 * i];
    samples_.resize(kMostSamples / 2);
    interval_ns_ *= 2;
  }
  samples_.push_back({now - began_ns_, current_});
  sampled_ns_ = now;
}

void MemoryLedger::begin_run() {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.before = entry.at_peak = entry.current;
  before_ = peak_ = current_;
  began_ns_ = monotonic_ns();
  peak_ns_ = 0;
  settled_ = new_peak_ = false;
  interval_ns_ = kFirstIntervalNs;
  samples_.clear();
  sample(began_ns_);
}

void MemoryLedger::settle() {
  const std::lock_guard lock(mutex_);
  if (settled_) return;
  settled_ = true;
  for (Entry& entry : entries_) entry.settled = entry.current;
}

observe::MemorySummary MemoryLedger::summary() const {
  observe::MemorySummary summary;
  const std::lock_guard lock(mutex_);
  summary.device = device_;
  summary.before = before_;
  summary.peak = peak_;
  summary.after = current_;
  const int64_t now = monotonic_ns() - began_ns_;
  summary.peak_ns = new_peak_ ? now : peak_ns_;
  summary.samples = samples_;
  summary.samples.push_back({now, current_});
  Uses& all = uses();
  const std::lock_guard names_lock(all.mutex);
  for (size_t u = 0; u < std::min(entries_.size(), all.names.size()); ++u) {
    const Entry& entry = entries_[u];
    const int64_t at_peak = new_peak_ ? entry.current : entry.at_peak;
    if (at_peak == 0 && entry.before == 0 && entry.current == 0) continue;
    summary.uses.push_back({.name = all.names[u],
                            .before = entry.before,
                            .at_peak = at_peak,
                            .after = entry.current,
                            .grown = settled_ ? entry.current - entry.settled : 0});
  }
  std::stable_sort(summary.uses.begin(), summary.uses.end(),
                   [](const auto& a, const auto& b) { return a.at_peak > b.at_peak; });
  return summary;
}

}  // namespace lockstep
