// flat_map and interleave: the elements of datasets that a function makes, from several of them in turn.
//
// There is one order, that of a fixed cycle of places: a place gives block_length elements, then the next
// one's turn comes; a place whose dataset has ended passes its turn on and takes up the next dataset when its
// turn comes again. flat_map is a cycle of one. In parallel, threads prefetch from every dataset of the cycle
// and from the next few behind them, each into a buffer of its own, and the consumer walks the same cycle
// over the buffers.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "base/parallel.h"
#include "base/thread.h"
#include "data/function.h"
#include "data/pipeline.h"
#include "data/stages/parallelism.h"
#include "lockstep/base/clock.h"

namespace lockstep::data {
namespace {

struct Interleaving {
  std::function<Dataset(const Element&)> function;
  FunctionCaller caller;
  int64_t cycle_length;
  int64_t block_length;
  int64_t calls;
  std::optional<bool> deterministic;
};

// A dataset that the function made, while it is read.
struct Stream {
  Item argument;  // of the function: a restore calls it again
  int64_t index = 0;
  NodePtr node;
  std::unique_ptr<Cursor> cursor;  // none where it has ended, or could not be made
  // In parallel: read and not taken yet.
  std::deque<Outcome> ready;
  bool failed = false;  // could not be made: `ready` says why
  bool busy = false;
};

// The cycle, whoever reads the streams.
class InterleaveCursor : public Cursor {
 public:
  InterleaveCursor(const Opening& opening, const Node& input, const Interleaving& how)
      : Cursor(opening.stage),
        how_(how),
        cycle_(static_cast<size_t>(how.cycle_length)),
        opening_(opening),
        input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    state.number("opened", opened_);
    state.number("ended", ended_);
    state.number("turn", static_cast<int64_t>(turn_));
    state.number("given", given_);
    state.cursor("input", *input_);
    for (size_t i = 0; i < cycle_.size(); ++i)
      save_stream(state, "cycle." + std::to_string(i), cycle_[i].get());
  }
  void restore(const StateReader& state) override {
    opened_ = state.number("opened");
    ended_ = state.number("ended") != 0;
    turn_ = static_cast<size_t>(state.number("turn")) % cycle_.size();
    given_ = state.number("given");
    state.cursor("input", *input_);
    for (size_t i = 0; i < cycle_.size(); ++i)
      cycle_[i] = restore_stream(state, "cycle." + std::to_string(i));
  }

 protected:
  using StreamPtr = std::unique_ptr<Stream>;

  // The next stream, for the place whose turn it is; none at the end.
  virtual StreamPtr next_stream() { return read_stream(); }
  // Its next element; false at its end.
  virtual bool take(Stream& stream, Item& item) { return stream.cursor->next(item); }
  // Called before every look at the place whose turn it is.
  virtual void choose_turn() {}

  bool advance(Item& item) override {
    while (true) {
      choose_turn();
      StreamPtr& stream = cycle_[turn_];
      if (stream) {
        if (take(*stream, item)) {
          if (++given_ == how_.block_length) pass_turn();
          return true;
        }
        stream.reset();
        pass_turn();
      } else if (!ended_) {
        stream = next_stream();
        ended_ = !stream;
      } else if (std::none_of(cycle_.begin(), cycle_.end(),
                              [](const StreamPtr& open) { return open != nullptr; })) {
        return false;
      } else {
        pass_turn();
      }
    }
  }

  // Reads the input and makes a dataset of what comes; none at the end.
  StreamPtr read_stream() {
    auto stream = std::make_unique<Stream>();
    if (!input_->next(stream->argument)) return nullptr;
    stream->index = opened_++;
    open(*stream);
    return stream;
  }

  void save_stream(StateWriter& state, const std::string& name, Stream* stream) {
    state.number(name + ".is", stream != nullptr);
    if (!stream) return;
    state.number(name + ".index", stream->index);
    state.number(name + ".failed", stream->failed);
    state.number(name + ".open", stream->cursor != nullptr);
    state.items(name + ".argument", std::span(&stream->argument, 1));
    std::vector<Outcome> ready(stream->ready.begin(), stream->ready.end());
    state.outcomes(name + ".ready", ready);
    if (stream->cursor) state.cursor(name, *stream->cursor);
  }
  StreamPtr restore_stream(const StateReader& state, const std::string& name) {
    if (state.number(name + ".is") == 0) return nullptr;
    auto stream = std::make_unique<Stream>();
    stream->index = state.number(name + ".index");
    stream->failed = state.number(name + ".failed") != 0;
    stream->argument = state.items(name + ".argument").at(0);
    for (Outcome& outcome : state.outcomes(name + ".ready")) stream->ready.push_back(std::move(outcome));
    if (state.number(name + ".open") == 0) return stream;
    open(*stream);
    state.cursor(name, *stream->cursor);
    return stream;
  }

