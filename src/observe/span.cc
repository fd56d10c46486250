#include "lockstep/observe/span.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::observe {
namespace {

constexpr std::string_view kHostGroup = "host";

static_assert(sizeof(Event) == 64, "an event is one cache line");

// One producer, the thread it belongs to; one consumer at a time, take_trace(). Full means that new
// events are dropped: overwriting old ones would need a lock against the consumer.
class Ring {
 public:
  Ring(uint64_t capacity, Track track) : track_(track), events_(capacity, Event{"", "", 0, 0}) {}

  void push(const Event& event) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_.load(std::memory_order_acquire) == events_.size()) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    events_[head & (events_.size() - 1)] = event;
    head_.store(head + 1, std::memory_order_release);
  }

  // Appends what is there to `out` and returns how many events were dropped since the last call.
  int64_t drain(std::vector<Event>& out) {
    const uint64_t head = head_.load(std::memory_order_acquire);
    uint64_t tail = tail_.load(std::memory_order_relaxed);
    for (; tail != head; ++tail) {
      out.push_back(events_[tail & (events_.size() - 1)]);
      if (out.back().track == kThisThread) out.back().track = track_;
    }
    tail_.store(tail, std::memory_order_release);
    return dropped_.exchange(0, std::memory_order_relaxed);
  }

  // A retired ring is not read any more; its thread makes a new one for its next event.
  void retire() { retired_.store(true, std::memory_order_relaxed); }
  bool retired() const { return retired_.load(std::memory_order_relaxed); }

  // The thread has ended: nothing will be pushed after what is there now.
  void finish() { finished_.store(true, std::memory_order_release); }
  bool finished() const { return finished_.load(std::memory_order_acquire); }

 private:
  const Track track_;
  std::vector<Event> events_;
  std::atomic<bool> retired_{false};
  std::atomic<bool> finished_{false};
  alignas(64) std::atomic<uint64_t> head_{0};
  std::atomic<int64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
};

struct Registry {
  std::mutex mutex;
  std::set<std::string, std::less<>> names;
  std::vector<TrackInfo> tracks{{kThisThread, std::string(kHostGroup), "unknown thread"}};
  std::map<std::pair<std::string, std::string>, Track> named_tracks;
  std::vector<std::shared_ptr<Ring>> rings;
  uint64_t capacity = 0;
  int threads = 0;
  std::atomic<int64_t> late{0};  // events of threads whose ring is gone already

  Track add_track(std::string group, std::string row) {
    const Track track = static_cast<Track>(tracks.size());
    tracks.push_back({track, std::move(group), std::move(row)});
    return track;
  }
};

// Never destroyed: threads may still record while the program exits.
Registry& registry() {
  static Registry& r = *new Registry;
  return r;
}

// What a thread keeps. The pointer in front of it is all that the hot path reads: it needs no
// initialisation guard, and is null before the first event and while the thread ends.
struct ThreadSlot {
  std::shared_ptr<Ring> ring;
  Track track = kThisThread;
  std::string name;
  ~ThreadSlot();
};

constinit thread_local Ring* current_ring = nullptr;
constinit thread_local bool thread_ending = false;

ThreadSlot& thread_slot() {
  thread_local ThreadSlot slot;
  return slot;
}

ThreadSlot::~ThreadSlot() {
  current_ring = nullptr;
  thread_ending = true;
  if (ring) ring->finish();
}

Ring* make_ring() {
  ThreadSlot& slot = thread_slot();
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (slot.track == kThisThread) {
    const int number = r.threads++;
    slot.track = r.add_track(std::string(kHostGroup),
                             slot.name.empty() ? "thread " + std::to_string(number) : slot.name);
  }
  slot.ring = std::make_shared<Ring>(r.capacity, slot.track);
  r.rings.push_back(slot.ring);
  return current_ring = slot.ring.get();
}

void push(const Event& event) {
  if (!tracing()) return;
  Ring* ring = current_ring;
  if (ring == nullptr || ring->retired()) [[unlikely]] {
    if (thread_ending) {
      registry().late.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    ring = make_ring();
  }
  ring->push(event);
}

void retire_rings(Registry& r) {
  for (const auto& ring : r.rings) ring->retire();
  r.rings.clear();
}

}  // namespace

Name intern(std::string_view text) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto found = r.names.find(text);
  if (found == r.names.end()) found = r.names.emplace(text).first;
  return Name(found->c_str(), Name::Interned{});
}

Track track(std::string_view group, std::string_view row) {
  Registry& r = registry();
  std::pair<std::string, std::string> key(group, row);
  std::lock_guard lock(r.mutex);
  if (const auto found = r.named_tracks.find(key); found != r.named_tracks.end()) return found->second;
  const Track made = r.add_track(key.first, key.second);
  r.named_tracks.emplace(std::move(key), made);
  return made;
}

void name_this_thread(std::string_view name) {
  ThreadSlot& slot = thread_slot();
  slot.name = name;
  if (slot.track == kThisThread) return;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.tracks[slot.track].row = slot.name;
}

void start_tracing(TracingOptions options) {
  require(options.events_per_thread >= 1 && options.events_per_thread <= (1 << 26),
          ErrorCode::invalid_argument, std::source_location::current(),
          "start_tracing: events_per_thread must be from 1 to 67108864, not ", options.events_per_thread);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  retire_rings(r);
  r.late.store(0, std::memory_order_relaxed);
  r.capacity = std::bit_ceil(static_cast<uint64_t>(options.events_per_thread));
  detail::tracing.store(true, std::memory_order_relaxed);
}

void stop_tracing() { detail::tracing.store(false, std::memory_order_relaxed); }

void record_span(Name name, Name category, int64_t start_ns, int64_t end_ns, const EventOptions& options) {
  Event event{name, category, start_ns, end_ns};
  event.device = options.device;
  event.replica = options.replica;
  event.track = options.track;
  event.value = static_cast<double>(options.flops);
  event.bytes = options.bytes;
  push(event);
}

void record_counter(Name name, double value, const EventOptions& options) {
  if (!tracing()) return;
  const int64_t now = monotonic_ns();
  Event event{name, "counter", now, now, EventKind::counter};
  event.device = options.device;
  event.replica = options.replica;
  event.track = options.track;
  event.value = value;
  push(event);
}

Trace take_trace() {
  Trace trace;
  {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    trace.dropped = r.late.exchange(0, std::memory_order_relaxed);
    std::erase_if(r.rings, [&](const std::shared_ptr<Ring>& ring) {
      const bool finished = ring->finished();  // before draining: nothing can come after it
      trace.dropped += ring->drain(trace.events);
      return finished;
    });
    if (!tracing()) retire_rings(r);

    std::set<Track> used;
    for (const Event& event : trace.events) used.insert(event.track);
    for (const Track t : used)
      trace.tracks.push_back(t < r.tracks.size() ? r.tracks[t] : TrackInfo{t, "unknown", std::to_string(t)});
  }
  std::stable_sort(trace.tracks.begin(), trace.tracks.end(),
                   [](const TrackInfo& a, const TrackInfo& b) { return a.group < b.group; });
  std::stable_sort(trace.events.begin(), trace.events.end(), [](const Event& a, const Event& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  });
  if (trace.dropped > 0)
    log(LogLevel::warning, "trace: ", trace.dropped, " events did not fit and are missing (",
        trace.events.size(),
        " were kept); raise start_tracing({.events_per_thread = ...}) or take the trace more often");
  return trace;
}

}  // namespace lockstep::observe
