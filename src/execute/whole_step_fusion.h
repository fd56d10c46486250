// Whole-step fusion: all kernel calls of a training step as one kernel (a megakernel), where a kind of device
// knows how.
//
// A small step is over before a device has gone from one kernel to the next a dozen times, so a device may
// write a kernel of its own for the whole plan. Results are those of the calls one by one, up to the order in
// which the products of a matrix product are added.
#pragma once

#include <memory>
#include <span>

#include "compile/planning/plan.h"
#include "lockstep/device/device.h"
#include "lockstep/execute/function.h"

namespace lockstep::execute {

// One launch at a time, in the order of the stream.
class WholeStepKernel {
 public:
  virtual ~WholeStepKernel() = default;
  // Queues the step. `pointers`: the operands of the calls, of each the inputs and then the outputs. Those in
  // arenas are neither read nor written. False: nothing was done, for memory that is not aligned well enough.
  virtual bool launch(std::span<void* const> pointers, Stream& stream) = 0;
  // The same several times, each time on the next rows of arrays, which lie in the device's memory as does
  // their order. The operands that are parameters are not read; results are those of the last run.
  virtual bool launch(std::span<void* const> pointers, const FunctionCore::RowRuns& runs, Stream& stream) = 0;
};

// Null: the calls are not for it. `calls`: a whole plan with these parameters that runs in one place and one
// phase; they must outlive the result.
using FuseWholeStep = std::unique_ptr<WholeStepKernel> (*)(std::span<const compile::KernelCall> calls,
                                                           std::span<const TensorSpec> parameters,
                                                           Device& device);

class RegisterWholeStepFusion {
 public:
  RegisterWholeStepFusion(DeviceKind kind, FuseWholeStep fuse);
};

// Fuses them if the device's kind knows how to, they are fit for it, and the environment does not forbid it.
std::unique_ptr<WholeStepKernel> fuse_whole_step(const compile::Plan& plan, Device& device);

}  // namespace lockstep::execute
