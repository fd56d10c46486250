// A compiled program whose kernel calls run on several devices, one after the other in the order of the plan.
//
// Each device has its own arena, and kernels run with as many threads as their device has. Arguments,
// captured inputs and constants are bound on every device that reads them, variables as well: on another
// device than the variable's own there is a mirror. Whatever crosses is counted on both devices.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "execute/bound_plan.h"
#include "execute/executable.h"
#include "execute/output_pool.h"
#include "execute/staged_input.h"
#include "execute/variable_mirrors.h"

namespace lockstep::execute {

class SplitExecutable final : public Executable {
 public:
  // `options`: those that the plan was made with; they name its devices.
  SplitExecutable(Plan plan, const PlanOptions& options);
  ~SplitExecutable() override;

  // `clock`: may be null, else has one replica.
  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) override;

  ArenaSize arenas() const override;
  const Plan& plan() const override { return plan_; }

 private:
  // One device of the plan.
  struct Context {
    Device& device;
    Memory memory;
    HeldSources held;
    std::unique_ptr<Storage> arena;
    std::vector<StagedInput> inputs;
    std::vector<bool> reads_parameter;
  };

  void bind_outputs(std::span<Tensor> outputs);
  void bind_variables();
  void bind_inputs(std::span<const Tensor> inputs);

  const Plan plan_;
  std::vector<std::unique_ptr<Context>> contexts_;  // by device
  std::vector<const Memory*> memories_;             // of the contexts
  std::optional<VariableMirrors> mirrors_;
  std::optional<BoundPlan> bound_;
  std::vector<OutputPool> outputs_;
};

}  // namespace lockstep::execute
