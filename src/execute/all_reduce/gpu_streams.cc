#include "execute/all_reduce/gpu_streams.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "execute/all_reduce/bucket_room.h"

namespace lockstep::execute {

using observe::Category;

namespace {

MemoryRange range_of(const void* data, size_t bytes) {
  return {static_cast<const char*>(data), static_cast<const char*>(data) + bytes};
}

}  // namespace

// A bucket of one device is filled when this has happened.
class GpuStreamsAllReduce::EventMark final : public LaunchMark {
 public:
  explicit EventMark(std::unique_ptr<Event> event) : event_(std::move(event)) {}
  void reach(Stream& stream) override { event_->record(stream); }
  const Event& event() const { return *event_; }

 private:
  std::unique_ptr<Event> event_;
};

GpuStreamsAllReduce::GpuStreamsAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                                         const StepObserver& observer, Order order)
    : group_(group),
      sums_(std::move(sums)),
      observer_(observer),
      order_(order),
      barrier_(static_cast<int>(group.devices.size()), group.waiting),
      states_(group.devices.size()) {
  fill_buckets();
  for (size_t d = 0; d < states_.size(); ++d) {
    State& state = states_[d];
    state.side = device(d).new_stream();
    for (size_t b = 0; b < buckets_.size(); ++b) {
      state.filled.push_back(std::make_unique<EventMark>(device(d).new_event()));
      state.summed.push_back(device(d).new_event());
    }
  }
  for (size_t d = 0; d < states_.size(); ++d) connect(states_[d], d);
}

GpuStreamsAllReduce::~GpuStreamsAllReduce() = default;

// --- construction ------------------------------------------------------------------------------------------

// Buckets take the sums in the order in which the first device's last replica makes the addends; between
// processes, in the order of the first plan, which all have in common.
void GpuStreamsAllReduce::fill_buckets() {
  std::vector<size_t> order(sums_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t s) {
    return std::tuple(sums_[s].phase, !sums_[s].conditions.empty(),
                      group_.workers ? static_cast<size_t>(sums_[s].order) : sums_[s].ready[0]);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  std::map<int, int64_t> left;  // bytes, by phase
  for (const ReplicaSum& sum : sums_) left[sum.phase] += static_cast<int64_t>(sum.bytes());
  int64_t room = 0;
  for (const size_t s : order) {
    const ReplicaSum& sum = sums_[s];
    const bool fits = !buckets_.empty() && buckets_.back().phase == sum.phase && room > 0 &&
                      sums_[buckets_.back().sums[0]].conditions == sum.conditions;
    if (!fits) {
      buckets_.push_back({.phase = sum.phase, .sums = {}});
      room = bucket_room(group_.bucket_bytes, left[sum.phase]);
    }
    buckets_.back().sums.push_back(s);
    room -= static_cast<int64_t>(sum.bytes());
    left[sum.phase] -= static_cast<int64_t>(sum.bytes());
  }
}

// Makes the marks and waits of this device's launches, when the events of all devices exist.
void GpuStreamsAllReduce::connect(State& state, size_t d) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    const auto phase = static_cast<size_t>(bucket.phase);
    if (state.waits.size() <= phase) {
      state.marks.resize(phase + 1);
      state.waits.resize(phase + 1);
      state.times.resize(phase + 1);
    }
    auto& marks = state.marks[phase];
    size_t launches = marks.empty() ? 0 : marks.back().launches;
    PhaseSync::Wait wait;
    for (const size_t s : bucket.sums) {
      const ReplicaSum& sum = sums_[s];
      launches = std::max(launches, sum.ready[d]);
      for (const void* result : sum.results[d])
        if (result) wait.memory.push_back(range_of(result, sum.bytes()));
      // No launch may overwrite an addend that other devices still read.
      for (int r = group_.held[d].first; r < group_.held[d].last; ++r)
        wait.memory.push_back(range_of(sum.inputs[static_cast<size_t>(r)], sum.bytes()));
    }
    marks.push_back({launches, state.filled[b].get()});
    for (size_t e = 0; e < states_.size(); ++e)
      if (e == d || order_ == Order::by_events) wait.events.push_back(states_[e].summed[b].get());
    state.waits[phase].push_back(std::move(wait));
  }
  for (size_t phase = 0; phase < state.times.size(); ++phase)
    for (Times& times : state.times[phase])
      if (!state.waits[phase].empty())
        for (auto* event : {&times.computed, &times.gathered, &times.summed})
          *event = device(d).new_event(Event::Timed::yes);
}

// --- running -----------------------------------------------------------------------------------------------

