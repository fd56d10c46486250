#include "execute/all_reduce/gpu_tree.h"

#include "lockstep/base/clock.h"
#include "lockstep/observe/span.h"

namespace lockstep::execute {
namespace {

constexpr size_t kAligned = 512;  // bytes

size_t aligned(size_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

}  // namespace

GpuTreeAllReduce::GpuTreeAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                                   const StepObserver& observer, Addends addends)
    : GpuStreamsAllReduce(group, std::move(sums), observer, Order::by_events),
      leaves_(group.leaves()),
      states_(group.devices.size()) {
  for (size_t d = 0; d < states_.size(); ++d) prepare(states_[d], d, addends);
}

GpuTreeAllReduce::~GpuTreeAllReduce() = default;

void GpuTreeAllReduce::prepare(State& state, size_t d, Addends addends) {
  const auto is_copied = [&](const TreeNode& leaf) {
    return addends == Addends::copied && !group().held[d].contains(leaf.first);
  };
  size_t scratch = 0;
  for (size_t s = 0; s < num_sums(); ++s)
    for (const TreeNode& leaf : leaves_) scratch += is_copied(leaf) ? aligned(sum(s).bytes()) : 0;
  if (scratch > 0)
    state.scratch = std::make_unique<Storage>(*group().devices[d], scratch, std::source_location::current());
  char* free = scratch > 0 ? static_cast<char*>(state.scratch->data()) : nullptr;
  for (const Bucket& bucket : buckets()) {
    Work& work = state.buckets.emplace_back();
    std::vector<TreeSum> trees;
    for (const size_t s : bucket.sums) {
      TreeSum& tree = trees.emplace_back(tree_sum(s, d));
      for (const TreeNode& leaf : leaves_) {
        const void* addend = sum(s).inputs[static_cast<size_t>(leaf.first)];
        if (is_copied(leaf)) {
          work.copies.push_back({addend, free, sum(s).bytes()});
          addend = free;
          free += aligned(sum(s).bytes());
        }
        tree.addends.push_back(addend);
      }
    }
    work.kernels = std::make_unique<TreeKernels>(*group().devices[d], trees, group().replicas, leaves_);
  }
}

void GpuTreeAllReduce::queue(size_t d, size_t b, Stream& stream) const {
  const Work& work = states_[d].buckets[b];
  for (const Copy& copy : work.copies) stream.copy(copy.target, copy.source, copy.bytes);
  work.kernels->launch(stream);
  copy_results(d, b, stream);
}

void GpuTreeAllReduce::reduce(size_t d, size_t b, Stream& stream) {
  if (observe::tracing()) [[unlikely]] {
    // A trace shows every launch with the time that it takes on the device.
    device(d).bind_thread();
    const int64_t start = monotonic_ns();
    const int64_t took = stream.timed([&] { queue(d, b, stream); });
    observe::record_span("all_reduce_sum", "communication", start, start + took,
                         {.device = static_cast<int32_t>(d)});
    return;
  }
  std::unique_ptr<CapturedGraph>& graph = states_[d].buckets[b].graph;
  if (!graph) {
    const CapturedLaunch all{.launch = [this, d, b](Stream& on) { queue(d, b, on); }, .after = {}};
    graph = device(d).capture_graph({&all, 1});
  }
  graph->replay(stream);
}

// Each device reads the addends of all other devices.
GpuStreamsAllReduce::Traffic GpuTreeAllReduce::traffic(size_t d, size_t b) const {
  const int64_t bytes = bytes_of(buckets()[b]);
  const int64_t own = group().held[d].size();
  return {.in = bytes * (static_cast<int64_t>(leaves_.size()) - own),
          .out = bytes * own * (static_cast<int64_t>(states_.size()) - 1)};
}

}  // namespace lockstep::execute
