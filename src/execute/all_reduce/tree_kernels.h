// Sums over replicas in the tree's order (tree_order.h) as kernels, for devices that sum in their own memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "execute/all_reduce/tree_order.h"
#include "graph/kernel.h"

namespace lockstep::execute {

struct TreeSum {
  DType dtype = DType::float32;  // of the addends
  // Their own, or accumulator() of it: a partial sum, which is rounded by whoever finishes it. Addends may be
  // partial sums, too, of targets that are not.
  DType target_dtype = DType::float32;
  int64_t size = 0;
  std::vector<const void*> addends = {};  // by node in use
  void* target = nullptr;
};

// Several sums on one device, those of one type as one launch where the device knows how. One launch at a
// time.
class TreeKernels {
 public:
  // `used`: the nodes of the tree that have a value, none of them below another. What is beside them adds
  // nothing.
  TreeKernels(Device& device, std::span<const TreeSum> sums, int leaves, std::span<const TreeNode> used);
  // Queues all of them on a stream of the device, for which the calling thread is bound.
  void launch(Stream& stream) const;

 private:
  void prepare(Device& device, std::span<const TreeSum* const> sums, int leaves,
               std::span<const TreeNode> used);

  struct Launch {
    std::unique_ptr<Kernel> kernel;
    size_t first;  // pointer
  };
  const size_t operands_;  // of each sum: the addends, and behind them the target
  std::vector<void*> pointers_;
  std::vector<Launch> launches_;
};

}  // namespace lockstep::execute
