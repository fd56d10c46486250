#include "data/worker_pool.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/thread.h"
#include "lockstep/base/clock.h"

namespace lockstep::data {
namespace {

void add(Stage::Counter& counter, int64_t amount) { counter.fetch_add(amount, std::memory_order_relaxed); }

int64_t bytes_of(Item& item) {
  if (item.rows()) return 0;
  int64_t bytes = 0;
  for (const Tensor& tensor : item.element().flat()) bytes += static_cast<int64_t>(tensor.spec().bytes());
  return bytes;
}

constexpr int kFirstThreads = 1;
constexpr int64_t kFirstSlots = 2;

}  // namespace

WorkerPool::WorkerPool(const Opening& opening, const Settings& settings, Fetch fetch, Work work)
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

void WorkerPool::stop() {
  stop_.stop();
  std::vector<std::thread> threads;
  {
    // From here on none is started.
    const Lock lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void WorkerPool::adopt_settings(const Lock&) {
  const int threads = stage_.threads.load(std::memory_order_relaxed);
  const int64_t slots = stage_.slots.load(std::memory_order_relaxed);
  if ((active_ == threads && capacity_ == slots) || stop_.token().stop_requested()) return;
  active_ = threads;
  capacity_ = slots;
  room_.notify_all();
  spared_.notify_all();
  while (static_cast<int>(threads_.size()) < active_) try {
      threads_.push_back(start_thread([this, id = static_cast<int>(threads_.size())] { run(id); }));
    } catch (const Error&) {
      // Those that there are do it.
      if (threads_.empty()) throw;
      stage_.threads = active_ = static_cast<int>(threads_.size());
    }
}

void WorkerPool::fetch_into(Slot& slot, Lock& lock) {
  fetching_ = true;
  bool got = false;
  lock.unlock();
  const int64_t begin = monotonic_ns();
  try {
    got = fetch_(slot.work_item);
  } catch (const Cancelled&) {
    lock.lock();
    throw;
  } catch (...) {
    slot.error = std::current_exception();
    got = true;
  }
  add(stage_.fetch_ns, monotonic_ns() - begin);
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

void WorkerPool::run(int id) {
  const DeviceScope device(pipeline_.device());
  // The stage's threads are the parallelism; kernels inside of it run on one each.
  const ThreadLimit alone(1);
  const std::stop_token stop = stop_.token();
  Lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (id >= active_ && !spared_.wait(lock, stop, [&] { return id < active_; })) return;
    if (!may_fetch()) {
      const bool full = !has_room() && !ended_;
      const int64_t begin = monotonic_ns();
      if (!room_.wait(lock, stop, [&] { return may_fetch() || id >= active_; })) return;
      if (full) add(stage_.producer_wait_ns, monotonic_ns() - begin);
      if (id >= active_) continue;
    }
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
        const int64_t begin = monotonic_ns();
        try {
          work_(slot->work_item, index);
        } catch (...) {
          slot->error = std::current_exception();
        }
        const int64_t now = monotonic_ns();
        add(stage_.work_ns, now - begin);
        pipeline_.tuner().look(now);
        lock.lock();
        adopt_settings(lock);
      }
      slot->ready = true;
      ++ready_slots_;
      add(stage_.worked, 1);
      if (stage_.tunes_slots && !slot->error)
        stage_.element_bytes.store(bytes_of(slot->work_item.item), std::memory_order_relaxed);
      --busy_;
      if (paused_ && busy_ == 0) quiet_.notify_all();
      // In order, only the first one is waited for. A consumer that wakes while the lock is held goes back to
      // sleep.
      if (!ordered_ || slot == slots_.begin()) {
        lock.unlock();
        ready_.notify_one();
        lock.lock();
      }
      continue;
    }
    --busy_;
    if (paused_ && busy_ == 0) quiet_.notify_all();
  }
}

std::list<WorkerPool::Slot>::iterator WorkerPool::ready_slot() {
  if (ordered_) return !slots_.empty() && slots_.front().ready ? slots_.begin() : slots_.end();
  return std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.ready; });
}

void WorkerPool::recycle(std::list<Slot>::iterator slot) {
  if (slot->ready) --ready_slots_;
  slot->ready = false;
  slot->error = nullptr;
  spare_.splice(spare_.end(), slots_, slot);
}

bool WorkerPool::take(Item& item) {
  Lock lock(mutex_);
  adopt_settings(lock);
  add(stage_.ready, ready_slots_);
  if (ready_slots_ < stage_.least_ready.load(std::memory_order_relaxed))
    stage_.least_ready.store(ready_slots_, std::memory_order_relaxed);
  auto slot = ready_slot();
  if (slot == slots_.end()) {
    const bool waits = !(ended_ && slots_.empty());
    if (waits) {
      add(stage_.empty, 1);
      const int64_t begin = monotonic_ns();
      stage_.waiting_since_ns.store(begin, std::memory_order_relaxed);
      const bool goes_on = ready_.wait(lock, stop_.token(), [&] {
        slot = ready_slot();
        return slot != slots_.end() || (ended_ && slots_.empty());
      });
      const int64_t waited = monotonic_ns() - begin;
      stage_.waiting_since_ns.store(0, std::memory_order_relaxed);
      add(stage_.consumer_wait_ns, waited);
      StageTimer::waited(waited);
      if (!goes_on) throw Cancelled();
    }
    if (slot == slots_.end()) return false;
  }
  std::swap(item, slot->work_item.item);
  const std::exception_ptr error = slot->error;
  recycle(slot);
  lock.unlock();
  room_.notify_one();
  if (error) std::rethrow_exception(error);
  return true;
}

void WorkerPool::save(StateWriter& state, const std::function<void()>& save_input) {
  Lock lock(mutex_);
  paused_ = true;
  quiet_.wait(lock, [&] { return busy_ == 0; });
  std::vector<Outcome> outcomes;
  for (const Slot& slot : slots_) outcomes.push_back({slot.work_item.item, slot.error});
  state.number("fetched", fetched_);
  state.number("ended", ended_);
  state.outcomes("ready", outcomes);
  save_input();
  paused_ = false;
  room_.notify_all();
}

void WorkerPool::restore(const StateReader& state) {
  const Lock lock(mutex_);
  fetched_ = state.number("fetched");
  ended_ = state.number("ended") != 0;
  for (Outcome& outcome : state.outcomes("ready")) {
    Slot& slot = slots_.emplace_back();
    slot.work_item.item = std::move(outcome.item);
    slot.error = outcome.error;
    slot.ready = true;
    ++ready_slots_;
  }
}

}  // namespace lockstep::data
