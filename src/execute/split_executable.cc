#include "execute/split_executable.h"

#include <algorithm>

#include "base/parallel.h"
#include "device/copy.h"
#include "execute/bound_program.h"
#include "execute/output_pool.h"
#include "graph/variable_impl.h"

namespace lockstep::compile {

using observe::Category;

class SplitExecutable::Impl {
 public:
  explicit Impl(Plan plan) : plan_(std::move(plan)), outputs_(plan_.outputs.size()) {
    for (size_t d = 0; d < plan_.devices.size(); ++d) make_context(d);
    for (const Step& step : plan_.steps)
      for (const auto* operands : {&step.inputs, &step.outputs})
        for (const Operand& operand : *operands) note_use(operand);
    for (auto& context : contexts_) {
      hold_captures(*context);
      memories_.push_back(&context->memory);
    }
    PlanOptions options;
    options.devices = plan_.devices;
    program_.emplace(plan_, false, options, memories_, 0, -1);
  }

  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) {
    observe::ReplicaClock* const time = clock ? &clock->replica(0) : nullptr;
    {
      const observe::TimeScope scope(time, Category::host);
      bind_outputs(outputs);
    }
    {
      const observe::TimeScope scope(time, Category::copy);
      bind_variables();
      bind_inputs(inputs);
    }
    program_->bind(memories_);
    try {
      for (const BoundProgram::Segment& segment : program_->segments()) {
        const observe::TimeScope scope(time, segment.copies ? Category::copy : Category::compute);
        const TeamScope team(segment.threads);
        program_->run(segment);
      }
    } catch (...) {
      changed();
      throw;
    }
    changed();
    for (size_t d = 0; d < contexts_.size(); ++d)
      backend_of(*plan_.devices[d]).count_kernels(program_->work(d).kernels, program_->work(d).flops);
  }

  MemoryFigures memory() const {
    MemoryFigures figures;
    for (const ArenaSize& arena : plan_.device_arenas) {
      figures.arena += arena.bytes;
      figures.peak += arena.peak;
      figures.unplanned += arena.unplanned;
    }
    return figures;
  }

  const Plan& plan() const { return plan_; }

 private:
  // What a device has of a source that lives elsewhere.
  struct Copy {
    std::unique_ptr<Storage> storage;
    uint64_t version = 0;

    void* fill(Device& from, const void* source, Device& to, size_t bytes, std::source_location where) {
      if (!storage || storage->bytes() < bytes) storage = std::make_unique<Storage>(to, bytes, where);
      copy_across(from, source, to, storage->data(), bytes);
      return storage->data();
    }
  };

  struct Context {
    Device* device;
    Memory memory;
    std::unique_ptr<Storage> arena;
    TensorList held;  // constants and captures
    std::vector<Copy> parameters;
    std::vector<Copy> variables;
    std::vector<bool> reads_parameter, reads_variable, reads_capture, reads_constant;
  };

  void make_context(size_t d) {
    const std::source_location where = std::source_location::current();
    auto& context = *contexts_.emplace_back(std::make_unique<Context>());
    context.device = plan_.devices[d];
    context.arena = std::make_unique<Storage>(*context.device, plan_.device_arenas[d].bytes, where);
    context.memory.device = context.device;
    context.memory.device_arena = static_cast<char*>(context.arena->data());
    context.memory.parameters.resize(plan_.parameters.size());
    context.memory.variables.resize(plan_.variables.size());
    context.memory.captures.resize(plan_.captures.size());
    context.memory.constants.resize(plan_.constants.size());
    context.memory.outputs.resize(plan_.outputs.size());
    context.parameters.resize(plan_.parameters.size());
    context.variables.resize(plan_.variables.size());
    context.reads_parameter.resize(plan_.parameters.size());
    context.reads_variable.resize(plan_.variables.size());
    context.reads_capture.resize(plan_.captures.size());
    context.reads_constant.resize(plan_.constants.size());
  }

  void note_use(const Operand& operand) {
    Context& context = *contexts_[static_cast<size_t>(operand.device)];
    const auto index = static_cast<size_t>(operand.index);
    switch (operand.space) {
      case Space::parameter: context.reads_parameter[index] = true; break;
      case Space::variable: context.reads_variable[index] = true; break;
      case Space::capture: context.reads_capture[index] = true; break;
      case Space::constant: context.reads_constant[index] = true; break;
      default: break;
    }
  }

