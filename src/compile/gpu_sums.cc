#include "compile/gpu_sums.h"

#include <algorithm>

#include "compile/cross_device_sum.h"
#include "lockstep/observe/span.h"

namespace lockstep::compile {

using observe::Category;

namespace {
constexpr size_t kAligned = 512;  // bytes
}

GpuSums::GpuSums(const ReplicaLayout& layout, const std::vector<ReplicaSum>& sums,
                 std::span<const TreeNode> leaves, Barrier& barrier)
    : layout_(layout),
      sums_(sums),
      leaves_(leaves),
      barrier_(barrier),
      method_(choose_sum(layout.devices, layout.reproducible, layout.cross_device_ops).method) {
  for (size_t d = 0; d < layout.devices.size(); ++d) {
    State& state = devices_.emplace_back();
    state.device = layout.devices[d];
    state.joined.reserve(sums_.size());
    size_t scratch = 0;
    for (const ReplicaSum& sum : sums_) {
      Addends addends;
      std::vector<TreeNode> used;
      state.leaves = 0;
      for (const TreeNode& leaf : leaves_) {
        const int from = holder(leaf.first);
        const bool own = from == static_cast<int>(d);
        state.leaves += own ? 1 : 0;
        if (method_ == SumMethod::nccl && !own) continue;
        used.push_back(leaf);
        addends.from.push_back(sum.inputs[static_cast<size_t>(leaf.first)]);
        if (method_ != SumMethod::copied_kernels || own) continue;
        addends.copies.push_back({layout.devices[static_cast<size_t>(from)], addends.from.back(), scratch});
        scratch += (sum.bytes() + kAligned - 1) / kAligned * kAligned;
      }
      if (method_ != SumMethod::nccl || used.size() > 1)
        addends.kernel =
            std::make_unique<DeviceSum>(*state.device, sum.dtype, sum.size, layout.replicas, used);
      state.sums.push_back(std::move(addends));
    }
    if (scratch == 0) continue;
    state.scratch = std::make_unique<Storage>(*state.device, scratch, std::source_location::current());
    for (Addends& addends : state.sums)
      for (const Copy& copy : addends.copies)
        *std::find(addends.from.begin(), addends.from.end(), copy.source) = scratch_of(state, copy);
  }
  if (method_ == SumMethod::nccl) broken_ = true;
}

GpuSums::~GpuSums() = default;

int GpuSums::holder(int leaf) const {
  for (int d = 0; d < static_cast<int>(layout_.devices.size()); ++d)
    if (const auto [first, last] = layout_.replicas_of(d); leaf >= first && leaf < last) return d;
  return 0;
}

void GpuSums::begin_run() {
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

// What any device queues from now on happens after all that every device has queued.
bool GpuSums::meet(int d, observe::ReplicaClock* clock) {
  if (devices_.size() == 1) return true;
  {
    const observe::TimeScope scope(clock, Category::waiting_for_others);
    if (!barrier_.meet()) return false;
  }
  for (const State& other : devices_) devices_[static_cast<size_t>(d)].device->wait_for(*other.device);
  // Nobody goes on to queue what the others would wait for as well.
  const observe::TimeScope scope(clock, Category::waiting_for_others);
  return barrier_.meet();
}

bool GpuSums::wanted(int d, const ReplicaSum& sum) const {
  bool wanted = true;
  if (!sum.conditions.empty())
    devices_[static_cast<size_t>(d)].device->copy_to_host(&wanted, sum.conditions[static_cast<size_t>(d)],
                                                          sizeof wanted);
  return wanted;
}

// This device's addends into its first result.
void GpuSums::add_up(int d, size_t s) {
  State& state = devices_[static_cast<size_t>(d)];
  Addends& addends = state.sums[s];
  for (const Copy& copy : addends.copies)
    state.device->copy_from_device(scratch_of(state, copy), *copy.device, copy.source, sums_[s].bytes());
  addends.kernel->launch(addends.from, sums_[s].results[static_cast<size_t>(d)][0]);
}

// NCCL orders the devices among themselves: nobody meets anybody.
void GpuSums::all_reduce(int d, int phase) {
  State& state = devices_[static_cast<size_t>(d)];
  comm::Communicator& communicator = *communicators_[static_cast<size_t>(d)];
  void* const stream = state.device->stream();
  std::vector<size_t>& joined = state.joined;
  joined.clear();
  for (size_t s = 0; s < sums_.size(); ++s) {
    const ReplicaSum& sum = sums_[s];
    if (sum.phase != phase) continue;
    void* const target = sum.results[static_cast<size_t>(d)][0];
    const char zero = 0;
    const bool joins = wanted(d, sum);
    if (!joins || state.sums[s].from.empty())
      state.device->fill(target, &zero, 1, sum.bytes());
    else if (state.sums[s].kernel)
      add_up(d, s);
    if (joins) joined.push_back(s);
  }
  if (joined.empty()) return;
  communicator.begin_batch();
  for (const size_t s : joined) {
    void* const target = sums_[s].results[static_cast<size_t>(d)][0];
    const bool alone = !state.sums[s].kernel && !state.sums[s].from.empty();
    communicator.all_reduce_sum(alone ? state.sums[s].from[0] : target, target, sums_[s].size, sums_[s].dtype,
                                stream);
  }
  communicator.end_batch();
}

bool GpuSums::finish(int d, int phase, observe::ReplicaClock* clock) {
  if (std::none_of(sums_.begin(), sums_.end(), [&](const ReplicaSum& sum) { return sum.phase == phase; }))
    return true;
  const bool by_nccl = method_ == SumMethod::nccl;
  if (!by_nccl && !meet(d, clock)) return false;
  State& state = devices_[static_cast<size_t>(d)];
  {
    const observe::Span span("all_reduce_sum", "communication", {.device = d});
    const observe::TimeScope scope(clock, Category::exposed_communication);
    if (by_nccl) all_reduce(d, phase);
    for (size_t s = 0; s < sums_.size(); ++s) {
      const ReplicaSum& sum = sums_[s];
      if (sum.phase != phase) continue;
      const auto& results = sum.results[static_cast<size_t>(d)];
      const auto bytes = static_cast<int64_t>(sum.bytes());
      const auto count = static_cast<int64_t>(devices_.size());
      int64_t in = 0, out = 0;  // bytes that reach and leave this device
      if (by_nccl) {
        in = out = 2 * bytes * (count - 1) / count;
      } else if (wanted(d, sum)) {
        add_up(d, s);
        in = bytes * (static_cast<int64_t>(leaves_.size()) - state.leaves);
        out = bytes * state.leaves * (count - 1);
      } else {
        const char zero = 0;
        state.device->fill(results[0], &zero, 1, sum.bytes());
      }
      for (size_t p = 1; p < results.size(); ++p)
        if (results[p]) state.device->copy_within(results[p], results[0], sum.bytes());
      state.device->count_copy(in, out);
      if (clock) clock->count(observe::Counter::communication_bytes, out);
    }
  }
  // Nobody may overwrite what others still read.
  return by_nccl || meet(d, clock);
}

}  // namespace lockstep::compile
