// The sums over replicas that GPUs make, behind the phase that computes what is summed.
//
// Either every GPU adds up all addends in the tree's order with a kernel of its own, so that nothing has to be handed
// around and their streams wait for each other, not their threads; or each adds up its own replicas' and NCCL the rest.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/worker.h"
#include "comm/communicator.h"
#include "compile/device_sum.h"
#include "compile/executable.h"
#include "compile/sum_choice.h"
#include "lockstep/observe/step_clock.h"
#include "tensor/tensor_impl.h"

namespace lockstep::compile {

struct ReplicaSum;

class GpuSums {
 public:
  // `leaves`: the replicas that are not empty. All of it outlives this.
  GpuSums(const ReplicaLayout& layout, const std::vector<ReplicaSum>& sums, std::span<const TreeNode> leaves,
          Barrier& barrier);
  ~GpuSums();

  // Around every run, while no device is at work.
  void begin_run();
  // All sums in front of `phase`, on device d. False where another device failed.
  bool finish(int d, int phase, observe::ReplicaClock* clock);
  // A device failed: lets the others go.
  void abort();

 private:
  struct Copy {
    Device* device;
    const void* source;
    size_t target;  // in the scratch
  };
  struct Addends {
    std::unique_ptr<DeviceSum> kernel;  // null: there is one addend or none
    std::vector<const void*> from;      // what it reads
    std::vector<Copy> copies;           // what is brought before
  };
  struct State {
    Device* device = nullptr;
    int64_t leaves = 0;  // of its own
    std::vector<Addends> sums;
    std::unique_ptr<Storage> scratch;
    std::vector<size_t> joined;  // sums of the phase at hand that are made
  };

  static void* scratch_of(const State& state, const Copy& copy) {
    return static_cast<char*>(state.scratch->data()) + copy.target;
  }
  bool meet(int d, observe::ReplicaClock* clock);
  bool wanted(int d, const ReplicaSum& sum) const;
  void add_up(int d, size_t s);
  void all_reduce(int d, int phase);
  int holder(int leaf) const;

  const ReplicaLayout& layout_;
  const std::vector<ReplicaSum>& sums_;
  const std::span<const TreeNode> leaves_;
  Barrier& barrier_;
  const SumMethod method_;
  std::vector<State> devices_;
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;  // by device, where NCCL adds up
  std::atomic<bool> broken_{false};                                 // they are to be made anew
};

}  // namespace lockstep::compile
