#include "execute/bound_program.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/parallel.h"
#include "compile/passes/fusion.h"
#include "compile/passes/transfers.h"
#include "compile/planning/launch_groups.h"
#include "device/copy.h"
#include "graph/numerics.h"

namespace lockstep::compile {
namespace {

// "fused(mul,add,relu) float32(32, 128)  model/dense": what a person looks for in a trace. Of a group: "fused(mul,add,relu)*3
// float32, 4096 elements".
std::string launch_name(const Step& step, size_t steps) {
  std::string text(step.op->name);
  if (step.op == &kFused) {
    const auto& ops = step.attrs.as<FusedAttrs>().ops;
    text += '(';
    for (size_t i = 0; i < ops.size() && i < 6; ++i) text += (i ? "," : "") + std::string(ops[i]);
    text += ops.size() > 6 ? ",...)" : ")";
  }
  if (steps > 1) {
    int64_t elements = 0;
    for (size_t i = 0; i < steps; ++i) elements += (&step)[i].output_layouts[0].spec.shape.size();
    return text +
           detail::concat("*", steps, " ", step.output_layouts[0].spec.dtype, ", ", elements, " elements");
  }
  if (!step.output_layouts.empty()) text += detail::concat(" ", step.output_layouts[0].spec);
  return step.layer.empty() ? text : text + "  " + step.layer;
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
    case Space::example_offset:
      base = static_cast<char*>(example_offset_at ? example_offset_at : &example_offset);
      break;
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
      capturable_(!plan.checks_numerics && memories[0]->device &&
                  backend_of(*memories[0]->device).compute_stream().asynchronous()),
      home_(memories[0]->device),
      device_(device),
      replica_(replica) {
  int phase = -1;
  for (size_t s = 0, steps = 1; s < plan.steps.size(); s += std::exchange(steps, 1)) {
    const Step& step = plan.steps[s];
    if (step.place.per_replica != per_replica) continue;
    while (phase < step.place.phase) {
      phase_begin_.push_back(launches_.size());
      ++phase;
    }
    const bool copies = step.op == &kTransfer;
    const auto count_work = [&](int64_t flops) {
      Work& work = work_[static_cast<size_t>(step.place.device)];
      work.flops += flops;
      ++work.kernels;
    };
    const DeviceKind kind = step_kind(step.place, options);
    if (kind == DeviceKind::null && !copies) {
      count_work(step.cost.flops);
      continue;
    }
    const int threads = step_threads(step, options);
    std::unique_ptr<Kernel> kernel;
    if (!copies) {
      kernel = prepare(plan, step, kind, threads, steps);
      capturable_ = capturable_ && !kernel->reads_values();
    }
    Cost cost = step.cost;
    for (size_t i = 1; i < steps; ++i) {
      cost.flops += plan.steps[s + i].cost.flops;
      cost.bytes += plan.steps[s + i].cost.bytes;
    }
    if (!copies) count_work(cost.flops);
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
                         .name = observe::intern(launch_name(step, steps)),
                         .flops = cost.flops,
                         .bytes = cost.bytes,
                         .step = &step,
                         .steps = steps});
    for (size_t i = 0; i < steps; ++i)
      for (const auto* operands : {&plan.steps[s + i].inputs, &plan.steps[s + i].outputs})
        for (const Operand& operand : *operands) {
          (changes_between_runs(operand.space) ? patches_ : fixed_).push_back({pointers_.size(), operand});
          pointers_.push_back(nullptr);
        }
  }
  while (phase < plan.phases) {
    phase_begin_.push_back(launches_.size());
    ++phase;
  }
  bound_.resize(patches_.size());
  rebase(memories);
}

std::unique_ptr<Kernel> BoundProgram::prepare(const Plan& plan, const Step& step, DeviceKind kind,
                                              int threads, size_t& steps) {
  const TeamScope team(threads);
  if (Device* place = devices_.empty() ? home_ : devices_[static_cast<size_t>(step.place.device)])
    backend_of(*place).bind_thread();
  if (const GroupSteps rule = group_rule(kind); rule && step.group >= 0) {
    const Step* const end = plan.steps.data() + plan.steps.size();
    const Step* const last = std::find_if(&step, end, [&](const Step& s) { return s.group != step.group; });
    GroupedSteps grouped = rule({&step, last});
    if (grouped.kernel) {
      steps = grouped.count;
      return std::move(grouped.kernel);
    }
  }
  const KernelDef& def = find_kernel(kind, *step.op, step.where);
  return def.prepare({.op = *step.op,
                      .attributes = step.attrs,
                      .inputs = step.input_layouts,
                      .outputs = step.output_layouts,
                      .threads = threads,
                      .where = step.where});
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
  for (size_t i = 0; i < patches_.size(); ++i) {
    const Patch& patch = patches_[i];
    bound_[i] = memories[static_cast<size_t>(patch.operand.device)]->at(patch.operand);
    pointers_[patch.pointer] = bound_[i];
  }
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

void BoundProgram::run(int phase, const Crossings& crossings) const {
  auto [at, end] = launches_of(phase);
  for (const Crossings::Wait& wait : crossings.waits)
    for (const Event* event : wait.events) event->wait(home().compute_stream());
  for (const Crossings::Announcement& announcement : crossings.announcements) {
    const size_t stop = std::clamp(announcement.launches, at, end);
    run(at, stop);
    at = stop;
    announcement.event->record(home().compute_stream());
  }
  run(at, end);
}

DeviceBackend& BoundProgram::home() const { return backend_of(home_ ? *home_ : device_by_name("/CPU:0")); }

void BoundProgram::run(size_t begin, size_t end) const {
  home().bind_thread();
  run(begin, end, home().compute_stream());
}

void BoundProgram::run_on(Stream& stream, int phase) const {
  const auto [begin, end] = launches_of(phase);
  run(begin, end, stream);
}

void BoundProgram::run(size_t begin, size_t end, Stream& stream) const {
  launch_place() = {device_, replica_};
  for (size_t i = begin; i < end; ++i) launch(launches_[i], device_, stream);
}

void BoundProgram::run(const Segment& segment) const {
  launch_place() = {segment.device, replica_};
  DeviceBackend& device = backend_of(*devices_[static_cast<size_t>(segment.device)]);
  device.bind_thread();
  Stream& stream = device.compute_stream();
  for (size_t i = segment.begin; i < segment.end; ++i)
    segment.copies ? copy(launches_[i]) : launch(launches_[i], segment.device, stream);
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

namespace {

MemoryRange range_of(const OperandLayout& layout, const void* data) {
  const auto* at = static_cast<const char*>(data);
  if (layout.spec.shape.size() == 0) return {at, at};
  const auto width = static_cast<int64_t>(size_of(layout.spec.dtype));
  int64_t low = 0, high = 0;
  for (int d = 0; d < layout.spec.shape.rank(); ++d) {
    const int64_t reach = (layout.spec.shape[d] - 1) * layout.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  return {at + low * width, at + (high + 1) * width};
}

bool meet(const std::vector<MemoryRange>& a, const std::vector<MemoryRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const MemoryRange& x) {
    return std::any_of(b.begin(), b.end(), [&](const MemoryRange& y) { return x.meets(y); });
  });
}

}  // namespace

// Running side by side pays where a device is done with a launch before it is filled: phases of more than a few milliseconds
// consist of launches that fill it, and take each other's cache instead.
bool BoundProgram::is_long(size_t begin, size_t end) const {
  constexpr int64_t kLongFlops = 1'000'000'000'000, kLongBytes = 8'000'000'000;
  int64_t flops = 0, bytes = 0;
  for (size_t i = begin; i < end; ++i) flops += launches_[i].flops, bytes += launches_[i].bytes;
  return flops >= kLongFlops || bytes >= kLongBytes;
}

std::vector<CapturedLaunch> BoundProgram::captured(int phase, const Crossings& crossings,
                                                   size_t lanes) const {
  const auto [begin, end] = launches_of(phase);
  if (is_long(begin, end)) lanes = 1;
  struct Use {
    std::vector<MemoryRange> reads, writes;
    bool pure = true;
    bool crosses = false;      // it is no work, and has no lane
    bool last = false;         // behind all earlier ones
    std::vector<bool> before;  // which earlier ones happen before it, directly or not
  };
  std::vector<Use> uses;
  std::vector<size_t> lasts;  // by lane: its last launch
  std::vector<CapturedLaunch> all;
  const auto add = [&](Use use, std::function<void(Stream&)> launch) {
    CapturedLaunch captured{.launch = std::move(launch), .after = {}};
    use.before.resize(uses.size());
    const auto wait_for = [&](size_t j) {
      captured.after.push_back(j);
      use.before[j] = true;
      for (size_t k = 0; k < j; ++k)
        if (uses[j].before[k]) use.before[k] = true;
    };
    // The latest first: what happens before one that is waited for needs no waiting.
    for (size_t j = uses.size(); j-- > 0;) {
      const Use& other = uses[j];
      if (use.before[j]) continue;
      const bool ordered = use.last || (!use.pure && !other.pure);
      if (ordered || meet(use.reads, other.writes) || meet(use.writes, other.reads) ||
          meet(use.writes, other.writes))
        wait_for(j);
    }
    if (!use.crosses) {
      // A lane whose last launch comes before it anyhow, the latest of them; a new lane; or the one that has rested longest.
      size_t* lane = nullptr;
      for (size_t& last : lasts)
        if (use.before[last] && (!lane || last > *lane)) lane = &last;
      if (!lane && lasts.size() < lanes) lane = &lasts.emplace_back();
      if (!lane) {
        lane = &*std::min_element(lasts.begin(), lasts.end());
        wait_for(*lane);
      }
      *lane = uses.size();
    }
    uses.push_back(std::move(use));
    all.push_back(std::move(captured));
  };

  for (const Crossings::Wait& wait : crossings.waits)
    add({.reads = {}, .writes = wait.memory, .crosses = true, .before = {}},
        [events = wait.events](Stream& stream) {
          for (const Event* event : events) event->wait(stream);
        });
  auto announcement = crossings.announcements.begin();
  const auto announce = [&](size_t launches) {
    for (; announcement != crossings.announcements.end() && announcement->launches <= launches;
         ++announcement)
      add({.reads = {}, .writes = {}, .crosses = true, .last = true, .before = {}},
          [event = announcement->event](Stream& stream) { event->record(stream); });
  };
  for (size_t i = begin; i < end; ++i) {
    announce(i);
    const Launch& l = launches_[i];
    Use use{.reads = {}, .writes = {}, .pure = l.step->op->pure, .before = {}};
    for (size_t s = 0, at = l.inputs; s < l.steps; ++s) {
      for (const OperandLayout& layout : l.step[s].input_layouts)
        use.reads.push_back(range_of(layout, pointers_[at++]));
      for (const OperandLayout& layout : l.step[s].output_layouts)
        use.writes.push_back(range_of(layout, pointers_[at++]));
    }
    if (l.workspace) {
      const auto* at = static_cast<const char*>(l.workspace);
      use.writes.push_back({at, at + l.step->workspace_bytes});
    }
    add(std::move(use), [this, &l](Stream& stream) { this->launch(l, device_, stream); });
  }
  announce(std::numeric_limits<size_t>::max());
  return all;
}

const Device& BoundProgram::place_of(const Launch& l) const {
  if (!devices_.empty()) return *devices_[static_cast<size_t>(l.step->place.device)];
  return home_ ? *home_ : device_by_name("/CPU:0");
}

void BoundProgram::launch(const Launch& l, int device, Stream& stream) const {
  const observe::EventOptions about{
      .device = device, .replica = replica_, .flops = l.flops, .bytes = l.bytes};
  const auto enqueue = [&] {
    l.kernel->launch({pointers_.data() + l.inputs, pointers_.data() + l.outputs, l.workspace, stream});
  };
  try {
    if (stream.asynchronous() && observe::tracing()) [[unlikely]] {
      const int64_t start = monotonic_ns();
      observe::record_span(l.name, "kernel", start, start + stream.timed(enqueue), about);
    } else {
      const observe::Span span(l.name, "kernel", about);
      enqueue();
    }
    if (checked_) [[unlikely]]
      check_numerics(place_of(l), l.step->op->name, l.step->input_layouts, l.step->output_layouts,
                     pointers_.data() + l.inputs, l.step->where);
  } catch (Error& error) {
    error.note(detail::concat("in ", l.name.c_str(), ", emitted at ", l.step->where.file_name(), ":",
                              l.step->where.line()));
    throw;
  }
}

}  // namespace lockstep::compile
