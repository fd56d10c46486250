#include "lockstep/observe/step_clock.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/observe/span.h"
#include "lockstep/observe/verdict.h"
#include "observe/histogram.h"
#include "observe/thread_times.h"

namespace lockstep::observe {
namespace {

Name span_name(Category category) {
  static const std::vector<Name>& names = *[] {
    auto* all = new std::vector<Name>;
    for (size_t c = 0; c < kCategories; ++c) all->push_back(intern(name(static_cast<Category>(c))));
    return all;
  }();
  return names[static_cast<size_t>(category)];
}

// A pause is no part of a loop's steps where it takes longer than both.
constexpr int64_t kPauseNs = 1'000'000'000;
constexpr int64_t kPauseSteps = 10;

// An address that only the calling thread has.
const void* this_thread() {
  static thread_local constinit char token = 0;
  return &token;
}

struct Frame {
  Category category = Category::unattributed;
  ThreadState state = ThreadState::blocks;
  int64_t start_ns = 0;
  int64_t own_ns = 0;  // in this interval, without the scopes inside
};

// What the run has shown so far.
struct Aggregate {
  std::mutex mutex;
  Histogram wall;
  std::array<Histogram, kCategories> times;
  ReplicaSummary sums;  // all but the distributions
  std::vector<StepRecord> recent;
  int64_t records = 0;
  int64_t measured_steps = 0;  // with descheduled

  // Keeps the compiling of an interval, and takes it out of that.
  void take_compiling(StepRecord& record) {
    const int64_t compiling = std::exchange(record.times[Category::compiling], 0);
    record.wall_ns -= compiling;
    sums.compiling_ns += compiling;
    if (records > 0) sums.late_compiling_ns += compiling;
  }

  void add_step(StepRecord record) {
    std::lock_guard lock(mutex);
    if (!recent.empty()) recent[static_cast<size_t>(records) % recent.size()] = record;
    take_compiling(record);
    if (record.index == 0) sums.first = record;
    wall.add(record.wall_ns, record.steps);
    // Most categories are none of most steps: those are added at the end.
    for (size_t c = 0; c < kCategories; ++c)
      if (record.times.values[c] > 0) times[c].add(record.times.values[c], record.steps);
    if (record.measured_descheduled) {
      sums.measured_wall_ns += record.wall_ns;
      measured_steps += record.steps;
    }
    for (size_t c = 0; c < kCounters; ++c) sums.counts.values[c] += record.counts.values[c];
    const int64_t slots = record.counts[Counter::slots], examples = record.counts[Counter::examples];
    sums.empty_steps += slots > 0 && examples == 0;
    sums.partial_steps += examples > 0 && examples < slots;
    ++records;
  }

  void add_rest(StepRecord record) {
    std::lock_guard lock(mutex);
    take_compiling(record);
    wall.extend(record.wall_ns);
    for (size_t c = 0; c < kCategories; ++c) times[c].extend(record.times.values[c]);
  }

  // What came before the first step is no part of the run, but for compiling.
  void add_outside(StepRecord record) {
    std::lock_guard lock(mutex);
    take_compiling(record);
    if (records == 0) return;
    sums.outside_ns += record.wall_ns;
    for (size_t c = 0; c < kCategories; ++c) sums.outside.values[c] += record.times.values[c];
  }

  ReplicaSummary summary() {
    std::lock_guard lock(mutex);
    ReplicaSummary all = sums;
    all.wall = wall.distribution();
    for (size_t c = 0; c < kCategories; ++c)
      all.times[c] = times[c].distribution(
          static_cast<Category>(c) == Category::descheduled ? measured_steps : all.wall.count);
    return all;
  }
};

thread_local ReplicaClock* bound_replica = nullptr;

}  // namespace

// Time is charged where the category changes: what passed since the last change belongs to the
// innermost open scope. So scopes exclude each other, and the sum over categories is the wall time.
struct alignas(64) ReplicaClock::State {
  State(const Clock& clock, int replica, int measure_every, int recent)
      : clock(clock),
        replica(replica),
        measure_every(measure_every),
        row(track("steps", "replica " + std::to_string(replica))),
        last_ns(clock.now_ns()) {
    aggregate.recent.resize(static_cast<size_t>(recent));
  }

  void read_cpu() {
    last_cpu_ns = clock.thread_cpu_ns();
    cpu_thread = this_thread();
  }

