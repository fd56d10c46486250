// The sums over replicas that the devices of one program make together.
//
// Sums are gathered into buckets in the order in which the backward pass computes what is summed. A device whose
// replicas have all computed a bucket says so and goes on; whenever it has the next one, it looks whether the
// others have come as far and, where they have, adds up its part of those sums for all. So nobody waits for anybody
// before the last bucket, and what is added still lies in a cache.
//
// The devices' own threads do the adding: a CPU has no engine beside its cores, and a thread for communication
// takes them from the kernels (docs/decisions/0014-strategies.md).
// Devices that have streams have their own way (gpu_sums.h).
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/worker.h"
#include "execute/all_reduce/gpu_streams.h"
#include "execute/all_reduce/tree_order.h"
#include "execute/executable.h"
#include "lockstep/observe/step_clock.h"
#include "tensor/tensor_impl.h"

namespace lockstep::compile {

// One value that is summed, as the devices and replicas hold it.
struct ReplicaSum {
  int phase = 0;  // whose steps read the sum
  DType dtype = DType::float32;
  int64_t size = 0;
  std::vector<const void*> inputs;          // by replica; null: its slice is empty
  std::vector<std::vector<void*>> results;  // by device, by plan; null: not there
  std::vector<size_t> ready;                // by device: launches of its last replica that make the input
  std::vector<const bool*> conditions;      // by device, the same everywhere: whether to sum; empty: always

  bool wanted(int d) const { return conditions.empty() || *conditions[static_cast<size_t>(d)]; }
  size_t bytes() const { return static_cast<size_t>(size) * size_of(dtype); }
};

class CrossDeviceSums {
 public:
  CrossDeviceSums(const ReplicaLayout& layout, std::vector<ReplicaSum> sums, Waiting waiting);
  ~CrossDeviceSums();
  CrossDeviceSums(const CrossDeviceSums&) = delete;
  CrossDeviceSums& operator=(const CrossDeviceSums&) = delete;

  // Around every run, while no device is at work. No function from here on allocates. `clock` is told what is
  // communicated; may be null.
  void begin_run(observe::StepClock* clock);
  void end_run();

  // For each bucket in front of `phase`: the launches of device d's last replica after which to contribute() it.
  std::span<const size_t> stops(int d, int phase) const;
  // All replicas of device d have computed this bucket, and those before it. Adds up what it can without waiting.
  void contribute(int d, int phase, size_t bucket, observe::ReplicaClock* clock);
  // Waits for all sums in front of `phase`, of which device d has contributed every bucket. False where a device
  // failed.
  bool finish(int d, int phase, observe::ReplicaClock* clock);
  // A device failed: lets the others go.
  void abort();
  // Null: the devices' threads add up.
  GpuSums* on_gpus() const { return on_gpus_.get(); }

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
    std::unique_ptr<Gate[]> gates;  // one for each work: opens when all devices may do it
    bool wanted_by(int d, const std::vector<ReplicaSum>& sums) const { return sums[pieces[0].sum].wanted(d); }
  };
  // One way to divide the sums into buckets.
  struct Division {
    int64_t bytes = 0;
    std::vector<std::vector<Bucket>> buckets;             // by phase
    std::vector<std::vector<std::vector<size_t>>> stops;  // by device, by phase
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
    std::vector<TreeNode> nodes;                     // of the summation tree that this device adds up itself
    std::vector<std::unique_ptr<Storage>> partials;  // by node, for those of more than one leaf
    std::vector<int> done;                           // by bucket of the phase at hand: works
    size_t contributed = 0;                          // buckets of it
  };

  void make_tree(size_t scratch);
  int link_up(TreeNode node);
  Division divide(int64_t bytes) const;
  bool advance(int d, int phase, bool waits, observe::ReplicaClock* clock);
  void work(int d, const Bucket& bucket, int number);
  void add_own(int d, const Bucket& bucket);
  void add_share(int d, const Piece& piece);
  void add_links(int d, int level, const Piece& piece);
  void fetch_shares(int d, const Piece& piece);
  void leave_out(int d, const Piece& piece);
  void count_addends(int d, int64_t bytes);
  void count_copy(size_t from, size_t to, int64_t bytes);
  void count_sent(size_t from, int64_t bytes);
  std::pair<int64_t, int64_t> share(const Piece& piece, int64_t d) const;
  int holder(int leaf) const;
  const void* operand(size_t sum, int from) const;

  const ReplicaLayout& layout_;
  std::vector<ReplicaSum> sums_;
  std::vector<size_t> scratch_;                    // by sum: where it begins in the partials
  std::vector<std::vector<const void*>> addends_;  // by sum, by node of sum_nodes_
  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::vector<TreeNode> leaves_;     // the replicas that are not empty
  std::vector<TreeNode> sum_nodes_;  // all devices' nodes in order: they cover every leaf in use
  std::vector<Link> links_;          // where a tree adds up, the root last
  // What each device does until a bucket is done: it adds up, in a tree once for each level, and fetches the result
  // where it has not been handed it.
  int works_ = 1;
  bool fetches_ = false;
  std::vector<std::vector<void*>> all_results_;  // by sum: of all devices and plans
  std::vector<Stores> stores_;                   // by phase
  const Waiting waiting_;
  Barrier barrier_;
  std::unique_ptr<GpuSums> on_gpus_;  // null: on CPUs
  std::vector<Division> divisions_;
  size_t current_ = 0;  // of the divisions

  // The first runs try the divisions in turn. What is added to what does not depend on them.
  static constexpr int kWarmUps = 3;
  static constexpr int kTrials = 5;  // of each division
  int trial_ = -kWarmUps;
  int64_t began_ns_ = 0;
  observe::StepClock* clock_ = nullptr;  // of the run in progress
  std::array<int64_t, 4> shortest_ns_{};
};

}  // namespace lockstep::compile
