// The prepared kernels of a plan.
//
// Preparing a kernel is what costs: oneDNN builds primitives, NVRTC compiles. Planning has to do it, to know
// how much workspace a kernel needs, and whoever binds the plan to memory finds the kernels here. A kernel
// takes one launch at a time, so runs of the plan that may overlap borrow a set each; runs that follow one
// another share one.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "compile/planning/plan.h"

namespace lockstep::compile {

// What one launch computes: the plan's call it was asked for and, of a group, calls that follow it.
struct PreparedLaunch {
  // Null: the call has none, because its device computes nothing or because it copies.
  std::unique_ptr<Kernel> kernel;
  size_t calls = 1;  // that it computes
};

// At most one kernel per call. One thread at a time.
class KernelSet {
 public:
  explicit KernelSet(PlanOptions options) : options_(std::move(options)) {}

  // The launch that begins with this call of the plan, prepared when it is first asked for. The reference
  // holds until another is asked for, the kernel as long as the set.
  const PreparedLaunch& launch(std::span<const KernelCall> calls, size_t index);
  const PlanOptions& options() const { return options_; }

 private:
  PreparedLaunch prepare(std::span<const KernelCall> calls, size_t index) const;

  const PlanOptions options_;
  std::vector<PreparedLaunch> launches_;  // by call
  std::vector<bool> prepared_;
};

// The sets of one plan. Thread-safe.
class KernelPool : public std::enable_shared_from_this<KernelPool> {
 public:
  // A set that nobody else has until the pointer is let go of: one that was used before for the same options,
  // else an empty one.
  std::shared_ptr<KernelSet> borrow(const PlanOptions& options);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<KernelSet>> idle_;
};

}  // namespace lockstep::compile
