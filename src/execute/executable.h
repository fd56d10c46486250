// A compiled program that can be run, in one place or in several.
//
//   step.h               one plan per size of slice, replicas on one or more devices: one of each is the plain
//                        case
//   split_executable.h   a plan whose calls run on several devices in turn
#pragma once

#include <span>

#include "execute/memory.h"
#include "lockstep/execute/function.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::execute {

class Executable {
 public:
  virtual ~Executable() = default;
  // Inputs as planned (dtype and shape of the whole batch). After the first runs it does not allocate, as
  // long as the caller lets go of earlier outputs. One run at a time. `clock`: may be null, else has a
  // replica for each device that runs by itself.
  virtual void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) = 0;
  // See FunctionCore::call.
  virtual bool run_rows(const FunctionCore::RowRuns& /*runs*/, std::span<Tensor> /*outputs*/,
                        observe::StepClock* /*clock*/) {
    return false;
  }
  // The arenas of all devices and replicas together.
  virtual ArenaSize arenas() const = 0;
  virtual const Plan& plan() const = 0;
  size_t num_outputs() const { return plan().outputs.size(); }

 protected:
  static void add(ArenaSize& total, const ArenaSize& arena) {
    total.bytes += arena.bytes;
    total.peak += arena.peak;
    total.unplanned += arena.unplanned;
  }
};

}  // namespace lockstep::execute
