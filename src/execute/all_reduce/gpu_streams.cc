#include "execute/all_reduce/gpu_streams.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "execute/all_reduce/host_threads.h"
#include "lockstep/observe/span.h"

namespace lockstep::compile {

using observe::Category;

namespace {

constexpr size_t kAligned = 512;  // bytes
// Of a bucket, where nobody says otherwise. At most: its bytes should take longer than what is done around them. At
// least: else every bucket is half of what is left, so that the last one, which nothing overlaps, is a small one.
constexpr int64_t kMostBytes = 16 << 20, kLeastBytes = 1 << 20;

MemoryRange range_of(const void* data, size_t bytes) {
  return {static_cast<const char*>(data), static_cast<const char*>(data) + bytes};
}

}  // namespace

GpuSums::GpuSums(const ReplicaLayout& layout, const std::vector<ReplicaSum>& sums,
                 std::span<const TreeNode> leaves, Barrier& barrier)
    : layout_(layout),
      sums_(sums),
      leaves_(leaves),
      barrier_(barrier),
      method_(choose_sum(layout.devices, layout.reproducible, layout.cross_device_ops).method),
      devices_(layout.devices.size()) {
  fill_buckets();
  for (size_t d = 0; d < devices_.size(); ++d) prepare(devices_[d], d);
  for (size_t d = 0; d < devices_.size(); ++d) connect(devices_[d], d);
  if (method_ == SumMethod::nccl) broken_ = true;
}

GpuSums::~GpuSums() = default;

// --- construction --------------------------------------------------------------------------------------------------

int GpuSums::holder(int leaf) const {
  for (int d = 0; d < static_cast<int>(layout_.devices.size()); ++d)
    if (const auto [first, last] = layout_.replicas_of(d); leaf >= first && leaf < last) return d;
  return 0;
}

// In the order in which the first device's last replica makes the addends.
void GpuSums::fill_buckets() {
  std::vector<size_t> order(sums_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t s) {
    return std::tuple(sums_[s].phase, !sums_[s].conditions.empty(), sums_[s].ready[0]);
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
      room = layout_.bucket_bytes == 0  ? std::numeric_limits<int64_t>::max()
             : layout_.bucket_bytes > 0 ? layout_.bucket_bytes
                                        : std::clamp(left[sum.phase] / 2, kLeastBytes, kMostBytes);
    }
    buckets_.back().sums.push_back(s);
    room -= static_cast<int64_t>(sum.bytes());
    left[sum.phase] -= static_cast<int64_t>(sum.bytes());
  }
}

void GpuSums::prepare(State& state, size_t d) {
  state.device = &backend_of(*layout_.devices[d]);
  state.side = state.device->new_stream();
  const auto owns = [&](const TreeNode& leaf) { return holder(leaf.first) == static_cast<int>(d); };
  state.leaves = std::count_if(leaves_.begin(), leaves_.end(), owns);
  for (const TreeNode& leaf : leaves_)
    if (method_ != SumMethod::nccl || owns(leaf)) state.used.push_back(leaf);
  size_t scratch = 0;
  for (const ReplicaSum& sum : sums_) {
    Addends& addends = state.sums.emplace_back();
    for (const TreeNode& leaf : state.used) {
      addends.from.push_back(sum.inputs[static_cast<size_t>(leaf.first)]);
      if (method_ != SumMethod::copied_kernels || owns(leaf)) continue;
      addends.copies.push_back({addends.from.back(), scratch});
      scratch += (sum.bytes() + kAligned - 1) / kAligned * kAligned;
    }
  }
  if (scratch > 0) {
    state.scratch = std::make_unique<Storage>(*layout_.devices[d], scratch, std::source_location::current());
    for (Addends& addends : state.sums)
      for (const Copy& copy : addends.copies)
        *std::find(addends.from.begin(), addends.from.end(), copy.source) = scratch_of(state, copy);
  }
  for (const Bucket& bucket : buckets_) fill(state.buckets.emplace_back(), state, d, bucket);
}

void GpuSums::fill(Filled& filled, State& state, size_t d, const Bucket& bucket) {
  filled.ready = state.device->new_event();
  filled.summed = state.device->new_event();
  if (method_ == SumMethod::nccl && state.used.size() < 2) return;
  std::map<DType, std::vector<size_t>> by_type;
  for (const size_t s : bucket.sums)
    if (sums_[s].size > 0) by_type[sums_[s].dtype].push_back(s);
  for (const auto& [dtype, list] : by_type) {
    std::vector<int64_t> counts;
    for (const size_t s : list) counts.push_back(sums_[s].size);
    DeviceSums& made =
        filled.sums.emplace_back(*layout_.devices[d], dtype, counts, layout_.replicas, state.used);
    for (size_t i = 0; i < list.size(); ++i) {
      const std::span<void*> operands = made.operands(i);
      std::transform(state.sums[list[i]].from.begin(), state.sums[list[i]].from.end(), operands.begin(),
                     [](const void* addend) { return const_cast<void*>(addend); });
      operands.back() = sums_[list[i]].results[d][0];
    }
  }
}

