// All-reduce over the replicas of several processes, each with CPUs of its own.
//
//   device threads    sum the replicas of their device, and go on
//   a thread          sums over the devices, exchanges with the other processes, and hands the result to all
//                     devices
//
// It takes one bucket after the other, in the order that all processes have in common, while the devices fill
// the next ones; a device waits where it needs the sums. A single bucket has nothing to overlap with: the
// first device's own thread makes the exchange then, which saves waking another up and waiting for it.
//
// With `reproducible` the tree of additions (tree_order.h) spans all processes. A process makes the sums
// below the largest nodes of the tree whose leaves it holds, and sends each other process the share of their
// elements that this one owns; the owner finishes the tree in its order, and the results are gathered: as
// much as a ring sends, where each process holds one such node. Otherwise the process' sum goes through the
// engine's own all-reduce; or, with `bf16_gradients`, a gradient's is rounded to bfloat16, the owner of a
// share sums all processes' in float32, and rounds what is gathered.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "base/worker.h"
#include "comm/workers.h"
#include "execute/all_reduce/all_reduce.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

class ProcessesAllReduce final : public AllReduce {
 public:
  ProcessesAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums, const StepObserver& observer);
  ~ProcessesAllReduce() override;

  void begin_step() override;
  void end_step() override;
  std::span<const PhaseSync::Mark> marks(int d, int phase) const override;
  std::span<const PhaseSync::Wait> waits(int, int) const override { return {}; }
  bool finish(int d, int phase) override;
  void abort() override;

 private:
  // Elements [first, last) of a sum, from `at` on in the bucket.
  struct Piece {
    size_t sum = 0;
    int64_t first = 0, last = 0;
    int64_t at = 0;
  };
  // Elements of one type that are exchanged together.
  struct Bucket {
    std::string name;
    DType dtype = DType::float32;
    bool compressed = false;  // gradients that are sent as bfloat16
    std::vector<Piece> pieces;
    int64_t size = 0;   // elements
    int64_t share = 0;  // of them that a process owns; the last may own fewer
    std::vector<int64_t> send_bytes = {}, receive_bytes = {};  // by process
    Gate filled;                                               // opens when all devices have filled it
  };
  struct Phase {
    std::vector<std::unique_ptr<Bucket>> buckets;
    std::vector<std::vector<PhaseSync::Mark>> marks;        // by device
    Gate done;                                              // opens when the sums are there
    bool by_device() const { return buckets.size() == 1; }  // the first device's thread makes the exchange
  };
  class BucketMark;

  void make_buckets();
  void make_nodes();
  void make_memory();
  void fill(int d, int phase, size_t bucket);
  void leave_out(int d, const Bucket& bucket) const;
  bool wanted(int d, const Bucket& bucket) const;
  void exchange_all();
  bool exchange_here(Phase& phase);
  void exchange(const Bucket& bucket);
  void exchange_rounded(const Bucket& bucket);
  bool compresses(const ReplicaSum& sum) const;
  void pack_shares(const Bucket& bucket);
  void finish_share(const Bucket& bucket);
  void sum_over(const Bucket& bucket, std::span<const TreeNode> nodes, int64_t first, int64_t last,
                char* target);
  void deliver(const Bucket& bucket, const char* sums, bool are_partial);

  const ReplicaGroup group_;
  const std::vector<ReplicaSum> sums_;
  const StepObserver& observer_;
  comm::Workers& workers_;
  const bool has_memory_;

  std::vector<Phase> phases_;
  std::vector<std::unique_ptr<BucketMark>> bucket_marks_;
  std::vector<TreeNode> leaves_;  // all replicas
  // What a device sums itself, and where it puts it; a leaf is read where its replica has put it.
  std::vector<std::vector<TreeNode>> device_nodes_;                 // by device
  std::vector<std::vector<std::unique_ptr<Storage>>> device_sums_;  // by device, by node
  std::vector<size_t> scratch_;                                     // by sum: where it begins in these
  std::vector<TreeNode> held_;                                      // all devices' nodes
  std::vector<std::vector<const void*>> held_sums_;                 // by sum, by node of held_
  std::vector<std::vector<void*>> results_;                         // by sum: of all devices and plans
  std::vector<std::vector<TreeNode>> worker_nodes_;                 // by process: what it sends
  std::vector<TreeNode> all_nodes_;                                 // of all processes
  // Buffers for the largest bucket.
  std::vector<char> sent_, received_, shares_;
  std::vector<uint16_t> rounded_;  // what is sent as bfloat16
  std::vector<const void*> addends_;

  std::exception_ptr error_;
  bool running_ = false;
  Worker thread_;
};

}  // namespace lockstep::execute
