// All-reduce on GPUs, on a side stream beside the compute stream.
//
// The launches of a phase record in their midst the event that a bucket is filled; the side stream of each
// device waits until all devices have, and reduces it while the backward pass goes on; and of the next
// phase's launches only those wait for a sum that touch its memory. Threads meet twice, to know that what is
// waited for has been queued.
//
// How a bucket is reduced is for the classes derived from this one: gpu_tree.h, nccl.h, nccl_tree.h.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/worker.h"
#include "device/device_backend.h"
#include "execute/all_reduce/all_reduce.h"
#include "execute/all_reduce/tree_kernels.h"

namespace lockstep::execute {

class GpuStreamsAllReduce : public AllReduce {
 public:
  ~GpuStreamsAllReduce() override;

  void begin_step() override;
  std::span<const PhaseSync::Mark> marks(int d, int phase) const override;
  std::span<const PhaseSync::Wait> waits(int d, int phase) const override;
  bool finish(int d, int phase) override;
  void attribute_waits(int d, uint64_t steps_ago) override;
  void abort() override { barrier_.abort(); }

 protected:
  struct Bucket {
    int phase = 0;
    std::vector<size_t> sums;
  };
  struct Traffic {
    int64_t in = 0, out = 0;  // bytes that reach a device, and that leave it
  };
  // Who orders what the devices do for one bucket: events between their streams, or the communication
  // library.
  enum class Order : bool { by_events, by_library };

  GpuStreamsAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums, const StepObserver& observer,
                      Order order);

  // Queues the sum of a bucket on a stream of device d, for which the calling thread need not be bound: when
  // that has happened, all results of the device hold it.
  virtual void reduce(size_t d, size_t bucket, Stream& stream) = 0;
  // What the sum of a bucket moves between device d and the others.
  virtual Traffic traffic(size_t d, size_t bucket) const = 0;

  const ReplicaGroup& group() const { return group_; }
  DeviceBackend& device(size_t d) const { return backend_of(*group_.devices[d]); }
  const ReplicaSum& sum(size_t s) const { return sums_[s]; }
  size_t num_sums() const { return sums_.size(); }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int64_t bytes_of(const Bucket& bucket) const;
  // A whole sum where device d wants it first, without its addends.
  TreeSum tree_sum(size_t s, size_t d) const;
  // From the first plan's result to those of the others, which have memory of their own.
  void copy_results(size_t d, size_t bucket, Stream& stream) const;

 private:
  class EventMark;
  // When the device was done with the phase before, had all addends of the last bucket, and all sums.
  struct Times {
    std::unique_ptr<Event> computed, gathered, summed;
    bool taken = false;
  };
  struct State {
    std::unique_ptr<Stream> side;
    std::vector<std::unique_ptr<EventMark>> filled;  // by bucket
    std::vector<std::unique_ptr<Event>> summed;      // by bucket
    // By phase.
    std::vector<std::vector<PhaseSync::Mark>> marks;
    std::vector<std::vector<PhaseSync::Wait>> waits;
    std::vector<std::array<Times, 2>> times;  // of the steps in turn
  };

  void fill_buckets();
  void connect(State& state, size_t d);
  bool meet(int d);
  bool wanted(size_t d, const Bucket& bucket) const;
  void leave_out(size_t d, const Bucket& bucket, Stream& stream) const;
  void queue(size_t d, int phase);

  const ReplicaGroup group_;
  const std::vector<ReplicaSum> sums_;
  const StepObserver& observer_;
  const Order order_;
  Barrier barrier_;
  std::vector<Bucket> buckets_;  // those with a condition last: the host waits for it
  std::vector<State> states_;    // by device
  uint64_t steps_ = 0;
};

}  // namespace lockstep::execute
