// Threads that fetch items in order, work on them side by side, and have them ready for one consumer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "data/pipeline.h"

namespace lockstep::data {

class WorkerPool {
 public:
  struct Settings {
    int64_t threads = 1;  // or AUTOTUNE
    int64_t slots = 2;    // items fetched and not taken yet, or AUTOTUNE
    bool ordered = true;  // false: items are taken as they become ready
  };
  // What one call of fetch leaves to be worked on: an item, or items that become one.
  struct WorkItem {
    Item item;
    std::vector<Item> parts;
  };
  // One thread at a time, in order; false at the end.
  using Fetch = std::function<bool(WorkItem& work_item)>;
  // By several threads at once; leaves `item`. `index` counts what was fetched. May be none.
  using Work = std::function<void(WorkItem& work_item, int64_t index)>;

  WorkerPool(const Opening& opening, const Settings& settings, Fetch fetch, Work work = {});
  ~WorkerPool() { stop(); }
  // The threads have ended when it returns. What `fetch` reads may go away then.
  void stop();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // What the cursors that `fetch` reads are opened with: their waits must end when the threads are to.
  std::stop_token stop_token() const { return stop_.token(); }

  // The threads start with the first call. Throws what fetch or work threw for this item.
  bool take(Item& item);

  // Everything on the way is saved and restored; the cursors that `fetch` reads are the caller's, to be saved
  // by `save_input` while nothing moves.
  void save(StateWriter& state, const std::function<void()>& save_input);
  void restore(const StateReader& state);

 private:
  struct Slot {
    WorkItem work_item;
    std::exception_ptr error;
    bool ready = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  void run(int id);
  void fetch_into(Slot& slot, Lock& lock);
  // Makes the threads and slots that the stage should have now those that it has.
  void adopt_settings(const Lock& lock);
  bool has_room() const { return static_cast<int64_t>(slots_.size()) < capacity_; }
  bool may_fetch() const { return !paused_ && !ended_ && !fetching_ && has_room(); }
  std::list<Slot>::iterator ready_slot();
  void recycle(std::list<Slot>::iterator slot);

  Pipeline& pipeline_;
  Stage& stage_;
  const bool ordered_;
  const Fetch fetch_;
  const Work work_;
  StopScope stop_;

  std::mutex mutex_;
  std::condition_variable_any room_;    // workers wait here,
  std::condition_variable_any spared_;  // and here those of which there are too many
  std::condition_variable_any ready_;   // the consumer waits here
  std::condition_variable_any quiet_;   // save() waits here
  std::list<Slot> slots_;               // in the order fetched; a list, for workers write to theirs unlocked
  std::list<Slot> spare_;
  int active_ = 0;  // the threads with lower numbers work, the others rest
  int64_t capacity_ = 0;
  int64_t fetched_ = 0;
  int64_t ready_slots_ = 0;
  int busy_ = 0;
  bool fetching_ = false;
  bool paused_ = false;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::data