// What the launches of this device have to do with the buckets, all of whose events are there.
void GpuSums::connect(State& state, size_t d) {
  const auto [first, last] = layout_.replicas_of(static_cast<int>(d));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    const auto phase = static_cast<size_t>(bucket.phase);
    if (state.waits.size() <= phase) {
      state.announcements.resize(phase + 1);
      state.waits.resize(phase + 1);
      state.times.resize(phase + 1);
    }
    auto& announcements = state.announcements[phase];
    size_t launches = announcements.empty() ? 0 : announcements.back().launches;
    Crossings::Wait wait;
    for (const size_t s : bucket.sums) {
      const ReplicaSum& sum = sums_[s];
      launches = std::max(launches, sum.ready[d]);
      for (const void* result : sum.results[d])
        if (result) wait.memory.push_back(range_of(result, sum.bytes()));
      // Nobody may overwrite what others still read.
      for (int r = first; r < last; ++r)
        if (const void* addend = sum.inputs[static_cast<size_t>(r)])
          wait.memory.push_back(range_of(addend, sum.bytes()));
    }
    announcements.push_back({launches, state.buckets[b].ready.get()});
    for (size_t e = 0; e < devices_.size(); ++e)
      if (e == d || method_ != SumMethod::nccl) wait.events.push_back(devices_[e].buckets[b].summed.get());
    state.waits[phase].push_back(std::move(wait));
  }
  for (size_t phase = 0; phase < state.times.size(); ++phase)
    for (Times& times : state.times[phase])
      if (!state.waits[phase].empty())
        for (auto* event : {&times.computed, &times.gathered, &times.summed})
          *event = state.device->new_event(Event::Timed::yes);
}

// --- running -------------------------------------------------------------------------------------------------------

void GpuSums::begin_run() {
  ++runs_;
  if (!broken_) return;
  communicators_.clear();
  communicators_ = comm::communicator_backend("nccl").join_all(layout_.devices, {});
  broken_ = false;
}

void GpuSums::abort() {
  if (method_ != SumMethod::nccl) return;
  broken_ = true;
  for (const auto& communicator : communicators_) communicator->abort("another device of the program failed");
}

std::span<const Crossings::Announcement> GpuSums::announcements(int d, int phase) const {
  const auto& all = devices_[static_cast<size_t>(d)].announcements;
  if (static_cast<size_t>(phase) >= all.size()) return {};
  return all[static_cast<size_t>(phase)];
}

std::span<const Crossings::Wait> GpuSums::waits(int d, int phase) const {
  const auto& all = devices_[static_cast<size_t>(d)].waits;
  if (static_cast<size_t>(phase) >= all.size()) return {};
  return all[static_cast<size_t>(phase)];
}

bool GpuSums::meet(observe::ReplicaClock* clock) {
  // NCCL orders the devices among themselves.
  if (devices_.size() == 1 || method_ == SumMethod::nccl) return true;
  const observe::TimeScope scope(clock, Category::waiting_for_others);
  return barrier_.meet();
}

bool GpuSums::finish(int d, int phase, observe::ReplicaClock* clock) {
  if (waits(d, phase).empty()) return true;
  if (!meet(clock)) return false;
  queue(static_cast<size_t>(d), phase, clock);
  return meet(clock);
}

void GpuSums::queue(size_t d, int phase, observe::ReplicaClock* clock) {
  const observe::TimeScope scope(clock, Category::host);
  State& state = devices_[d];
  const bool by_nccl = method_ == SumMethod::nccl;
  const auto count = static_cast<int64_t>(devices_.size());
  Times* const times = clock ? &state.times[static_cast<size_t>(phase)][runs_ % 2] : nullptr;
  if (times) times->computed->record(state.device->compute_stream());
  Stream& stream = *state.side;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (bucket.phase != phase) continue;
    const bool summed = wanted(state, d, bucket);
    for (size_t e = 0; e < devices_.size(); ++e)
      if (e == d || !by_nccl) devices_[e].buckets[b].ready->wait(stream);
    if (times) times->gathered->record(stream);
    if (!summed)
      leave_out(d, bucket, stream);
    else if (by_nccl)
      all_reduce(state, d, b, stream);
    else
      launch_sums(state, d, b, stream);
    state.buckets[b].summed->record(stream);
    if (!summed) continue;
    int64_t bytes = 0;
    for (const size_t s : bucket.sums) bytes += static_cast<int64_t>(sums_[s].bytes());
    // Those that reach this device, and those that leave it.
    const int64_t in = by_nccl ? 2 * bytes * (count - 1) / count
                               : bytes * (static_cast<int64_t>(leaves_.size()) - state.leaves);
    const int64_t out = by_nccl ? in : bytes * state.leaves * (count - 1);
    state.device->count_copy(in, out);
    if (clock) clock->count(observe::Counter::communication_bytes, out);
  }
  if (!times) return;
  times->summed->record(stream);
  times->taken = true;
}