  const Interleaving how_;
  std::vector<StreamPtr> cycle_;
  size_t turn_ = 0;
  int64_t given_ = 0;   // in this turn
  bool ended_ = false;  // there is no further stream

 private:
  void pass_turn() {
    turn_ = (turn_ + 1) % cycle_.size();
    given_ = 0;
  }
  void open(Stream& stream) {
    Item argument = stream.argument;
    stream.node = how_.caller(stage(), opening_.pass, stream.index, [&] {
      const Dataset made = how_.function(argument.element());
      require(made.defined(), ErrorCode::invalid_argument, stage().where, stage().name,
              ": the function must return a dataset");
      return made.node();
    });
    stream.cursor = opening_.of(stream.index).open(*stream.node, 1);
  }

  const Opening opening_;
  std::unique_ptr<Cursor> input_;
  int64_t opened_ = 0;
};

class ParallelInterleaveCursor final : private StopScope, public InterleaveCursor {
 public:
  ParallelInterleaveCursor(const Opening& opening, const Node& input, const Interleaving& how)
      : StopScope(opening.stop),
        InterleaveCursor(stopped_by(opening, StopScope::token()), input, how),
        pipeline_(opening.pipeline),
        ordered_(ordered(how.deterministic, opening)),
        // Two turns: one is read while the other is taken.
        room_for_(static_cast<size_t>(2 * std::min(how.block_length, kMostAhead))) {
    if (stage().threads == 0) {
      stage().threads = how.calls == AUTOTUNE ? 1 : static_cast<int>(how.calls);
      stage().tunes_threads = how.calls == AUTOTUNE && pipeline_.options().autotune;
      stage().slots = how.cycle_length * static_cast<int64_t>(room_for_);
    }
  }
  ~ParallelInterleaveCursor() override {
    stop();
    std::vector<std::thread> threads;
    {
      // From here on none is started.
      const Lock lock(mutex_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }
  void save(StateWriter& state) override {
    Lock lock(mutex_);
    paused_ = true;
    quiet_.wait(lock, [&] { return busy_ == 0; });
    InterleaveCursor::save(state);
    state.number("input_ended", input_ended_);
    state.number("upcoming", static_cast<int64_t>(upcoming_.size()));
    for (size_t i = 0; i < upcoming_.size(); ++i)
      save_stream(state, "upcoming." + std::to_string(i), upcoming_[i].get());
    paused_ = false;
    room_.notify_all();
  }
  void restore(const StateReader& state) override {
    const Lock lock(mutex_);
    InterleaveCursor::restore(state);
    input_ended_ = state.number("input_ended") != 0;
    for (int64_t i = 0; i < state.number("upcoming"); ++i)
      upcoming_.push_back(restore_stream(state, "upcoming." + std::to_string(i)));
    for (const StreamPtr& stream : cycle_)
      waiting_ += stream && !stream->failed ? std::ssize(stream->ready) : 0;
    for (const StreamPtr& stream : upcoming_) waiting_ += stream->failed ? 0 : std::ssize(stream->ready);
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr int64_t kMostAhead = 32;

  static Opening stopped_by(Opening opening, std::stop_token stop) {
    opening.stop = std::move(stop);
    return opening;
  }
  static void add(Stage::Counter& counter, int64_t amount) {
    counter.fetch_add(amount, std::memory_order_relaxed);
  }
  void start_threads(const Lock&) {
    while (!StopScope::token().stop_requested() && static_cast<int>(threads_.size()) < stage().threads) try {
        threads_.push_back(start_thread([this, id = static_cast<int>(threads_.size())] { run(id); }));
      } catch (const Error&) {
        // Those that there are do it.
        if (threads_.empty()) throw;
        stage().threads = static_cast<int>(threads_.size());
      }
  }

  // --- the consumer; the lock is held all the while ---

  bool advance(Item& item) override {
    Lock lock(mutex_);
    start_threads(lock);
    lock_ = &lock;
    add(stage().ready, waiting_);
    if (waiting_ < stage().least_ready.load(std::memory_order_relaxed))
      stage().least_ready.store(waiting_, std::memory_order_relaxed);
    return InterleaveCursor::advance(item);
  }
  template <class Condition>
  void wait(const Condition& condition) {
    if (condition()) return;
    add(stage().empty, 1);
    const int64_t begin = monotonic_ns();
    stage().waiting_since_ns.store(begin, std::memory_order_relaxed);
    const bool goes_on = ready_.wait(*lock_, StopScope::token(), condition);
    const int64_t waited = monotonic_ns() - begin;
    stage().waiting_since_ns.store(0, std::memory_order_relaxed);
    add(stage().consumer_wait_ns, waited);
    StageTimer::waited(waited);
    if (!goes_on) throw Cancelled();
  }
  static bool is_ready(const Stream& stream) { return !stream.ready.empty() || !stream.cursor; }

  StreamPtr next_stream() override {
    wait([&] { return !upcoming_.empty() || input_ended_; });
    if (upcoming_.empty()) return nullptr;
    StreamPtr stream = std::move(upcoming_.front());
    upcoming_.pop_front();
    wake_one();
    if (stream->failed) std::rethrow_exception(stream->ready.front().error);
    return stream;
  }
  bool take(Stream& stream, Item& item) override {
    wait([&] { return is_ready(stream); });
    if (stream.ready.empty()) return false;
    Outcome outcome = std::move(stream.ready.front());
    stream.ready.pop_front();
    --waiting_;
    wake_one();
    if (outcome.error) std::rethrow_exception(outcome.error);
    item = std::move(outcome.item);
    return true;
  }
  void choose_turn() override {
    if (ordered_) return;
    wait([&] {
      bool any = false;
      for (size_t i = 0; i < cycle_.size(); ++i) {
        const size_t place = (turn_ + i) % cycle_.size();
        if (cycle_[place] ? is_ready(*cycle_[place]) : !ended_ && (!upcoming_.empty() || input_ended_)) {
          turn_ = place;
          return true;
        }
        any = any || cycle_[place];
      }
      return !any && ended_;
    });
  }

  // --- the threads ---

  struct Job {
    bool reads_input = false;
    Stream* stream = nullptr;
    explicit operator bool() const { return reads_input || stream; }
  };
  // For there is one thing more to do. A thread that was taken out of work would not do it.
  void wake_one() { stage().tunes_threads ? room_.notify_all() : room_.notify_one(); }
  bool has_work(const Stream& stream) const {
    return stream.cursor && !stream.busy && stream.ready.size() < room_for_;
  }
  // What the consumer will want first comes first.
  Job find_job(int id) const {
    if (paused_ || id >= stage().threads) return {};
    const bool may_read = !input_ended_ && !reading_input_;
    if (may_read && upcoming_.empty()) return {.reads_input = true};
    for (size_t i = 0; i < cycle_.size(); ++i) {
      const StreamPtr& stream = cycle_[(turn_ + i) % cycle_.size()];
      if (stream && has_work(*stream)) return {.stream = stream.get()};
    }
    if (may_read && static_cast<int>(upcoming_.size()) < stage().threads) return {.reads_input = true};
    for (const StreamPtr& stream : upcoming_)
      if (has_work(*stream)) return {.stream = stream.get()};
    return {};
  }

  void run(int id) {
    const DeviceScope device(pipeline_.device());
    const ThreadLimit alone(1);
    Lock lock(mutex_);
    while (true) {
      Job job = find_job(id);
      if (!job) {
        const int64_t begin = monotonic_ns();
        if (!room_.wait(lock, StopScope::token(), [&] { return static_cast<bool>(job = find_job(id)); }))
          return;
        add(stage().producer_wait_ns, monotonic_ns() - begin);
      } else if (StopScope::token().stop_requested()) {
        return;
      }
      ++busy_;
      try {
        job.stream ? read_element(*job.stream, lock) : read_input(lock);
      } catch (const Cancelled&) {
        --busy_;
        quiet_.notify_all();
        return;
      }
      --busy_;
      start_threads(lock);
      ready_.notify_one();
      wake_one();
      if (paused_ && busy_ == 0) quiet_.notify_all();
    }
  }
  // The work of `f` without the lock, which is held again when it returns or throws; what it throws is
  // returned.
  template <class F>
  static std::exception_ptr unlocked(Lock& lock, const F& f) {
    lock.unlock();
    std::exception_ptr error;
    try {
      f();
    } catch (const Cancelled&) {
      lock.lock();
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    return error;
  }
  void read_input(Lock& lock) {
    reading_input_ = true;
    StreamPtr stream;
    const int64_t begin = monotonic_ns();
    const std::exception_ptr error = unlocked(lock, [&] { stream = read_stream(); });
    add(stage().fetch_ns, monotonic_ns() - begin);
    reading_input_ = false;
    if (error) {
      stream = std::make_unique<Stream>();
      stream->ready.push_back({{}, error});
      stream->failed = true;
    }
    input_ended_ = !stream;
    if (stream) upcoming_.push_back(std::move(stream));
  }
  void read_element(Stream& stream, Lock& lock) {
    stream.busy = true;
    Outcome outcome;
    bool got = false;
    const int64_t begin = monotonic_ns();
    outcome.error = unlocked(lock, [&] { got = stream.cursor->next(outcome.item); });
    const int64_t now = monotonic_ns();
    add(stage().work_ns, now - begin);
    pipeline_.tuner().look(now);
    stream.busy = false;
    if (!got && !outcome.error) {
      stream.cursor.reset();
      return;
    }
    stream.ready.push_back(std::move(outcome));
    ++waiting_;
    add(stage().worked, 1);
  }

  Pipeline& pipeline_;
  const bool ordered_;
  const size_t room_for_;  // elements prefetched in every stream

  std::mutex mutex_;
  Lock* lock_ = nullptr;               // the consumer's
  std::condition_variable_any room_;   // the threads wait here
  std::condition_variable_any ready_;  // the consumer waits here
  std::condition_variable_any quiet_;  // save() waits here
  std::deque<StreamPtr> upcoming_;     // behind those of the cycle, in order
  bool input_ended_ = false;
  bool reading_input_ = false;
  bool paused_ = false;
  int busy_ = 0;
  int64_t waiting_ = 0;  // elements that are ready, in all streams together
  std::vector<std::thread> threads_;
};

class InterleaveNode final : public NodeOf<InterleaveNode> {
 public:
  InterleaveNode(const char* name, NodePtr input, Interleaving how, std::source_location where)
      : NodeOf(name, {std::move(input)}, where), how_(std::move(how)) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    if (how_.calls == 1) return std::make_unique<InterleaveCursor>(opening, input(), how_);
    return std::make_unique<ParallelInterleaveCursor>(opening, input(), how_);
  }
  std::optional<ElementSpec> spec() const override { return {}; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  bool shares_files() const override { return true; }
  std::string order_hazard(const Options& options) const override {
    return parallel_order_hazard(how_.calls, how_.deterministic, options);
  }
  std::string arguments() const override {
    if (how_.cycle_length == 1) return {};
    const std::string parallel = parallelism_text(how_.calls);
    return detail::concat("cycle_length=", how_.cycle_length, ", block_length=", how_.block_length,
                          parallel.empty() ? "" : ", ", parallel);
  }

 private:
  Interleaving how_;
};

}  // namespace

Dataset Dataset::flat_map_elements(DatasetFunction f, std::source_location where) const {
  return Dataset(std::make_shared<InterleaveNode>(
      "flat_map", node_, Interleaving{std::move(f), {}, 1, std::numeric_limits<int64_t>::max(), 1, {}},
      where));
}

Dataset Dataset::interleave_elements(DatasetFunction f, const InterleaveOptions& options,
                                     std::source_location where) const {
  require((options.cycle_length > 0 || options.cycle_length == AUTOTUNE) && options.block_length > 0,
          ErrorCode::invalid_argument, where,
          "interleave: cycle_length must be positive or AUTOTUNE and block_length positive, received ",
          options.cycle_length, " and ", options.block_length);
  check_parallelism("interleave", options.num_parallel_calls, where);
  // The order follows from it: the same on every machine.
  constexpr int64_t kCycle = 8;
  const int64_t cycle = options.cycle_length == AUTOTUNE ? kCycle : options.cycle_length;
  return Dataset(std::make_shared<InterleaveNode>(
      "interleave", node_,
      Interleaving{
          std::move(f), {}, cycle, options.block_length, options.num_parallel_calls, options.deterministic},
      where));
}

}  // namespace lockstep::data
