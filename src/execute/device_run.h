// One device's part of a step: its bound plans, their memory, and the order in which they run.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "execute/all_reduce/all_reduce.h"
#include "execute/bound_plan.h"
#include "execute/graph_replay.h"
#include "execute/host_inputs.h"
#include "execute/output_pool.h"
#include "execute/replica_variables.h"
#include "execute/replicas.h"
#include "execute/run_ahead.h"
#include "execute/staged_input.h"
#include "execute/step_observer.h"
#include "execute/step_plans.h"

namespace lockstep::execute {

// How a device works that shares a GPU with others of the step, or has one for itself.
struct DeviceRunOptions {
  uint64_t runs_ahead = 2;                 // see RunAheadOptions
  size_t branches = BoundPlan::kBranches;  // see GraphReplay
};

// What is the same for all replicas runs once on the device. Replicas run one after the other with all its
// threads, or, where no bit may depend on the number of threads, as many at once as it has threads, each on
// one thread.
class DeviceRun {
 public:
  // Device d of the layout. All of it outlives this.
  DeviceRun(int d, const StepPlans& plans, const ReplicaLayout& layout, const StepObserver& observer,
            DeviceRunOptions options);

  // This device's side of a sum that the first plan makes.
  void add_to(ReplicaSum& sum, const compile::Collective& collective) const;
  // Before the first run.
  void sum_with(AllReduce& all_reduce) { all_reduce_ = &all_reduce; }
  // Lets go of captured graphs, and of the events of the all-reduce that they refer to.
  void release_graphs();

  // Between runs: where the next one finds what devices share. Variables are numbered as the first plan does.
  void bind_outputs(ReplicatedOutputs& outputs);
  void bind_variable(size_t variable, void* data);
  void bind_replica_variable(size_t variable, const ReplicaVariables& parts, size_t number);
  // And the arguments, copied where the device cannot read them as they lie.
  void stage_inputs(std::span<const Tensor> inputs);

  // Waits until the device may be given another run.
  void wait_for_turn();
  // All phases. Returns early where another device failed.
  void run();
  // Whether several runs on such rows may be one launch: the plan is one kernel, and the rows are where it
  // runs.
  bool takes_rows(const FunctionCore::RowRuns& runs) const;
  // That launch, of a plan without replicas; false: nothing was done, for the kernel cannot.
  bool run_rows(const FunctionCore::RowRuns& runs);

  // What each arena holds that the device has for its plans and replicas.
  std::vector<ArenaSize> arenas() const;

 private:
  // What runs once on the device.
  struct SharedPart {
    size_t slice_plan = 0;  // which of the step's plans
    Memory memory;
    std::unique_ptr<Storage> arena;  // null: a fused plan's, whose calls were never made one by one
    std::unique_ptr<BoundPlan> bound;
    GraphReplay replay;
  };
  struct Replica {
    int number = 0;
    size_t slice_plan = 0;  // which of the step's plans
    Slice slice;
    Memory memory;
    std::unique_ptr<Storage> arena;
    std::unique_ptr<Storage> example_offset;
    std::vector<StagedInput> inputs;  // its slices
    std::unique_ptr<BoundPlan> bound;
    GraphReplay replay;
  };
  class Lanes;

  void bind_shared(size_t p, Lanes& lanes);
  void make_arena(SharedPart& made);
  void bind_replica(int number, Lanes& lanes);
  const SharedPart* shared_of(size_t p) const;
  void bind_variable(Memory& memory, size_t p, size_t variable, void* data) const;
  bool run_phases();
  bool leaves_updates(int phase) const;
  void run_shared(int phase);
  void run_replicas(int phase);
  void count(int64_t runs) const;
  // What the launches of the run that begins now are: to be asked once.
  observe::Category launch_category();

  const int number_;
  Device& device_;
  DeviceBackend& backend_;
  Stream& stream_;  // where it computes
  const StepPlans& step_plans_;
  const ReplicaLayout& layout_;
  const StepObserver& observer_;
  const DeviceRunOptions options_;
  AllReduce* all_reduce_ = nullptr;

  HeldSources held_;
  HostInputs host_inputs_;
  std::vector<StagedInput> inputs_;  // that are not split
  std::vector<void*> whole_inputs_;  // where the device reads these
  std::vector<SharedPart> shared_;   // the first plan, and those of the replicas
  std::vector<Replica> replicas_;    // with examples
  int at_once_ = 1;                  // replicas that run at the same time
  int replica_threads_ = 1;          // for each that runs alone
  int64_t first_row_ = 0;            // of the batch that the arguments hold
  std::optional<RunAhead> ahead_;
  // What one run does.
  BoundPlan::Work work_;
  int64_t examples_ = 0;
  int64_t slots_ = 0;     // examples that it would have if all replicas had as many as the first
  int64_t launches_ = 0;  // of the first ones
};

}  // namespace lockstep::execute