  // Charges the time since the last change. `next` is what the thread does from now on.
  void advance(ThreadState next) {
    const int64_t now = clock.now_ns();
    const int64_t elapsed = now - last_ns;
    Frame& frame = frames[depth];
    times[frame.category] += elapsed;
    frame.own_ns += elapsed;
    last_ns = now;
    if (!measuring) return;
    // A segment that began on another thread says nothing about this thread's processor time.
    const bool ran_here = frame.state == ThreadState::runs && cpu_thread == this_thread();
    const int64_t before = last_cpu_ns;
    cpu_thread = nullptr;
    if (ran_here || next == ThreadState::runs) read_cpu();
    if (ran_here) off_cpu[frame.category] += elapsed - (last_cpu_ns - before);
  }

  // Ends the interval that began at the last edge and starts the next one.
  StepRecord cut() {
    advance(frames[depth].state);
    StepRecord record;
    record.start_ns = edge_ns;
    record.wall_ns = last_ns - edge_ns;
    record.measured_descheduled = measuring;
    // The two clocks are not read at one instant, so only the sum over the step is compared.
    for (size_t c = 0; c < kCategories; ++c) {
      const int64_t taken = std::clamp<int64_t>(off_cpu.values[c], 0, times.values[c]);
      times.values[c] -= taken;
      times[Category::descheduled] += taken;
    }
    record.times = times;
    edge_ns = last_ns;
    times = {};
    off_cpu = {};
    for (int d = 0; d <= depth; ++d) frames[d].own_ns = 0;
    return record;
  }

  void begin() {
    before_call = times;
    in_step = true;
    // Not the first step: it warms up, and is left out of verdicts.
    measuring = measure_every > 0 && next_record % measure_every == 1 % measure_every;
    if (measuring && frames[depth].state == ThreadState::runs) read_cpu();
  }

  // What has passed since the last edge and nothing accounts for.
  int64_t unaccounted(const Times& around) const {
    int64_t known = 0;
    for (const int64_t ns : around.values) known += ns;
    return std::max<int64_t>(0, times[Category::unattributed] - known);
  }
  bool is_pause(int64_t ns) const {
    return ns > kPauseNs && next_step >= kMinSteps && ns > kPauseSteps * (stepped_ns / next_step);
  }

  Counts take_counts() {
    Counts taken;
    // An exchange takes far longer than a look, and most are 0.
    for (size_t c = 0; c < kCounters; ++c)
      if (counters[c].load(std::memory_order_relaxed) != 0)
        taken.values[c] = counters[c].exchange(0, std::memory_order_relaxed);
    return taken;
  }

  const Clock& clock;
  const int replica;
  const int measure_every;
  const Track row;

  int64_t last_ns;
  int64_t edge_ns = 0;
  int64_t last_cpu_ns = 0;
  const void* cpu_thread = nullptr;  // the thread last_cpu_ns belongs to; null: not read
  bool measuring = false;
  bool in_step = false;
  int64_t next_step = 0;
  int64_t next_record = 0;
  int64_t stepped_ns = 0;  // in steps, without compiling
  Times before_call;       // of the step under way, what is of the time before begin_next_step()
  Times last_call;         // of the last step, without that
  Times times;
  Times off_cpu;  // wall minus processor time where the thread ran, by category
  int depth = 0;
  Frame frames[kMaxDepth + 1];  // [0]: no scope is open

