// A sum over replicas in the tree's order (replica_sum.h) as a kernel, for devices that add up their own memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compile/replica_sum.h"
#include "graph/kernel.h"

namespace lockstep::compile {

// One launch at a time. `used`: the leaves of the tree that have a value, in ascending order.
class DeviceSum {
 public:
  DeviceSum(Device& device, DType dtype, int64_t count, int leaves, std::span<const TreeNode> used);
  // Queues it on a stream of the device. `addends`: by leaf in use.
  void launch(std::span<const void* const> addends, void* target, void* stream);

 private:
  std::unique_ptr<Kernel> kernel_;
  std::vector<void*> pointers_;
};

}  // namespace lockstep::compile
