#include "execute/all_reduce/nccl.h"

#include "lockstep/observe/span.h"

namespace lockstep::execute {

NcclAllReduce::NcclAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                             const StepObserver& observer)
    : GpuStreamsAllReduce(group, std::move(sums), observer, Order::by_library), own_(group.devices.size()) {
  for (size_t d = 0; d < own_.size(); ++d)
    if (group.held[d].size() > 1) prepare(d);
}

NcclAllReduce::~NcclAllReduce() = default;

void NcclAllReduce::prepare(size_t d) {
  std::vector<TreeNode> leaves;
  for (int r = group().held[d].first; r < group().held[d].last; ++r) leaves.push_back({r, r + 1});
  for (const Bucket& bucket : buckets()) {
    std::vector<TreeSum> trees;
    for (const size_t s : bucket.sums) {
      TreeSum& tree = trees.emplace_back(tree_sum(s, d));
      for (const TreeNode& leaf : leaves)
        tree.addends.push_back(sum(s).inputs[static_cast<size_t>(leaf.first)]);
    }
    own_[d].push_back(std::make_unique<TreeKernels>(*group().devices[d], trees, group().replicas, leaves));
  }
}

void NcclAllReduce::begin_step() {
  GpuStreamsAllReduce::begin_step();
  communicators_.connect(group());
}

void NcclAllReduce::abort() {
  GpuStreamsAllReduce::abort();
  communicators_.abort();
}

void NcclAllReduce::reduce(size_t d, size_t b, Stream& stream) {
  const observe::Span span("all_reduce_sum", "communication", {.device = static_cast<int32_t>(d)});
  device(d).bind_thread();
  const Bucket& bucket = buckets()[b];
  const ReplicaRange held = group().held[d];
  if (held.size() > 1) own_[d][b]->launch(stream);
  if (held.size() == 0)
    for (const size_t s : bucket.sums) stream.fill(sum(s).results[d][0], 0, 1, sum(s).bytes());
  comm::Communicator& communicator = communicators_[d];
  communicator.begin_batch();
  for (const size_t s : bucket.sums) {
    void* const target = sum(s).results[d][0];
    const void* const source = held.size() == 1 ? sum(s).inputs[static_cast<size_t>(held.first)] : target;
    communicator.all_reduce_sum(source, target, sum(s).size, sum(s).dtype, stream);
  }
  communicator.end_batch();
  copy_results(d, b, stream);
}

// As many bytes as a ring sends.
GpuStreamsAllReduce::Traffic NcclAllReduce::traffic(size_t, size_t b) const {
  const int64_t count = NcclRanks::count(group());
  const int64_t each = 2 * bytes_of(buckets()[b]) * (count - 1) / count;
  return {.in = each, .out = each};
}

}  // namespace lockstep::execute
