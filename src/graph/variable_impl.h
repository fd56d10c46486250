// What a Variable handle points to.
#pragma once

#include "lockstep/graph/variable.h"
#include "tensor/tensor_impl.h"

namespace lockstep {

struct VariableImpl {
  uint64_t id = TensorImpl::next_id();
  VariableOptions options;
  TensorSpec spec;
  std::source_location where;
  std::shared_ptr<const VariableOwner> owner = VariableOwnerScope::current();
  // The value as a tensor: contiguous, its storage shared with whoever read it.
  Tensor value;
  // Changes with every write: what tells a mirror on another device that it is out of date.
  uint64_t version = 0;

  // The parts of a variable with `per_replica`, by replica, wherever that runs; undefined: zeros. Empty:
  // `value` has it all, else what it holds is out of date.
  TensorList parts;

  // Sums the parts, if there are any.
  void gather();
  // The sum of two of them, where the first is. The arithmetic of variables is the room ops'
  // (ops/elementwise/variables.cc).
  Tensor sum_of_parts(const Tensor& a, const Tensor& b) const;
  // The parts for so many replicas: what there is stays, and new ones are undefined but for the first.
  TensorList& spread(int replicas);

  // The variable's memory, for writing. Readers keep what they read: where somebody else still
  // holds the storage, the variable moves to new memory first (with the old elements if `keep`).
  void* mutable_data(bool keep);
};

}  // namespace lockstep
