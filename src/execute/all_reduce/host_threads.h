// All-reduce on CPUs, with the threads that compute: a CPU has no engine beside its cores, and a thread for
// communication takes them from the kernels (docs/decisions/0014-strategies.md).
//
// A device whose replicas have filled a bucket says so and goes on; whenever it has filled the next one, it
// looks whether the others have come as far and, where they have, sums its share of the elements for all. So
// nobody waits for anybody before the last bucket, and what is added still lies in a cache.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/worker.h"
#include "execute/all_reduce/all_reduce.h"
#include "execute/all_reduce/tree_order.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

class HostThreadsAllReduce final : public AllReduce {
 public:
  HostThreadsAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums, const StepObserver& observer);
  ~HostThreadsAllReduce() override;

  void begin_step() override;
  void end_step() override;
  std::span<const PhaseSync::Mark> marks(int d, int phase) const override;
  std::span<const PhaseSync::Wait> waits(int, int) const override { return {}; }
  bool finish(int d, int phase) override;
  void abort() override;

  // Bytes of a bucket in use now; 0: all sums of a phase are one.
  int64_t bucket_bytes() const;

 private:
  // Elements [first, last) of a sum.
  struct Piece {
    size_t sum = 0;
    int64_t first = 0;
    int64_t last = 0;
  };
  struct Bucket {
    std::vector<Piece> pieces;
    std::unique_ptr<Gate[]> gates;  // one for each stage: opens when all devices may run it
  };
  class BucketMark;
  // One way to gather the sums into buckets.
  struct Bucketing {
    int64_t bytes = 0;
    std::vector<std::vector<Bucket>> buckets;                      // by phase
    std::vector<std::vector<std::vector<PhaseSync::Mark>>> marks;  // by device, by phase
  };
  // Adds the values of two nodes of the summation tree that lie on different devices.
  struct Link {
    TreeNode node;
    TreeNode parts[2];
    int from[2] = {0, 0};  // an addend, or ~link
    int level = 0;
    int device = 0;
    std::unique_ptr<Storage> partial;  // null: the root, which writes the result
  };
  struct DeviceState {
    Device* device = nullptr;
    std::vector<TreeNode> nodes;                     // of the summation tree that this device sums itself
    std::vector<std::unique_ptr<Storage>> partials;  // by node, for those of more than one leaf
    std::vector<int> done;                           // by bucket of the current phase: stages
    size_t contributed = 0;                          // buckets of that phase that it has filled
  };

  static bool same_marks(const Bucketing& a, const Bucketing& b);
  void make_tree(size_t scratch);
  int link_up(TreeNode node);
  Bucketing make_buckets(int64_t bytes) const;
  void make_marks(Bucketing& bucketing);
  bool wanted(int d, const ReplicaSum& sum) const;
  bool wanted(int d, const Bucket& bucket) const { return wanted(d, sums_[bucket.pieces[0].sum]); }
  void contribute(int d, int phase, size_t bucket);
  bool advance(int d, int phase, bool waits);
  void run_stage(int d, const Bucket& bucket, int stage);
  void add_own(int d, const Bucket& bucket);
  void add_share(int d, const Piece& piece);
  void add_links(int d, int level, const Piece& piece);
  void fetch_shares(int d, const Piece& piece);
  void leave_out(int d, const Piece& piece);
  void count_addends(int d, int64_t bytes);
  void count_copy(size_t from, size_t to, int64_t bytes);
  void count_sent(size_t from, int64_t bytes);
  std::pair<int64_t, int64_t> share(const Piece& piece, int64_t d) const;
  const Link& link(int from) const {
    const int number = ~from;
    return links_[static_cast<size_t>(number)];
  }
  const void* operand(size_t sum, int from) const;

  const ReplicaGroup group_;
  const std::vector<ReplicaSum> sums_;
  const StepObserver& observer_;
  std::vector<size_t> scratch_;                    // by sum: where it begins in the partials
  std::vector<std::vector<const void*>> addends_;  // by sum, by node of sum_nodes_
  std::vector<std::unique_ptr<DeviceState>> devices_;
  const std::vector<TreeNode> leaves_;  // the replicas with examples
  std::vector<TreeNode> sum_nodes_;     // all devices' nodes in order: they cover every leaf in use
  std::vector<Link> links_;             // the tree's sums across devices, the root last
  // Each device takes a bucket through these stages: it sums, in a tree once for each level, and fetches the
  // result where no other device stores it for this one.
  int stages_ = 1;
  bool fetches_ = false;
  std::vector<std::vector<void*>> all_results_;  // by sum: of all devices and plans
  std::vector<Stores> stores_;                   // by phase
  Barrier barrier_;
  std::vector<std::unique_ptr<BucketMark>> bucket_marks_;
  std::vector<Bucketing> bucketings_;
  size_t current_ = 0;  // of the bucketings

  // The first steps try the bucketings in turn. What is added to what does not depend on them.
  static constexpr int kWarmUps = 3;
  static constexpr int kTrials = 5;  // of each bucketing
  int trial_ = -kWarmUps;
  int64_t began_ns_ = 0;
  std::array<int64_t, 4> shortest_ns_{};
};

}  // namespace lockstep::execute
