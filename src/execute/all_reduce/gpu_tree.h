// All-reduce by kernels in the tree's order: each GPU sums all addends, so that no result has to be handed
// around.
#pragma once

#include <memory>
#include <vector>

#include "device/stream.h"
#include "execute/all_reduce/gpu_streams.h"
#include "execute/all_reduce/tree_kernels.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// How a device gets at what the others hold.
enum class Addends : bool { read_in_place, copied };

class GpuTreeAllReduce final : public GpuStreamsAllReduce {
 public:
  GpuTreeAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums, const StepObserver& observer,
                   Addends addends);
  ~GpuTreeAllReduce() override;

 private:
  // What is copied here before it is summed.
  struct Copy {
    const void* source;
    void* target;
    size_t bytes;
  };
  // A bucket on one device.
  struct Work {
    std::vector<Copy> copies;
    std::unique_ptr<TreeKernels> kernels;
    std::unique_ptr<CapturedGraph> graph;  // null: not captured yet
  };
  struct State {
    std::unique_ptr<Storage> scratch;  // of the copies
    std::vector<Work> buckets;
  };

  void prepare(State& state, size_t d, Addends addends);
  void reduce(size_t d, size_t bucket, Stream& stream) override;
  Traffic traffic(size_t d, size_t bucket) const override;
  void queue(size_t d, size_t bucket, Stream& stream) const;

  const std::vector<TreeNode> leaves_;
  std::vector<State> states_;  // by device
};

}  // namespace lockstep::execute
