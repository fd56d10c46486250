// A compiled step over all its devices. One device with one replica is the plain case, and costs nothing
// extra.
//
//   StepPlans          what is to be done, per size of slice
//   DeviceRun          one device's part: bound plans, memory, captured graphs; on a thread of DeviceThreads
//   AllReduce          the sums between phases
//   VariableMirrors, ReplicaVariables, ReplicatedOutputs    what the devices share
//   StepRollback       what is undone where a step of several processes fails
//   StepObserver       who listens
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "execute/all_reduce/all_reduce.h"
#include "execute/device_run.h"
#include "execute/device_threads.h"
#include "execute/executable.h"
#include "execute/output_pool.h"
#include "execute/replica_variables.h"
#include "execute/step_plans.h"
#include "execute/step_rollback.h"
#include "execute/variable_mirrors.h"

namespace lockstep::execute {

// The program is planned once for every size of slice that occurs; each replica runs the plan of its slice,
// with memory of its own.
class StepExecutable final : public Executable {
 public:
  // See StepPlans.
  StepExecutable(std::vector<Plan> plans, std::vector<int64_t> slice_sizes, ReplicaLayout layout);
  ~StepExecutable() override;
  StepExecutable(const StepExecutable&) = delete;
  StepExecutable& operator=(const StepExecutable&) = delete;

  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) override;
  bool run_rows(const FunctionCore::RowRuns& runs, std::span<Tensor> outputs,
                observe::StepClock* clock) override;

  ArenaSize arenas() const override;
  const Plan& plan() const override { return plans_.first(); }

 private:
  // Who copies the arguments to the devices. A copy between GPUs waits for all that both have been given, so
  // it comes before they are given the step.
  enum class Staging : bool { by_each_device, before_all };

  std::vector<ReplicaSum> collect_sums() const;
  Stream& stream(size_t d) const;
  void bind(std::span<Tensor> outputs);
  void run_device(int d);

  const StepPlans plans_;
  const ReplicaLayout layout_;
  const MemoryLedger::Use memory_use_;  // whose the memory is
  const Staging staging_;
  StepObserver observer_;
  // Variables of the first plan: those that are there as a whole, and those of which every replica has a
  // part.
  std::vector<size_t> mirrored_, per_replica_;
  VariableMirrors mirrors_;
  ReplicaVariables replica_variables_;
  std::optional<StepRollback> rollback_;  // of several processes on CPUs
  ReplicatedOutputs outputs_;
  std::vector<std::unique_ptr<DeviceRun>> runs_;  // by device
  std::unique_ptr<AllReduce> all_reduce_;
  std::optional<DeviceThreads> threads_;
  std::span<const Tensor> inputs_;  // of the run in progress
};

}  // namespace lockstep::execute