  alignas(64) std::array<std::atomic<int64_t>, kCounters> counters{};
  alignas(64) Aggregate aggregate;
};

ThreadState usual_state(Category category) {
  switch (category) {
    case Category::copy:
    case Category::compute:
    case Category::compiling:
    case Category::host:
    case Category::loop: return ThreadState::runs;
    default: return ThreadState::blocks;
  }
}

ReplicaClock::ReplicaClock(std::unique_ptr<State> state) : state_(std::move(state)) {}
ReplicaClock::~ReplicaClock() = default;

int ReplicaClock::replica() const { return state_->replica; }
bool ReplicaClock::in_step() const { return state_->in_step; }

void ReplicaClock::begin_step() {
  State& s = *state_;
  require(!s.in_step, ErrorCode::failed_precondition, std::source_location::current(), "step clock: step ",
          s.next_step, " of replica ", s.replica,
          " has begun already; call end_step() or abandon_step() first");
  s.aggregate.add_outside(s.cut());
  s.begin();
}

void ReplicaClock::begin_next_step(const Times& around) {
  State& s = *state_;
  if (s.next_step > 0 && !s.in_step) s.advance(s.frames[s.depth].state);
  const int64_t own = s.unaccounted(around);
  if (s.next_step == 0 || s.in_step || s.is_pause(own)) return begin_step();
  int64_t left = s.times[Category::unattributed] - own;
  for (size_t c = 0; c < kCategories; ++c) {
    const int64_t part = std::clamp<int64_t>(around.values[c], 0, left);
    s.times.values[c] += part;
    left -= part;
  }
  s.times[Category::loop] += own;
  s.times[Category::unattributed] = 0;
  s.begin();
}

StepRecord ReplicaClock::end_step(int64_t steps) {
  State& s = *state_;
  require(s.in_step, ErrorCode::failed_precondition, std::source_location::current(),
          "step clock: end_step() of replica ", s.replica, " without begin_step()");
  require(steps >= 1, ErrorCode::invalid_argument, std::source_location::current(),
          "step clock: end_step() takes the number of steps that were made, at least 1, received ", steps);
  StepRecord record = s.cut();
  record.index = std::exchange(s.next_step, s.next_step + steps);
  record.steps = steps;
  ++s.next_record;
  s.stepped_ns += record.wall_ns - record.times[Category::compiling];
  for (size_t c = 0; c < kCategories; ++c)
    s.last_call.values[c] = record.times.values[c] - s.before_call.values[c];
  record.counts = s.take_counts();
  s.in_step = false;
  s.measuring = false;
  s.aggregate.add_step(record);
  if (tracing()) [[unlikely]]
    record_span("step", "step", record.start_ns, record.start_ns + record.wall_ns,
                {.replica = s.replica, .track = s.row});
  return record;
}

void ReplicaClock::end_rest() {
  State& s = *state_;
  if (s.next_step == 0) return abandon_step();
  require(s.in_step, ErrorCode::failed_precondition, std::source_location::current(),
          "step clock: end_rest() of replica ", s.replica, " without begin_next_step()");
  const StepRecord record = s.cut();
  s.stepped_ns += record.wall_ns - record.times[Category::compiling];
  s.in_step = false;
  s.measuring = false;
  s.aggregate.add_rest(record);
}

void ReplicaClock::abandon_step() {
  State& s = *state_;
  if (!s.in_step) return;
  const StepRecord outside = s.cut();
  s.take_counts();
  s.in_step = false;
  s.measuring = false;
  s.aggregate.add_outside(outside);
}

void ReplicaClock::enter(Category category, ThreadState state) {
  State& s = *state_;
  require(s.depth < kMaxDepth, ErrorCode::failed_precondition, std::source_location::current(),
          "step clock: more than ", kMaxDepth, " scopes are open on replica ", s.replica,
          "; every enter() needs a leave()");
  s.advance(state);
  s.frames[++s.depth] = {category, state, s.last_ns, 0};
}

void ReplicaClock::leave() {
  State& s = *state_;
  require(s.depth > 0, ErrorCode::failed_precondition, std::source_location::current(),
          "step clock: leave() of replica ", s.replica, " without enter()");
  s.advance(s.frames[s.depth - 1].state);
  const Frame& frame = s.frames[s.depth--];
  if (tracing()) [[unlikely]]
    record_span(span_name(frame.category), "step", frame.start_ns, s.last_ns,
                {.replica = s.replica, .track = s.row});
}

int64_t ReplicaClock::move(Category category, int64_t ns) {
  State& s = *state_;
  Frame& frame = s.frames[s.depth];
  s.advance(frame.state);
  const int64_t moved = std::clamp<int64_t>(ns, 0, frame.own_ns);
  frame.own_ns -= moved;
  s.times[frame.category] -= moved;
  s.times[category] += moved;
  return moved;
}

void ReplicaClock::count(Counter counter, int64_t amount) {
  state_->counters[static_cast<size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
}

void ReplicaClock::multiply_counts(int64_t factor) {
  for (size_t c = 0; factor != 1 && c < kCounters; ++c)
    if (const int64_t more = state_->counters[c].load(std::memory_order_relaxed) * (factor - 1);
        more != 0 && static_cast<Counter>(c) != Counter::traces)
      state_->counters[c].fetch_add(more, std::memory_order_relaxed);
}

std::vector<StepRecord> ReplicaClock::recent() const {
  Aggregate& a = state_->aggregate;
  std::lock_guard lock(a.mutex);
  const int64_t size = static_cast<int64_t>(a.recent.size());
  std::vector<StepRecord> records;
  for (int64_t i = std::max<int64_t>(0, a.records - size); i < a.records; ++i)
    records.push_back(a.recent[static_cast<size_t>(i % size)]);
  return records;
}

void ReplicaClock::restart() {
  const State& s = *state_;
  state_ = std::make_unique<State>(s.clock, s.replica, s.measure_every,
                                   static_cast<int>(s.aggregate.recent.size()));
}

StepClock::StepClock(StepClockOptions options) {
  require(options.replicas >= 1 && options.recent >= 0 && options.measure_descheduled_every >= 0,
          ErrorCode::invalid_argument, std::source_location::current(),
          "StepClock: needs replicas >= 1, recent >= 0 and measure_descheduled_every >= 0, not ",
          options.replicas, ", ", options.recent, " and ", options.measure_descheduled_every);
  const Clock& clock = options.clock != nullptr ? *options.clock : Clock::system();
  measures_descheduled_ = options.measure_descheduled_every > 0 && clock.has_fine_thread_cpu();
  if (options.measure_descheduled_every > 0 && !measures_descheduled_)
    log_once(
        LogLevel::info,
        "step clock: this system counts a thread's processor time too coarsely; descheduled is not measured");
  const int every = measures_descheduled_ ? options.measure_descheduled_every : 0;
  for (int r = 0; r < options.replicas; ++r)
    replicas_.emplace_back(
        new ReplicaClock(std::make_unique<ReplicaClock::State>(clock, r, every, options.recent)));
}

StepClock::~StepClock() = default;

ReplicaClock& StepClock::replica(int index) {
  require(index >= 0 && index < replicas(), ErrorCode::invalid_argument, std::source_location::current(),
          "StepClock: replica ", index, " of ", replicas(), " does not exist");
  return *replicas_[static_cast<size_t>(index)];
}

void StepClock::begin_step() {
  for (const auto& replica : replicas_) replica->begin_step();
  thread_times().open = true;
}

void StepClock::begin_next_step() {
  ThreadTimes& now = thread_times();
  Times around;
  if (thread_ == this_thread())
    for (size_t c = 0; c < kCategories; ++c) around.values[c] = now.times.values[c] - thread_times_.values[c];
  for (const auto& replica : replicas_) replica->begin_next_step(around);
  now.open = true;
}

void StepClock::end_step(int64_t steps) {
  ThreadTimes& now = thread_times();
  if (const int64_t reads = now.value_reads - thread_reads_; reads != 0 && thread_ == this_thread())
    for (const auto& replica : replicas_) replica->count(Counter::value_reads, reads);
  for (const auto& replica : replicas_) replica->end_step(steps);
  // To the other loops of this thread, the step is no work of their own.
  const Times& own = replicas_[0]->state_->last_call;
  for (size_t c = 0; c < kCategories; ++c) now.times.values[c] += own.values[c];
  now.in_loop = true;
  now.open = false;
  thread_ = this_thread();
  thread_times_ = now.times;
  thread_reads_ = now.value_reads;
}

void StepClock::end_rest() {
  for (const auto& replica : replicas_) replica->end_rest();
  thread_times().open = false;
}

void StepClock::abandon_step() {
  for (const auto& replica : replicas_) replica->abandon_step();
  thread_times().open = false;
}

void StepClock::enter(Category category) {
  for (const auto& replica : replicas_) replica->enter(category);
}

void StepClock::leave() {
  for (const auto& replica : replicas_) replica->leave();
}

void StepClock::restart() {
  for (const auto& replica : replicas_) replica->restart();
}

RunSummary StepClock::summary() const {
  RunSummary summary;
  summary.measures_descheduled = measures_descheduled_;
  for (const auto& replica : replicas_) summary.replicas.push_back(replica->state_->aggregate.summary());
  return summary;
}

ThreadTimes& thread_times() {
  static thread_local ThreadTimes own;
  return own;
}

ReplicaClock* current_replica() { return bound_replica; }

BindReplica::BindReplica(ReplicaClock& clock) : previous_(bound_replica) { bound_replica = &clock; }
BindReplica::~BindReplica() { bound_replica = previous_; }

}  // namespace lockstep::observe
