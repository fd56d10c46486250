#include "execute/all_reduce/all_reduce.h"

#include "execute/all_reduce/choice.h"
#include "execute/all_reduce/gpu_tree.h"
#include "execute/all_reduce/host_threads.h"
#include "execute/all_reduce/nccl.h"
#include "execute/all_reduce/nccl_tree.h"
#include "execute/all_reduce/processes.h"
#include "execute/device_threads.h"

namespace lockstep::execute {
namespace {

// The all-reduce of a program that sums nothing.
class NothingToReduce final : public AllReduce {
 public:
  std::span<const PhaseSync::Mark> marks(int, int) const override { return {}; }
  std::span<const PhaseSync::Wait> waits(int, int) const override { return {}; }
  bool finish(int, int) override { return true; }
  void abort() override {}
};

}  // namespace

ReplicaGroup::ReplicaGroup(const ReplicaLayout& layout)
    : devices(layout.devices),
      replicas(layout.replicas),
      reproducible(layout.reproducible),
      cross_device_ops(layout.cross_device_ops),
      bucket_bytes(layout.bucket_bytes),
      bf16_gradients(layout.bf16_gradients),
      waiting(waiting_of(layout.devices)) {
  for (size_t d = 0; d < devices.size(); ++d)
    held.push_back(layout.replicas_with_examples(static_cast<int>(d)));
  if (!layout.workers) return;
  workers = layout.workers;
  for (const ReplicaRange& range :
       replicas_of_workers(layout.replicas, layout.num_workers, static_cast<int>(devices.size())))
    worker_held.push_back(layout.with_examples(range));
  for (int w = 0; w < layout.num_workers; ++w)
    for (int d = 0; d < static_cast<int>(devices.size()); ++d)
      rank_held.push_back(layout.with_examples(layout.replicas_of(w, d)));
}

std::vector<TreeNode> ReplicaGroup::leaves() const {
  std::vector<TreeNode> all;
  for (const ReplicaRange& range : held)
    for (int r = range.first; r < range.last; ++r) all.push_back({r, r + 1});
  return all;
}

int ReplicaGroup::holder(int replica) const {
  for (size_t d = 0; d < held.size(); ++d)
    if (held[d].contains(replica)) return static_cast<int>(d);
  return 0;
}

std::unique_ptr<AllReduce> make_all_reduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                                           const StepObserver& observer) {
  if (sums.empty()) return std::make_unique<NothingToReduce>();
  const AllReduceChoice choice =
      choose_all_reduce(group.devices, group.reproducible, group.cross_device_ops, group.workers != nullptr);
  switch (choice.method) {
    case AllReduceMethod::host_threads: break;
    case AllReduceMethod::processes:
      return std::make_unique<ProcessesAllReduce>(group, std::move(sums), observer);
    case AllReduceMethod::tree_kernels:
      return std::make_unique<GpuTreeAllReduce>(group, std::move(sums), observer, Addends::read_in_place);
    case AllReduceMethod::copied_tree_kernels:
      return std::make_unique<GpuTreeAllReduce>(group, std::move(sums), observer, Addends::copied);
    case AllReduceMethod::nccl: return std::make_unique<NcclAllReduce>(group, std::move(sums), observer);
    case AllReduceMethod::nccl_tree:
      return std::make_unique<NcclTreeAllReduce>(group, std::move(sums), observer);
  }
  return std::make_unique<HostThreadsAllReduce>(group, std::move(sums), observer);
}

}  // namespace lockstep::execute