bool GpuSums::wanted(const State& state, size_t d, const Bucket& bucket) const {
  bool wanted = true;
  if (const ReplicaSum& sum = sums_[bucket.sums[0]]; !sum.conditions.empty())
    state.device->copy_to_host(&wanted, sum.conditions[d], sizeof wanted);
  return wanted;
}

// Nobody uses the result, but a check of all values for NaNs must not find what some other value left there.
void GpuSums::leave_out(size_t d, const Bucket& bucket, Stream& stream) const {
  for (const size_t s : bucket.sums)
    for (void* result : sums_[s].results[d])
      if (result) stream.fill(result, 0, 1, sums_[s].bytes());
}

// To the other plans, which have memory of their own.
void GpuSums::copy_results(size_t d, const Bucket& bucket, Stream& stream) const {
  for (const size_t s : bucket.sums) {
    const auto& results = sums_[s].results[d];
    for (size_t p = 1; p < results.size(); ++p)
      if (results[p]) stream.copy(results[p], results[0], sums_[s].bytes());
  }
}

// What this device adds up itself, into its results.
void GpuSums::add_up(const State& state, size_t d, size_t b, Stream& stream) const {
  for (const size_t s : buckets_[b].sums)
    for (const Copy& copy : state.sums[s].copies)
      stream.copy(scratch_of(state, copy), copy.source, sums_[s].bytes());
  for (const DeviceSums& sums : state.buckets[b].sums) sums.launch(stream);
  copy_results(d, buckets_[b], stream);
}

void GpuSums::launch_sums(State& state, size_t d, size_t b, Stream& stream) {
  if (observe::tracing()) [[unlikely]] {
    // As every launch is then: with the time that it takes on the device.
    const int64_t start = monotonic_ns();
    const int64_t took = stream.timed([&] { add_up(state, d, b, stream); });
    observe::record_span("all_reduce_sum", "communication", start, start + took,
                         {.device = static_cast<int32_t>(d)});
    return;
  }
  std::unique_ptr<CapturedGraph>& graph = state.buckets[b].graph;
  if (!graph) {
    const CapturedLaunch all{.launch = [this, &state, d, b](Stream& on) { add_up(state, d, b, on); },
                             .after = {}};
    graph = state.device->capture({&all, 1});
  }
  graph->replay(stream);
}

void GpuSums::all_reduce(State& state, size_t d, size_t b, Stream& stream) {
  const observe::Span span("all_reduce_sum", "communication", {.device = static_cast<int32_t>(d)});
  const Bucket& bucket = buckets_[b];
  for (const DeviceSums& sums : state.buckets[b].sums) sums.launch(stream);
  if (state.used.empty())
    for (const size_t s : bucket.sums) stream.fill(sums_[s].results[d][0], 0, 1, sums_[s].bytes());
  comm::Communicator& communicator = *communicators_[d];
  communicator.begin_batch();
  for (const size_t s : bucket.sums) {
    void* const target = sums_[s].results[d][0];
    communicator.all_reduce_sum(state.used.size() == 1 ? state.sums[s].from[0] : target, target,
                                sums_[s].size, sums_[s].dtype, stream);
  }
  communicator.end_batch();
  copy_results(d, bucket, stream);
}

void GpuSums::account(int d, uint64_t ago, observe::ReplicaClock& clock) {
  for (auto& by_turn : devices_[static_cast<size_t>(d)].times) {
    Times& times = by_turn[(runs_ - ago) % 2];
    if (!std::exchange(times.taken, false)) continue;
    const int64_t gathered = std::max<int64_t>(0, times.gathered->ns_since(*times.computed));
    const int64_t summed = std::max(gathered, times.summed->ns_since(*times.computed));
    clock.move(Category::waiting_for_others, gathered);
    clock.move(Category::exposed_communication, summed - gathered);
  }
}

}  // namespace lockstep::compile
