// Memory for the results of a program, used again once nobody holds them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "execute/memory.h"
#include "execute/replicas.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

// Tensors that one result takes turns in.
class OutputPool {
 public:
  // An earlier tensor that nobody holds any more, or a new one.
  Tensor take(const TensorSpec& spec, Device& device) {
    for (const Tensor& candidate : held_)
      if (sole_owner(candidate) && candidate.spec() == spec) return candidate;
    Tensor fresh = Tensor::empty(spec.dtype, spec.shape, device);
    if (held_.size() < kMost) held_.push_back(fresh);
    return fresh;
  }

 private:
  static constexpr size_t kMost = 4;
  TensorList held_;
};

// The results of a program that runs on the devices of a layout, of this process' replicas. What the caller
// gets lies on the first device: replicas write their rows or blocks of it, and what all devices compute
// alike is written there by the first and into memory that nobody reads by the others.
class ReplicatedOutputs {
 public:
  // All of it outlives this.
  ReplicatedOutputs(const std::vector<PlannedOutput>& outputs, const ReplicaLayout& layout);

  // Results for the step that comes. What the span held is let go of first.
  void take(std::span<Tensor> outputs);
  // Where device d writes result k with the plan of this number.
  void* of_device(int d, size_t plan, size_t k);
  // And where a replica of it does, or reads what it has in common with the others.
  void* of_replica(int d, size_t plan, int replica, size_t k);

 private:
  void* unread(int d, size_t k);

  const std::vector<PlannedOutput>& outputs_;
  const ReplicaLayout& layout_;
  std::vector<TensorSpec> specs_;  // as the caller gets them
  std::vector<OutputPool> pools_;
  std::vector<char*> data_;                                    // of this step's results
  std::vector<std::vector<std::unique_ptr<Storage>>> unread_;  // by device, by result
  const ReplicaRange own_;                                     // replicas of this process
  const Slice own_rows_;                                       // of the batch
};

}  // namespace lockstep::execute
