#include "data/conveyor.h"

#include <algorithm>
#include <chrono>

#include "base/parallel.h"

namespace lockstep::data {
namespace {

using Clock = std::chrono::steady_clock;

int64_t ns_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
}

int64_t bytes_of(Item& item) {
  if (item.rows()) return 0;
  int64_t bytes = 0;
  for (const Tensor& tensor : item.element().flat()) bytes += static_cast<int64_t>(tensor.spec().bytes());
  return bytes;
}

constexpr int kFirstThreads = 1;
constexpr int64_t kFirstSlots = 2;

}  // namespace

Conveyor::Conveyor(const Opening& opening, const Settings& settings, Fetch fetch, Work work)
    : pipeline_(opening.pipeline),
      stage_(opening.stage),
      ordered_(settings.ordered),
      fetch_(std::move(fetch)),
      work_(std::move(work)),
      stop_(opening.stop) {
  // A stage that is opened again goes on with what was found good for it.
  if (stage_.threads == 0) {
    const bool tunes_threads = settings.threads == AUTOTUNE, tunes_slots = settings.slots == AUTOTUNE;
    stage_.threads = tunes_threads ? kFirstThreads : static_cast<int>(settings.threads);
    stage_.slots = tunes_slots ? std::max<int64_t>(kFirstSlots, stage_.threads) : settings.slots;
    stage_.tunes_threads = tunes_threads && pipeline_.options().autotune;
    stage_.tunes_slots = tunes_slots && pipeline_.options().autotune;
  }
}

void Conveyor::stop() {
  stop_.stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Conveyor::has_room() const { return static_cast<int64_t>(slots_.size()) < stage_.slots; }

bool Conveyor::may_fetch(int id) const {
  return !paused_ && !ended_ && !fetching_ && id < stage_.threads && has_room();
}

void Conveyor::start_threads(Lock&) {
  while (static_cast<int>(threads_.size()) < stage_.threads)
    threads_.emplace_back([this, id = static_cast<int>(threads_.size())] { run(id); });
}

void Conveyor::fetch_into(Slot& slot, Lock& lock) {
  fetching_ = true;
  bool got = false;
  lock.unlock();
  try {
    got = fetch_(slot.parcel);
  } catch (const Cancelled&) {
    lock.lock();
    throw;
  } catch (...) {
    slot.error = std::current_exception();
    got = true;
  }
  lock.lock();
  fetching_ = false;
  if (!got) {
    ended_ = true;
    ready_.notify_all();
  } else {
    ++fetched_;
  }
  room_.notify_all();
}

void Conveyor::run(int id) {
  const DeviceScope device(pipeline_.device());
  // The stage's threads are the parallelism; kernels inside of it run on one each.
  const ThreadLimit alone(1);
  Lock lock(mutex_);
  while (true) {
    const bool full = !has_room() && !ended_;
    const auto begin = Clock::now();
    if (!room_.wait(lock, stop_.token(), [&] { return may_fetch(id); })) return;
    if (full) stage_.producer_wait_ns.fetch_add(ns_since(begin), std::memory_order_relaxed);
    ++busy_;
    if (spare_.empty()) spare_.emplace_back();
    slots_.splice(slots_.end(), spare_, spare_.begin());
    const auto slot = std::prev(slots_.end());
    const int64_t index = fetched_;
    try {
      fetch_into(*slot, lock);
    } catch (const Cancelled&) {
      --busy_;
      quiet_.notify_all();
      return;
    }
    if (ended_ && !slot->error && fetched_ == index) {
      recycle(slot);
    } else {
      if (work_ && !slot->error) {
        lock.unlock();
        const auto started = Clock::now();
        try {
          work_(slot->parcel, index);
        } catch (...) {
          slot->error = std::current_exception();
        }
        stage_.work_ns.fetch_add(ns_since(started), std::memory_order_relaxed);
        stage_.worked.fetch_add(1, std::memory_order_relaxed);
        lock.lock();
      }
      slot->ready = true;
      if (stage_.tunes_slots && !slot->error)
        stage_.element_bytes.store(bytes_of(slot->parcel.item), std::memory_order_relaxed);
      ready_.notify_one();
    }
    --busy_;
    if (paused_ && busy_ == 0) quiet_.notify_all();
  }
}

std::list<Conveyor::Slot>::iterator Conveyor::ready_slot() {
  if (ordered_) return !slots_.empty() && slots_.front().ready ? slots_.begin() : slots_.end();
  return std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.ready; });
}

void Conveyor::recycle(std::list<Slot>::iterator slot) {
  slot->ready = false;
  slot->error = nullptr;
  spare_.splice(spare_.end(), slots_, slot);
}

bool Conveyor::take(Item& item) {
  Lock lock(mutex_);
  if (static_cast<int>(threads_.size()) < stage_.threads) start_threads(lock);
  auto slot = ready_slot();
  if (slot == slots_.end()) {
    const bool waits = !(ended_ && slots_.empty());
    if (waits) {
      stage_.empty.fetch_add(1, std::memory_order_relaxed);
      const auto begin = Clock::now();
      const bool goes_on = ready_.wait(lock, stop_.token(), [&] {
        slot = ready_slot();
        return slot != slots_.end() || (ended_ && slots_.empty());
      });
      const int64_t waited = ns_since(begin);
      stage_.consumer_wait_ns.fetch_add(waited, std::memory_order_relaxed);
      StageTimer::waited(waited);
      if (!goes_on) throw Cancelled();
    }
    if (slot == slots_.end()) return false;
  }
  std::swap(item, slot->parcel.item);
  const std::exception_ptr error = slot->error;
  recycle(slot);
  room_.notify_one();
  lock.unlock();
  if (error) std::rethrow_exception(error);
  return true;
}

void Conveyor::save(StateWriter& state, const std::function<void()>& save_input) {
  Lock lock(mutex_);
  paused_ = true;
  quiet_.wait(lock, [&] { return busy_ == 0; });
  std::vector<Outcome> outcomes;
  for (const Slot& slot : slots_) outcomes.push_back({slot.parcel.item, slot.error});
  state.number("fetched", fetched_);
  state.number("ended", ended_);
  state.outcomes("ready", outcomes);
  save_input();
  paused_ = false;
  room_.notify_all();
}

void Conveyor::restore(const StateReader& state) {
  const Lock lock(mutex_);
  fetched_ = state.number("fetched");
  ended_ = state.number("ended") != 0;
  for (Outcome& outcome : state.outcomes("ready")) {
    Slot& slot = slots_.emplace_back();
    slot.parcel.item = std::move(outcome.item);
    slot.error = outcome.error;
    slot.ready = true;
  }
}

}  // namespace lockstep::data
