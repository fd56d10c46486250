#include "execute/control_flow/body_runner.h"

#include <algorithm>

#include "compile/control_flow/control_flow_ops.h"
#include "compile/planning/memory_plan.h"
#include "tensor/tensor_impl.h"

namespace lockstep::execute {

using compile::aligned;

BodyRunner::BodyRunner(const compile::BodyGraph& body, DeviceKind kind, const KernelRequest& request)
    : BodyRunner(body, compile::PlanOptions::on(kind, request.device, request.threads)) {}

BodyRunner::BodyRunner(const compile::BodyGraph& body, const PlanOptions& options)
    : plan_(body.plan(options)), kernels_(plan_->kernels->borrow(options)) {
  memory_.device = options.device;
  for (const auto& [spec, value] : plan_->constants) constant_bytes_ += aligned(spec.bytes());
}

void BodyRunner::start(void* arena, Stream& stream) {
  auto* base = static_cast<char*>(arena);
  if (!bound_) {
    memory_.parameters.resize(plan_->parameters.size());
    memory_.outputs.resize(plan_->outputs.size());
    memory_.constants.resize(plan_->constants.size());
  }
  fill_constants(base, stream);
  if (!bound_) {
    memory_.device_arena = base;
    bound_.emplace(*plan_, Part::per_device, kernels_, memory_, LaunchPlace());
  } else if (memory_.device_arena != base) {
    memory_.device_arena = base;
    bound_->rebase(memory_);
  }
}

// Behind the arena, which others have used since the last launch.
void BodyRunner::fill_constants(char* arena, Stream& stream) {
  char* data = arena + plan_->device_arenas[0].bytes;
  for (size_t i = 0; i < plan_->constants.size(); ++i) {
    const auto& [spec, value] = plan_->constants[i];
    uint64_t pattern = 0;
    fill_elements(spec.dtype, 1, value, &pattern);
    stream.fill(data, pattern, size_of(spec.dtype), static_cast<size_t>(spec.shape.size()));
    memory_.constants[i] = data;
    data += aligned(spec.bytes());
  }
}

bool BodyRunner::reads_values() const {
  return std::any_of(plan_->calls.begin(), plan_->calls.end(),
                     [](const KernelCall& call) { return compile::has_bodies(*call.op); });
}

void BodyRunner::run(Stream& stream) {
  bound_->bind(memory_);
  bound_->run_inside(0, stream);
}

}  // namespace lockstep::execute
