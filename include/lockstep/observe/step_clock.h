// The step clock: attributes every nanosecond of a replica's steps to what it was spent on.
//
//   StepClock clock({.replicas = 2});
//   ...on replica 1's thread:
//   BindReplica bind(clock.replica(1));
//   clock.replica(1).begin_step();
//   { TimeScope scope(Category::input_wait); batch = cursor.next(); }
//   { TimeScope scope(Category::compute); run(batch); }
//   clock.replica(1).end_step();
//
// A scope's time is its own: a scope opened inside it takes its part away. What no scope covers is
// unattributed. The time between end_step and begin_step is kept apart, in the same categories, unless
// begin_next_step() makes it a part of the step: so every second of a loop belongs to one of its steps.
// Compiling is kept apart from both.
//
// While tracing (span.h) every scope and step is also recorded as a span, on the row "replica N".
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {

// What the thread does in a scope. Where it runs, the part of the time in which it was not on a
// processor counts as descheduled.
enum class ThreadState : uint8_t { runs, blocks };

// In copy, compute, compiling, host and loop a thread runs; in the others it waits. A thread that waits for a
// device to compute is in {Category::compute, ThreadState::blocks}.
ThreadState usual_state(Category category);

// One replica's clock. One thread at a time may use it (hand it over with any synchronisation), but
// count() is for all threads. No function but recent() allocates; a scope costs two readings of the
// time, and two of the thread's processor time in steps that measure descheduled.
class ReplicaClock {
 public:
  ReplicaClock(const ReplicaClock&) = delete;
  ReplicaClock& operator=(const ReplicaClock&) = delete;
  ~ReplicaClock();

  int replica() const;

  // Steps follow each other; they do not nest. Scopes may stay open across the edges.
  void begin_step();
  // The same, with what has passed since the last step. `around` says which of it went into waiting for input
  // and the like; what nothing accounts for is the loop's own work. A pause is none of it: more than a
  // second, and ten times what steps take.
  void begin_next_step(const Times& around = {});
  // `steps`: how many were made since begin_step(), where a device makes several as one launch.
  StepRecord end_step(int64_t steps = 1);
  // Instead of end_step(), where no step was made: the time since begin_next_step() is still the last one's,
  // for which a device went on after the host had ended it. Means know of it, quantiles do not.
  void end_rest();
  // After an error inside a step: forgets the step; its time counts as outside of steps.
  void abandon_step();
  bool in_step() const;

  // From now on time belongs to `category`, until leave() gives it back to what it belonged to
  // before. At most kMaxDepth deep. TimeScope does both; the bare calls are for a scope that one
  // thread opens and another closes.
  void enter(Category category, ThreadState state);
  void enter(Category category) { enter(category, usual_state(category)); }
  void leave();
  static constexpr int kMaxDepth = 32;

  // Moves up to `ns` of the innermost open scope's time so far to `category`, and returns how much that was.
  // For a wait whose parts were measured elsewhere: on a device, by a sampled step.
  int64_t move(Category category, int64_t ns);

  // Adds to this step's counter. Thread-safe.
  void count(Counter counter, int64_t amount = 1);

  // Multiplies this step's counters, but for traces, by `factor`: the step stands for others that were not
  // timed.
  void multiply_counts(int64_t factor);

  // The last records (StepClockOptions::recent of them), oldest first. Thread-safe.
  std::vector<StepRecord> recent() const;

 private:
  friend class StepClock;
  struct State;
  explicit ReplicaClock(std::unique_ptr<State> state);
  void restart();
  std::unique_ptr<State> state_;
};

struct StepClockOptions {
  int replicas = 1;
  int recent = 256;  // step records kept per replica
  // Descheduled is measured in one of every so many steps (or launches of several), from the second on; 0:
  // never.
  // Reading a thread's processor time takes 20 times as long as reading the time.
  int measure_descheduled_every = 16;
  const Clock* clock = nullptr;  // not owned; null: Clock::system()
};

class StepClock {
 public:
  explicit StepClock(StepClockOptions options = {});
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  int replicas() const { return static_cast<int>(replicas_.size()); }
  ReplicaClock& replica(int index);

  // For a thread that drives all replicas while their own threads rest: the same call on each.
  void begin_step();
  // Begins the next step of a loop: the time since the last step belongs to it, unless it was a pause, and is
  // attributed as far as the thread told of it (observe/thread_times.h). end_rest() ends what follows the
  // loop's last step.
  void begin_next_step();
  void end_step(int64_t steps = 1);
  void end_rest();
  void abandon_step();
  void enter(Category category);
  void leave();

  // Forgets all steps, the one under way too, and all open scopes: for another run of those that hold its
  // address. Only while no other thread uses it.
  void restart();

  // Over all steps ended so far. Thread-safe, while steps go on too.
  RunSummary summary() const;

 private:
  std::vector<std::unique_ptr<ReplicaClock>> replicas_;
  bool measures_descheduled_;
  // What the thread that ended the last step had done by then.
  const void* thread_ = nullptr;
  Times thread_times_;
  int64_t thread_reads_ = 0;
};

// The clock of the replica that the calling thread works for, or null.
ReplicaClock* current_replica();

// Makes it so for a scope.
class BindReplica {
 public:
  explicit BindReplica(ReplicaClock& clock);
  ~BindReplica();
  BindReplica(const BindReplica&) = delete;
  BindReplica& operator=(const BindReplica&) = delete;

 private:
  ReplicaClock* previous_;
};

// Attributes its lifetime. Without a clock (a null one, a thread bound to no replica) it does nothing.
class TimeScope {
 public:
  explicit TimeScope(Category category) : TimeScope(current_replica(), category) {}
  TimeScope(Category category, ThreadState state) : TimeScope(current_replica(), category, state) {}
  TimeScope(ReplicaClock* clock, Category category) : TimeScope(clock, category, usual_state(category)) {}
  TimeScope(ReplicaClock* clock, Category category, ThreadState state) : clock_(clock) {
    if (clock_ != nullptr) clock_->enter(category, state);
  }
  ~TimeScope() {
    if (clock_ != nullptr) clock_->leave();
  }
  TimeScope(const TimeScope&) = delete;
  TimeScope& operator=(const TimeScope&) = delete;

 private:
  ReplicaClock* clock_;
};

// The same for all replicas of a clock at once; a null one does nothing.
class TimeScopeOfAll {
 public:
  TimeScopeOfAll(StepClock& clock, Category category) : TimeScopeOfAll(&clock, category) {}
  TimeScopeOfAll(StepClock* clock, Category category) : clock_(clock) {
    if (clock_ != nullptr) clock_->enter(category);
  }
  ~TimeScopeOfAll() {
    if (clock_ != nullptr) clock_->leave();
  }
  TimeScopeOfAll(const TimeScopeOfAll&) = delete;
  TimeScopeOfAll& operator=(const TimeScopeOfAll&) = delete;

 private:
  StepClock* clock_;
};

// Gives its lifetime to compiling, as that of one function, on all replicas of a clock that may be null.
class CompileScope {
 public:
  explicit CompileScope(StepClock* clock) : clock_(clock), scope_(clock, Category::compiling) {}
  ~CompileScope() {
    for (int r = 0; clock_ != nullptr && r < clock_->replicas(); ++r)
      clock_->replica(r).count(Counter::traces);
  }
  CompileScope(const CompileScope&) = delete;
  CompileScope& operator=(const CompileScope&) = delete;

 private:
  StepClock* clock_;
  TimeScopeOfAll scope_;
};

}  // namespace lockstep::observe
