// The sums over replicas that GPUs make, on a stream beside the one that computes.
//
// Sums are gathered into buckets in the order in which the backward pass computes what is summed. The launches of a phase
// say in their midst that a bucket is filled; the side stream of each device waits until all devices have said so and
// adds up while the backward pass goes on; and of the next phase's launches only those wait for a sum that touch its
// memory. Threads meet twice, to know that what is waited for has been queued.
//
// Either every GPU adds up all addends in the tree's order with kernels of its own, so that nothing has to be handed
// around; or each adds up its own replicas' and NCCL the rest.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/worker.h"
#include "comm/communicator.h"
#include "device/device_backend.h"
#include "execute/all_reduce/choice.h"
#include "execute/all_reduce/tree_kernels.h"
#include "execute/bound_program.h"
#include "execute/executable.h"
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
  // Of the sums in front of `phase`: what the launches of device d that make their addends announce, those of its last
  // replica in the phase before; and what the launches of `phase` wait for.
  std::span<const Crossings::Announcement> announcements(int d, int phase) const;
  std::span<const Crossings::Wait> waits(int d, int phase) const;
  // Queues all sums in front of `phase`, when the announcements are. False where another device failed.
  bool finish(int d, int phase, observe::ReplicaClock* clock);
  // Gives what the clock's thread has waited for device d to what the device waited for, so many runs ago: others to have
  // their addends, and sums that the phase before them did not cover.
  void account(int d, uint64_t ago, observe::ReplicaClock& clock);
  // A device failed: lets the others go.
  void abort();

 private:
  struct Copy {
    const void* source;
    size_t target;  // in the scratch
  };
  struct Addends {
    std::vector<const void*> from;  // what is added up, by leaf in use
    std::vector<Copy> copies;       // what is brought before
  };
  struct Bucket {
    int phase = 0;
    std::vector<size_t> sums;
  };
  // A bucket on one device.
  struct Filled {
    std::unique_ptr<Event> ready, summed;
    std::vector<DeviceSums> sums;          // by type; none: there is one addend or none
    std::unique_ptr<CapturedGraph> graph;  // null: not captured yet
  };
  // When the device was done with the phase before, had all addends of the last bucket, and all sums.
  struct Times {
    std::unique_ptr<Event> computed, gathered, summed;
    bool taken = false;
  };
  struct State {
    DeviceBackend* device = nullptr;
    std::unique_ptr<Stream> side;
    int64_t leaves = 0;          // of its own
    std::vector<TreeNode> used;  // leaves whose addends it adds up itself
    std::vector<Addends> sums;
    std::unique_ptr<Storage> scratch;
    std::vector<Filled> buckets;
    // By phase.
    std::vector<std::vector<Crossings::Announcement>> announcements;
    std::vector<std::vector<Crossings::Wait>> waits;
    std::vector<std::array<Times, 2>> times;  // of the runs in turn
  };

  static void* scratch_of(const State& state, const Copy& copy) {
    return static_cast<char*>(state.scratch->data()) + copy.target;
  }
  void prepare(State& state, size_t d);
  void fill(Filled& filled, State& state, size_t d, const Bucket& bucket);
  void fill_buckets();
  void connect(State& state, size_t d);
  bool meet(observe::ReplicaClock* clock);
  bool wanted(const State& state, size_t d, const Bucket& bucket) const;
  void add_up(const State& state, size_t d, size_t bucket, Stream& stream) const;
  void copy_results(size_t d, const Bucket& bucket, Stream& stream) const;
  void leave_out(size_t d, const Bucket& bucket, Stream& stream) const;
  void launch_sums(State& state, size_t d, size_t bucket, Stream& stream);
  void all_reduce(State& state, size_t d, size_t bucket, Stream& stream);
  void queue(size_t d, int phase, observe::ReplicaClock* clock);
  int holder(int leaf) const;

  const ReplicaLayout& layout_;
  const std::vector<ReplicaSum>& sums_;
  const std::span<const TreeNode> leaves_;
  Barrier& barrier_;
  const SumMethod method_;
  std::vector<Bucket> buckets_;  // those with a condition last: the host waits for it
  std::vector<State> devices_;
  uint64_t runs_ = 0;
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;  // by device, where NCCL adds up
  std::atomic<bool> broken_{false};                                 // they are to be made anew
};

}  // namespace lockstep::compile
