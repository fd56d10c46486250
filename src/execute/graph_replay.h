// The phases of a bound plan as captured graphs, replayed as one launch each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/stream.h"
#include "execute/bound_plan.h"
#include "execute/whole_step_fusion.h"

namespace lockstep::execute {

// Captures and replays the launches of one bound plan. A captured graph holds for the pointers that it was
// captured with, so it is worth its price only where they come back: a phase is captured when it is about to
// run for the second time with the same ones. On devices that capture no graphs, and while a trace is
// written, launches are made one by one.
class GraphReplay {
 public:
  // From now on the whole plan is one launch of this kernel.
  void fuse(std::unique_ptr<WholeStepKernel> kernel) { whole_step_ = std::move(kernel); }
  bool fused() const { return whole_step_ != nullptr; }
  // Called once, before the calls of a fused plan are launched one by one: where a trace is written, or where
  // the kernel does not take the memory that it was given.
  void before_calls(std::function<void()> prepare) { prepare_ = std::move(prepare); }
  // At most `branches` launches of a graph run side by side.
  void set_branches(size_t branches) { branches_ = branches; }

  // On the compute stream of the plan's device. `sync`: the same in every run of a phase.
  void run(const BoundPlan& plan, int phase, Stream& stream, const PhaseSync& sync = {});
  // Several runs as one launch; false: not with this plan.
  bool run(const BoundPlan& plan, const FunctionCore::RowRuns& runs, Stream& stream);
  // Lets go of all captured graphs, and of the events that they refer to.
  void clear() { graphs_.clear(); }

 private:
  struct PhaseGraph {
    int phase = 0;
    std::vector<void*> pointers;
    bool fused = false;
    std::unique_ptr<CapturedGraph> graph;  // null: these pointers were seen once
    uint64_t used = 0;                     // the number of the run that used it last
  };
  static constexpr size_t kMost = 8;  // results take turns in a few places

  void run_calls(const BoundPlan& plan, int phase, Stream& stream, const PhaseSync& sync);

  std::unique_ptr<WholeStepKernel> whole_step_;
  std::function<void()> prepare_;
  std::vector<PhaseGraph> graphs_;
  size_t branches_ = BoundPlan::kBranches;
  uint64_t runs_ = 0;
};

}  // namespace lockstep::execute
