// The memory that a plan's operands come from.
#pragma once

#include <vector>

#include "compile/planning/plan.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

using compile::ArenaSize;
using compile::KernelCall;
using compile::Operand;
using compile::Plan;
using compile::PlannedOutput;
using compile::PlanOptions;
using compile::Space;

// The memory of a bound plan on one device. What changes between runs is read at BoundPlan::bind().
struct Memory {
  Device* device = nullptr;  // whose it is; null: the CPU's
  char* device_arena = nullptr;
  char* replica_arena = nullptr;
  std::vector<void*> parameters;
  std::vector<void*> variables;
  std::vector<void*> captured_inputs;
  std::vector<void*> constants;
  std::vector<void*> outputs;
  // For a replica: where the device finds the number of its first example.
  void* example_offset = nullptr;

  Memory() = default;
  // With room for the plan's operands.
  Memory(const Plan& plan, Device& device);
  void* at(const Operand& operand) const;
};

// The captured inputs and constants of plans as one device has them.
class HeldSources {
 public:
  explicit HeldSources(Device& device) : device_(device) {}
  // Where the device finds them, as long as this lives.
  void* hold(const Tensor& captured);
  void* hold(const TensorSpec& spec, double constant);

 private:
  Device& device_;
  TensorList held_;
};

}  // namespace lockstep::execute
