#include "compile/bound_program.h"

#include <algorithm>

#include "base/parallel.h"
#include "compile/fusion.h"
#include "compile/transfers.h"
#include "device/copy.h"
#include "graph/numerics.h"

namespace lockstep::compile {
namespace {

// "fused(mul, add, relu)": what a person looks for in a trace.
std::string launch_name(const Step& step) {
  std::string text(step.op->name);
  if (step.op != &kFused) return text;
  const auto& ops = step.attrs.as<FusedAttrs>().ops;
  text += '(';
  for (size_t i = 0; i < ops.size() && i < 6; ++i) text += (i ? "," : "") + std::string(ops[i]);
  return text + (ops.size() > 6 ? ",...)" : ")");
}

bool changes_between_runs(Space space) {
  return space == Space::parameter || space == Space::variable || space == Space::output;
}

}  // namespace

void* Memory::at(const Operand& operand) {
  const auto from = [&](const std::vector<void*>& list) -> char* {
    return static_cast<char*>(list[static_cast<size_t>(operand.index)]);
  };
  char* base = nullptr;
  switch (operand.space) {
    case Space::device_arena: base = device_arena; break;
    case Space::replica_arena: base = replica_arena; break;
    case Space::parameter: base = from(parameters); break;
    case Space::variable: base = from(variables); break;
    case Space::capture: base = from(captures); break;
    case Space::constant: base = from(constants); break;
    case Space::example_offset: base = reinterpret_cast<char*>(&example_offset); break;
    case Space::output: base = from(outputs); break;
  }
  return base + operand.offset;
}

BoundProgram::BoundProgram(const Plan& plan, bool per_replica, const PlanOptions& options,
                           std::span<Memory* const> memories, int device, int replica)
    : first_step_(plan.steps.data()),
      work_(memories.size()),
      devices_(plan.devices),
      per_replica_(per_replica),
      checked_(plan.checks_numerics),
      device_(device),
      replica_(replica) {
  int phase = -1;
  for (const Step& step : plan.steps) {
    if (step.place.per_replica != per_replica) continue;
    while (phase < step.place.phase) {
      phase_begin_.push_back(launches_.size());
      ++phase;
    }
    const bool copies = step.op == &kTransfer;
    if (!copies) {
      Work& work = work_[static_cast<size_t>(step.place.device)];
      work.flops += step.cost.flops;
      ++work.kernels;
    }
    const DeviceKind kind = step_kind(step.place, options);
    if (kind == DeviceKind::null && !copies) continue;
    const int threads = step_threads(step, options);
    std::unique_ptr<Kernel> kernel;
    if (!copies) {
      const TeamScope team(threads);
      kernel = find_kernel(kind, *step.op, step.where)
                   .prepare({.op = *step.op,
                             .attributes = step.attrs,
                             .inputs = step.input_layouts,
                             .outputs = step.output_layouts,
                             .threads = threads,
                             .where = step.where});
    }
    if (!devices_.empty()) {
      if (segments_.empty() || segments_.back().device != step.place.device ||
          segments_.back().copies != copies)
        segments_.push_back({launches_.size(), launches_.size(), step.place.device, threads, copies});
      ++segments_.back().end;
    }
    launches_.push_back({.kernel = std::move(kernel),
                         .inputs = pointers_.size(),
                         .outputs = pointers_.size() + step.inputs.size(),
                         .workspace_offset = step.workspace_bytes > 0 ? step.workspace_offset : -1,
                         .workspace = nullptr,
                         .name = observe::intern(launch_name(step)),
                         .flops = step.cost.flops,
                         .bytes = step.cost.bytes,
                         .step = &step});
    for (const auto* operands : {&step.inputs, &step.outputs})
      for (const Operand& operand : *operands) {
        (changes_between_runs(operand.space) ? patches_ : fixed_).push_back({pointers_.size(), operand});
        pointers_.push_back(nullptr);
      }
  }
  while (phase < plan.phases) {
    phase_begin_.push_back(launches_.size());
    ++phase;
  }
  rebase(memories);
}

void BoundProgram::rebase(std::span<Memory* const> memories) {
  for (Launch& launch : launches_) {
    const Memory& memory = *memories[static_cast<size_t>(launch.step->place.device)];
    char* arena = per_replica_ ? memory.replica_arena : memory.device_arena;
    launch.workspace = launch.workspace_offset >= 0 ? arena + launch.workspace_offset : nullptr;
  }
  for (const Patch& patch : fixed_)
    pointers_[patch.pointer] = memories[static_cast<size_t>(patch.operand.device)]->at(patch.operand);
}

void BoundProgram::bind(std::span<Memory* const> memories) {
  for (const Patch& patch : patches_)
    pointers_[patch.pointer] = memories[static_cast<size_t>(patch.operand.device)]->at(patch.operand);
}

std::pair<size_t, size_t> BoundProgram::launches_of(int phase) const {
  return {phase_begin_[static_cast<size_t>(phase)], phase_begin_[static_cast<size_t>(phase) + 1]};
}

size_t BoundProgram::launches_until(int steps) const {
  const Step* const end = first_step_ + steps;
  return static_cast<size_t>(std::partition_point(launches_.begin(), launches_.end(),
                                                  [&](const Launch& l) { return l.step < end; }) -
                             launches_.begin());
}

void BoundProgram::run(int phase) const {
  const auto [begin, end] = launches_of(phase);
  run(begin, end);
}

void BoundProgram::run(size_t begin, size_t end) const {
  launch_place() = {device_, replica_};
  for (size_t i = begin; i < end; ++i) launch(launches_[i], device_);
}

void BoundProgram::run(const Segment& segment) const {
  launch_place() = {segment.device, replica_};
  for (size_t i = segment.begin; i < segment.end; ++i)
    segment.copies ? copy(launches_[i]) : launch(launches_[i], segment.device);
}

void BoundProgram::copy(const Launch& l) const {
  const auto device = [&](const Operand& operand) -> Device& {
    return *devices_[static_cast<size_t>(operand.device)];
  };
  const observe::Span span(l.name, "copy",
                           {.device = l.step->outputs[0].device, .replica = replica_, .bytes = l.bytes});
  copy_across(device(l.step->inputs[0]), pointers_[l.inputs], device(l.step->outputs[0]),
              pointers_[l.outputs], l.step->output_layouts[0].spec.bytes());
}

void BoundProgram::launch(const Launch& l, int device) const {
  const observe::Span span(l.name, "kernel",
                           {.device = device, .replica = replica_, .flops = l.flops, .bytes = l.bytes});
  try {
    l.kernel->launch({pointers_.data() + l.inputs, pointers_.data() + l.outputs, l.workspace});
    if (checked_) [[unlikely]]
      check_numerics(l.step->op->name, l.step->input_layouts, l.step->output_layouts,
                     pointers_.data() + l.inputs, l.step->where);
  } catch (Error& error) {
    error.note(detail::concat("in ", l.name.c_str(), ", emitted at ", l.step->where.file_name(), ":",
                              l.step->where.line()));
    throw;
  }
}

}  // namespace lockstep::compile
