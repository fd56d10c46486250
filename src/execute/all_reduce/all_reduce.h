// All-reduce over replicas: one interface for all implementations.
//
//   host_threads.h   CPUs: the devices' own threads
//   gpu_streams.h    GPUs: on streams beside those that compute,
//     gpu_tree.h       with kernels that sum in the tree's order
//     nccl.h           or with NCCL,
//     nccl_tree.h      or, between processes, with kernels and NCCL in the tree's order
//   processes.h      CPUs of several processes: inside each, and then between them
//   tree_order.h     the order of additions that all but NCCL share
//   choice.h         which one, and why
//
// The sums of a step are gathered into buckets in the order in which the backward pass computes what is
// summed. A device whose last replica has filled a bucket reaches the bucket's mark, and the sum begins while
// the device goes on.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/worker.h"
#include "execute/all_reduce/tree_order.h"
#include "execute/phase_sync.h"
#include "execute/replicas.h"
#include "execute/step_observer.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::execute {

// One value that is summed, as devices and replicas hold it.
struct ReplicaSum {
  int phase = 0;  // whose steps read the sum
  DType dtype = DType::float32;
  int64_t size = 0;
  std::vector<const void*> inputs;          // by replica; null: none here has it, for its slice is empty
  std::vector<std::vector<void*>> results;  // by device, by plan; null: not there
  std::vector<size_t> ready;                // by device: launches of its last replica that make the input
  std::vector<const bool*> conditions;      // by device, the same everywhere: whether to sum; empty: always
  int order = 0;          // among all sums as the first plan makes them: the same in every process
  std::string name = {};  // where several processes take part, as the next one
  bool is_gradient = false;

  size_t bytes() const { return static_cast<size_t>(size) * size_of(dtype); }
};

// Who takes part: the devices, and which of all replicas each of them holds. What is added to what depends on
// the number of replicas alone, so a group may hold a part of them.
struct ReplicaGroup {
  std::vector<Device*> devices;
  std::vector<ReplicaRange> held;  // by device: replicas with examples, ascending
  int replicas = 1;                // of the whole step: the leaves of the summation tree
  bool reproducible = false;
  CrossDeviceOps cross_device_ops = CrossDeviceOps::automatic;
  int64_t bucket_bytes = -1;
  bool bf16_gradients = false;
  Waiting waiting = Waiting::sleeps;
  comm::Workers* workers = nullptr;       // the processes that take part; null: this one alone
  std::vector<ReplicaRange> worker_held;  // by worker: replicas with examples
  std::vector<ReplicaRange> rank_held;    // by device of all workers, in their order: the same

  explicit ReplicaGroup(const ReplicaLayout& layout);
  // All replicas with examples of this process, and the device that holds one.
  std::vector<TreeNode> leaves() const;
  int holder(int replica) const;
};

class AllReduce {
 public:
  virtual ~AllReduce() = default;
  AllReduce() = default;
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;

  // Around every step, while no device is at work. No function from here on allocates.
  virtual void begin_step() {}
  virtual void end_step() {}

  // For the sums in front of `phase`: the marks of their buckets, for the launches of device d's last replica
  // in the phase before; and what the launches of `phase` wait for. The same in every step, or changed by
  // begin_step() on devices that capture no graphs.
  virtual std::span<const PhaseSync::Mark> marks(int d, int phase) const = 0;
  virtual std::span<const PhaseSync::Wait> waits(int d, int phase) const = 0;
  // When device d has reached all marks in front of `phase`: returns when the sums are there, or queued as
  // waits() says. False where another device failed.
  virtual bool finish(int d, int phase) = 0;
  // Attributes the time for which the observer's thread has waited for device d to what the device waited for
  // `steps_ago` steps ago: for others to have their addends, and for sums that no launch overlapped.
  virtual void attribute_waits(int /*d*/, uint64_t /*steps_ago*/) {}
  // To be called in a catch: a device failed, and the others are let go. From any thread.
  virtual void abort() = 0;
};

// The way that choice.h names. The observer outlives it.
std::unique_ptr<AllReduce> make_all_reduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums,
                                           const StepObserver& observer);

}  // namespace lockstep::execute
