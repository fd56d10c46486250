// Sums over replicas in the tree's order (replica_sum.h) as kernels, for devices that add up their own memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "execute/all_reduce/tree_order.h"
#include "graph/kernel.h"

namespace lockstep::compile {

// Several sums of one type, as one launch where the device knows how. One launch at a time.
class DeviceSums {
 public:
  // `counts`: elements of each sum. `used`: the leaves of the tree that have a value, in ascending order.
  DeviceSums(Device& device, DType dtype, std::span<const int64_t> counts, int leaves,
             std::span<const TreeNode> used);
  // Where sum number `sum` finds its addends, by leaf in use, and behind them its target: to be filled in.
  std::span<void*> operands(size_t sum) { return {pointers_.data() + sum * operands_, operands_}; }
  // Queues all of them on a stream of the device.
  void launch(Stream& stream) const;

 private:
  struct Launch {
    std::unique_ptr<Kernel> kernel;
    size_t first;  // of the sums that it makes
  };
  const size_t operands_;  // of each sum
  std::vector<void*> pointers_;
  std::vector<Launch> launches_;
};

}  // namespace lockstep::compile
