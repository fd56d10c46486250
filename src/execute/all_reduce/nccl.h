// All-reduce by NCCL between the GPUs of one process or of several: each sums its own replicas' addends, and
// NCCL the rest, in an order of its own.
#pragma once

#include <memory>
#include <vector>

#include "execute/all_reduce/gpu_streams.h"
#include "execute/all_reduce/nccl_ranks.h"
#include "execute/all_reduce/tree_kernels.h"

namespace lockstep::execute {

class NcclAllReduce final : public GpuStreamsAllReduce {
 public:
  NcclAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums, const StepObserver& observer);
  ~NcclAllReduce() override;

  void begin_step() override;
  void abort() override;

 private:
  void prepare(size_t d);
  void reduce(size_t d, size_t bucket, Stream& stream) override;
  Traffic traffic(size_t d, size_t bucket) const override;

  // By device, by bucket: the sum over the device's own replicas; null: it has one replica or none.
  std::vector<std::vector<std::unique_ptr<TreeKernels>>> own_;
  NcclRanks communicators_;
};

}  // namespace lockstep::execute
