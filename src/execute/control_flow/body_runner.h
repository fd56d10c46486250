// Runs the body of a loop or branch inside of a kernel.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compile/control_flow/body.h"
#include "execute/bound_plan.h"

namespace lockstep::execute {

// Made without memory of its own; what it needs beside the kernels that planning has prepared is prepared at
// the first run. One run at a time.
class BodyRunner {
 public:
  // For a kernel that is prepared by such a request.
  BodyRunner(const compile::BodyGraph& body, DeviceKind kind, const KernelRequest& request);

  size_t arena_bytes() const { return plan_->device_arenas[0].bytes + constant_bytes_; }
  // Before the runs of one launch: `arena` has arena_bytes() bytes.
  void start(void* arena, Stream& stream);
  // Where the parameters and results of the next run are. All must be set before the first.
  void set_parameter(size_t i, const void* data) { memory_.parameters[i] = const_cast<void*>(data); }
  void set_output(size_t i, void* data) { memory_.outputs[i] = data; }
  size_t num_parameters() const { return plan_->parameters.size(); }
  const std::vector<PlannedOutput>& outputs() const { return plan_->outputs; }
  // Whether a kernel of the body looks at values while it is launched.
  bool reads_values() const;
  void run(Stream& stream);

 private:
  BodyRunner(const compile::BodyGraph& body, const PlanOptions& options);
  void fill_constants(char* arena, Stream& stream);

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<KernelSet> kernels_;
  Memory memory_;
  size_t constant_bytes_ = 0;  // behind the arena
  std::optional<BoundPlan> bound_;
};

}  // namespace lockstep::execute