void GpuStreamsAllReduce::begin_step() {
  barrier_.reset();
  ++steps_;
}

std::span<const PhaseSync::Mark> GpuStreamsAllReduce::marks(int d, int phase) const {
  const auto& all = states_[static_cast<size_t>(d)].marks;
  if (static_cast<size_t>(phase) >= all.size()) return {};
  return all[static_cast<size_t>(phase)];
}

std::span<const PhaseSync::Wait> GpuStreamsAllReduce::waits(int d, int phase) const {
  const auto& all = states_[static_cast<size_t>(d)].waits;
  if (static_cast<size_t>(phase) >= all.size()) return {};
  return all[static_cast<size_t>(phase)];
}

bool GpuStreamsAllReduce::meet(int d) {
  if (states_.size() == 1 || order_ == Order::by_library) return true;
  const auto scope = observer_.time(d, Category::waiting_for_others);
  return barrier_.meet();
}

bool GpuStreamsAllReduce::finish(int d, int phase) {
  if (waits(d, phase).empty()) return true;
  if (!meet(d)) return false;
  queue(static_cast<size_t>(d), phase);
  return meet(d);
}

void GpuStreamsAllReduce::queue(size_t d, int phase) {
  const auto scope = observer_.time(static_cast<int>(d), Category::host);
  State& state = states_[d];
  Times* const times =
      observer_.device(static_cast<int>(d)) ? &state.times[static_cast<size_t>(phase)][steps_ % 2] : nullptr;
  if (times) times->computed->record(device(d).compute_stream());
  Stream& stream = *state.side;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (bucket.phase != phase) continue;
    const bool summed = wanted(d, bucket);
    for (size_t e = 0; e < states_.size(); ++e)
      if (e == d || order_ == Order::by_events) states_[e].filled[b]->event().wait(stream);
    if (times) times->gathered->record(stream);
    if (summed)
      reduce(d, b, stream);
    else
      leave_out(d, bucket, stream);
    state.summed[b]->record(stream);
    if (!summed) continue;
    const auto [in, out] = traffic(d, b);
    device(d).count_copy(in, out);
    observer_.count(static_cast<int>(d), observe::Counter::communication_bytes, out);
  }
  if (!times) return;
  times->summed->record(stream);
  times->taken = true;
}

bool GpuStreamsAllReduce::wanted(size_t d, const Bucket& bucket) const {
  bool wanted = true;
  if (const ReplicaSum& sum = sums_[bucket.sums[0]]; !sum.conditions.empty())
    device(d).copy_to_host(&wanted, sum.conditions[d], sizeof wanted);
  return wanted;
}

// A sum that is not wanted is not used, but a check of all values for NaNs must not find what another value
// left in its place.
void GpuStreamsAllReduce::leave_out(size_t d, const Bucket& bucket, Stream& stream) const {
  for (const size_t s : bucket.sums)
    for (void* result : sums_[s].results[d])
      if (result) stream.fill(result, 0, 1, sums_[s].bytes());
}

int64_t GpuStreamsAllReduce::bytes_of(const Bucket& bucket) const {
  int64_t bytes = 0;
  for (const size_t s : bucket.sums) bytes += static_cast<int64_t>(sums_[s].bytes());
  return bytes;
}

TreeSum GpuStreamsAllReduce::tree_sum(size_t s, size_t d) const {
  const ReplicaSum& sum = sums_[s];
  return {.dtype = sum.dtype,
          .target_dtype = sum.dtype,
          .size = sum.size,
          .addends = {},
          .target = sum.results[d][0]};
}

void GpuStreamsAllReduce::copy_results(size_t d, size_t b, Stream& stream) const {
  for (const size_t s : buckets_[b].sums) {
    const auto& results = sums_[s].results[d];
    for (size_t p = 1; p < results.size(); ++p)
      if (results[p]) stream.copy(results[p], results[0], sums_[s].bytes());
  }
}

void GpuStreamsAllReduce::attribute_waits(int d, uint64_t steps_ago) {
  observe::ReplicaClock* const clock = observer_.device(d);
  if (!clock) return;
  for (auto& by_turn : states_[static_cast<size_t>(d)].times) {
    Times& times = by_turn[(steps_ - steps_ago) % 2];
    if (!std::exchange(times.taken, false)) continue;
    const int64_t gathered = std::max<int64_t>(0, times.gathered->ns_since(*times.computed));
    const int64_t summed = std::max(gathered, times.summed->ns_since(*times.computed));
    clock->move(Category::waiting_for_others, gathered);
    clock->move(Category::exposed_communication, summed - gathered);
  }
}

}  // namespace lockstep::execute
