// A compiled program whose steps run on several devices, one after the other in the order of the plan.
//
// Each device has its own arena, and kernels run with as many threads as their device has. Arguments,
// captured tensors and constants are bound on every device that reads them, variables as well: on another
// device than the variable's own there is a copy, renewed when the variable has changed. Whatever crosses is
// counted on both devices.
#pragma once

#include "execute/executable.h"

namespace lockstep::compile {

class SplitExecutable final : public Runnable {
 public:
  // A plan with devices.
  explicit SplitExecutable(Plan plan);
  ~SplitExecutable() override;

  // As Executable::run(); `clock`: may be null, else has one replica.
  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) override;

  MemoryFigures memory() const override;
  const Plan& plan() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::compile
