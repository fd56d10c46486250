#include "compile/body_runner.h"

#include "tensor/tensor_impl.h"

namespace lockstep::compile {
namespace {
constexpr size_t kAlignment = 64;
}

BodyRunner::BodyRunner(const BodyProgram& program, DeviceKind kind, int threads)
    : plan_(program.plan(kind, threads)) {
  options_.kind = kind;
  options_.uniform_threads = threads;
}

void BodyRunner::start(void* arena) {
  auto* base = static_cast<char*>(arena);
  if (!bound_) {
    memory_.parameters.resize(plan_->parameters.size());
    memory_.outputs.resize(plan_->outputs.size());
    for (const auto& [spec, value] : plan_->constants) {
      auto& bytes = constants_.emplace_back(spec.bytes() + kAlignment);
      void* data = bytes.data();
      size_t space = bytes.size();
      std::align(kAlignment, spec.bytes(), data, space);
      fill_elements(spec.dtype, spec.shape.size(), value, data);
      memory_.constants.push_back(data);
    }
    memory_.device_arena = base;
    const LaunchPlace place = launch_place();
    bound_.emplace(*plan_, false, options_, memory_, place.device, place.replica);
  } else if (memory_.device_arena != base) {
    memory_.device_arena = base;
    bound_->rebase(memory_);
  }
}

void BodyRunner::run(void* stream) {
  bound_->bind(memory_);
  bound_->run_on(stream, 0);
}

}  // namespace lockstep::compile
