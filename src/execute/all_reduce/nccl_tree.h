// All-reduce between the GPUs of several workers in the tree's order (tree_order.h): what `reproducible` asks
// for between processes.
//
// A rank is a GPU of a worker. It makes the sums below the largest nodes of the tree whose leaves it holds,
// and sends each other rank the share of their elements that this one owns (all-to-all); the owner finishes
// the tree in its order, and the results are gathered (all-gather). That is as much as a ring sends, where
// each rank holds one such node; NCCL moves bytes and adds nothing.
#pragma once

#include <memory>
#include <vector>

#include "execute/all_reduce/gpu_streams.h"
#include "execute/all_reduce/nccl_ranks.h"
#include "execute/all_reduce/tree_kernels.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

class NcclTreeAllReduce final : public GpuStreamsAllReduce {
 public:
  NcclTreeAllReduce(const ReplicaGroup& group, std::vector<ReplicaSum> sums, const StepObserver& observer);
  ~NcclTreeAllReduce() override;

  void begin_step() override;
  void abort() override;

 private:
  // The sums of a bucket that are of one type, one behind the other, on one device.
  struct Part {
    DType dtype = DType::float32;
    std::vector<size_t> sums;
    std::vector<int64_t> begins;  // by sum, in elements
    int64_t share = 0;            // elements that a rank owns; behind the last sum some are of no use
    std::vector<std::unique_ptr<TreeKernels>> own;    // by node of this rank: makes what is sent
    std::vector<std::vector<int64_t>> send, receive;  // by round, by rank: bytes
    std::unique_ptr<TreeKernels> rest;                // makes this rank's share of all nodes' sums
  };
  // Memory for the largest part: they follow each other on one stream.
  struct State {
    std::vector<std::unique_ptr<Storage>> sent;  // by node of this rank
    std::unique_ptr<Storage> received;           // by node of all ranks: this rank's share
    std::unique_ptr<Storage> share, gathered;
    std::vector<std::vector<Part>> buckets;
  };

  std::vector<Part> parts_of(const Bucket& bucket) const;
  void prepare(State& state, size_t d);
  void prepare(State& state, size_t d, Part& part);
  void exchange(State& state, size_t d, const Part& part, Stream& stream);
  void reduce(size_t d, size_t bucket, Stream& stream) override;
  Traffic traffic(size_t d, size_t bucket) const override;
  const std::vector<TreeNode>& nodes_of(size_t d) const;

  const int ranks_;
  std::vector<std::vector<TreeNode>> nodes_;  // by rank
  size_t rounds_ = 0;                         // the most nodes of a rank: in each round a rank sends one
  std::vector<State> states_;                 // by device
  NcclRanks communicators_;
};

}  // namespace lockstep::execute