  void hold_captures(Context& context) {
    for (size_t i = 0; i < plan_.captures.size(); ++i) {
      if (!context.reads_capture[i]) continue;
      const TensorImpl& impl = *plan_.captures[i].impl();
      // The plan knows the capture by its strides, so a strided one stays where it is.
      const bool stays = !is_contiguous(impl.spec.shape, impl.strides);
      context.held.push_back(stays ? plan_.captures[i] : plan_.captures[i].to(*context.device));
      context.memory.captures[i] = context.held.back().impl()->data();
    }
    for (size_t i = 0; i < plan_.constants.size(); ++i) {
      if (!context.reads_constant[i]) continue;
      const auto& [spec, value] = plan_.constants[i];
      context.held.push_back(Tensor::full(spec.dtype, spec.shape, value, *context.device));
      context.memory.constants[i] = context.held.back().impl()->data();
    }
  }

  void bind_outputs(std::span<Tensor> outputs) {
    for (size_t k = 0; k < plan_.outputs.size(); ++k) {
      const PlannedOutput& planned = plan_.outputs[k];
      outputs[k] = Tensor();
      outputs[k] = outputs_[k].take(planned.spec, *plan_.devices[static_cast<size_t>(planned.device)]);
      for (auto& context : contexts_) context->memory.outputs[k] = outputs[k].impl()->data();
    }
  }

  void bind_variables() {
    for (size_t v = 0; v < plan_.variables.size(); ++v) {
      VariableImpl& variable = *plan_.variables[v].impl();
      variable.gather();
      Device& home = variable.value.device();
      const bool updated = plan_.variable_updated[v];
      void* data = updated ? variable.mutable_data(true) : variable.value.impl()->data();
      bool at_home = false;
      for (auto& context : contexts_) {
        if (!context->reads_variable[v]) continue;
        void* own = data;
        at_home = at_home || context->device == &home;
        if (context->device != &home) {
          Copy& copy = context->variables[v];
          const bool stale = !copy.storage || copy.version != variable.version;
          own = stale ? copy.fill(home, data, *context->device, variable.spec.bytes(), variable.where)
                      : copy.storage->data();
          copy.version = variable.version;
        }
        context->memory.variables[v] = own;
      }
      require(at_home || !updated, ErrorCode::failed_precondition, variable.where, "variable \"",
              variable.options.name, "\" has moved to ", home.name(),
              " since the function that updates it was traced; make the function again");
    }
  }

  void bind_inputs(std::span<const Tensor> inputs) {
    for (size_t i = 0; i < plan_.parameters.size(); ++i) {
      const TensorImpl& input = *inputs[i].impl();
      Device& from = input.storage->device();
      for (auto& context : contexts_)
        if (context->reads_parameter[i])
          context->memory.parameters[i] =
              context->device == &from
                  ? input.data()
                  : context->parameters[i].fill(from, input.data(), *context->device, input.spec.bytes(),
                                                std::source_location::current());
    }
  }

  // A step that failed may have written some of its variables: copies of them are out of date either way.
  void changed() {
    for (size_t v = 0; v < plan_.variables.size(); ++v)
      if (plan_.variable_updated[v]) ++plan_.variables[v].impl()->version;
  }

  Plan plan_;
  std::vector<std::unique_ptr<Context>> contexts_;  // by device
  std::vector<Memory*> memories_;                   // of the contexts
  std::optional<BoundProgram> program_;
  std::vector<OutputPool> outputs_;
};

SplitExecutable::SplitExecutable(Plan plan) : impl_(std::make_unique<Impl>(std::move(plan))) {}
SplitExecutable::~SplitExecutable() = default;

void SplitExecutable::run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                          observe::StepClock* clock) {
  impl_->run(inputs, outputs, clock);
}
MemoryFigures SplitExecutable::memory() const { return impl_->memory(); }
const Plan& SplitExecutable::plan() const { return impl_->plan(); }

}  // namespace lockstep::compile
