#include "execute/split_executable.h"

#include "base/parallel.h"

namespace lockstep::execute {

using observe::Category;

namespace {

// What the calls of a plan read and write on each of its devices.
struct Uses {
  explicit Uses(const Plan& plan) {
    const size_t devices = plan.devices.size();
    parameters.assign(devices, std::vector<bool>(plan.parameters.size()));
    captured_inputs.assign(devices, std::vector<bool>(plan.captured_inputs.size()));
    constants.assign(devices, std::vector<bool>(plan.constants.size()));
    variables.assign(devices, std::vector<VariableUse>(plan.variables.size(), VariableUse::unused));
    for (const KernelCall& call : plan.calls)
      for (const auto* operands : {&call.inputs, &call.outputs})
        for (const Operand& operand : *operands) add(operand);
  }

  void add(const Operand& operand) {
    const auto d = static_cast<size_t>(operand.device), index = static_cast<size_t>(operand.index);
    switch (operand.space) {
      case Space::parameter: parameters[d][index] = true; break;
      case Space::captured_input: captured_inputs[d][index] = true; break;
      case Space::constant: constants[d][index] = true; break;
      // A call writes a variable where that lives.
      case Space::variable: variables[d][index] = VariableUse::reads; break;
      default: break;
    }
  }

  std::vector<std::vector<bool>> parameters, captured_inputs, constants;  // by device
  std::vector<std::vector<VariableUse>> variables;
};

}  // namespace

SplitExecutable::SplitExecutable(Plan plan, const PlanOptions& options)
    : plan_(std::move(plan)), outputs_(plan_.outputs.size()) {
  Uses uses(plan_);
  for (size_t d = 0; d < plan_.devices.size(); ++d) {
    Device& device = *plan_.devices[d];
    auto& context = *contexts_.emplace_back(std::make_unique<Context>(
        Context{device, Memory(plan_, device), HeldSources(device), nullptr, {}, uses.parameters[d]}));
    context.arena =
        std::make_unique<Storage>(device, plan_.device_arenas[d].bytes, std::source_location::current());
    context.memory.device_arena = static_cast<char*>(context.arena->data());
    for (size_t i = 0; i < plan_.captured_inputs.size(); ++i)
      if (uses.captured_inputs[d][i])
        context.memory.captured_inputs[i] = context.held.hold(plan_.captured_inputs[i]);
    for (size_t i = 0; i < plan_.constants.size(); ++i)
      if (uses.constants[d][i])
        context.memory.constants[i] = context.held.hold(plan_.constants[i].first, plan_.constants[i].second);
    for (size_t i = 0; i < plan_.parameters.size(); ++i) context.inputs.emplace_back(device);
    memories_.push_back(&context.memory);
  }
  mirrors_.emplace(plan_.devices, plan_.variables, plan_.variable_updated, std::move(uses.variables));
  bound_.emplace(plan_, Part::per_device, plan_.kernels->borrow(options), memories_, LaunchPlace{0, -1});
}

SplitExecutable::~SplitExecutable() = default;

void SplitExecutable::run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                          observe::StepClock* clock) {
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
  bound_->bind(memories_);
  std::optional<observe::BindReplica> bind;
  if (time) bind.emplace(*time);
  try {
    for (const BoundPlan::Segment& segment : bound_->segments()) {
      const observe::TimeScope scope(time, segment.copies ? Category::copy : Category::compute);
      const TeamScope team(segment.threads);
      bound_->run(segment);
      if (time && segment.copies)
        time->count(observe::Counter::host_copies, static_cast<int64_t>(segment.end - segment.begin));
    }
  } catch (...) {
    mirrors_->invalidate();
    throw;
  }
  mirrors_->commit();
  for (size_t d = 0; d < contexts_.size(); ++d) {
    backend_of(contexts_[d]->device).count_kernels(bound_->work(d).kernels, bound_->work(d).flops);
    if (!time) continue;
    time->count(observe::Counter::flops, bound_->work(d).flops);
    time->count(observe::Counter::half_flops, bound_->work(d).half_flops);
  }
}

ArenaSize SplitExecutable::arenas() const {
  ArenaSize total;
  for (const ArenaSize& arena : plan_.device_arenas) add(total, arena);
  return total;
}

void SplitExecutable::bind_outputs(std::span<Tensor> outputs) {
  for (size_t k = 0; k < plan_.outputs.size(); ++k) {
    const PlannedOutput& planned = plan_.outputs[k];
    outputs[k] = Tensor();
    outputs[k] = outputs_[k].take(planned.spec, *plan_.devices[static_cast<size_t>(planned.device)]);
    for (auto& context : contexts_) context->memory.outputs[k] = outputs[k].impl()->data();
  }
}

void SplitExecutable::bind_variables() {
  mirrors_->renew();
  for (size_t d = 0; d < contexts_.size(); ++d)
    for (size_t v = 0; v < plan_.variables.size(); ++v)
      contexts_[d]->memory.variables[v] = mirrors_->at(d, v);
}

void SplitExecutable::bind_inputs(std::span<const Tensor> inputs) {
  for (size_t i = 0; i < plan_.parameters.size(); ++i) {
    const TensorImpl& input = *inputs[i].impl();
    for (auto& context : contexts_)
      if (context->reads_parameter[i])
        context->memory.parameters[i] =
            context->inputs[i].bring(input.storage->device(), input.data(), input.spec.bytes());
  }
}

}  // namespace lockstep::execute
