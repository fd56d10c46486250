// All steps of a program as one launch, where a kind of device knows how.
//
// A small step is over before a device has gone from one kernel to the next a dozen times, so a device may write a
// kernel of its own for the whole program. Results are those of the steps one by one, up to the order in which the
// products of a matrix product are added.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compile/planning/plan.h"
#include "device/device_backend.h"

namespace lockstep::compile {

// A program that runs several times, each time on the next `rows` rows of arrays.
struct RowRuns {
  std::vector<const void*>
      arrays;  // by parameter, in the device's memory; null: a parameter that nothing reads
  const int64_t* order = nullptr;  // the numbers of the rows, there as well; null: one after the other
  int64_t first = 0;               // where in the order (in the arrays) they begin
  int64_t rows = 0;
  int64_t runs = 0;
};

// One launch at a time, by a thread that is bound to the device.
class JoinedSteps {
 public:
  virtual ~JoinedSteps() = default;
  // Queues the program. `pointers`: the operands of the steps, of each the inputs and then the outputs. Those in arenas
  // are neither read nor written. False: nothing was done, for memory that is not aligned well enough.
  virtual bool launch(std::span<void* const> pointers, Stream& stream) = 0;
  // The same several times. The operands that are parameters are not read; results are those of the last run.
  virtual bool launch(std::span<void* const> pointers, const RowRuns& runs, Stream& stream) = 0;
};

// Null: the steps are not for it. `steps`: a whole program with these parameters that runs in one place and one phase;
// they must outlive the result.
using JoinSteps = std::unique_ptr<JoinedSteps> (*)(std::span<const Step> steps,
                                                   std::span<const TensorSpec> parameters, Device& device);

class RegisterJoinSteps {
 public:
  RegisterJoinSteps(DeviceKind kind, JoinSteps join);
};

// Joins them if the device's kind knows how to, they are fit for it, and the environment does not forbid it.
std::unique_ptr<JoinedSteps> join_steps(const Plan& plan, Device& device);

}  // namespace lockstep::compile
