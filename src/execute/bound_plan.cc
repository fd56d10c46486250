#include "execute/bound_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compile/passes/fusion.h"
#include "device/copy.h"
#include "device/device_backend.h"
#include "graph/numerics.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::execute {

namespace {

// What a person looks for in a trace: "fused(mul,add,relu) float32(32, 128)  model/dense"; of a group,
// "fused(mul,add,relu)*3 float32, 4096 elements".
std::string launch_name(std::span<const KernelCall> calls) {
  const KernelCall& call = calls[0];
  std::string text = compile::name_with_parts(*call.op, call.attrs);
  if (calls.size() > 1) {
    int64_t elements = 0;
    for (const KernelCall& one : calls) elements += one.output_layouts[0].spec.shape.size();
    return text + detail::concat("*", calls.size(), " ", call.output_layouts[0].spec.dtype, ", ", elements,
                                 " elements");
  }
  if (!call.output_layouts.empty()) text += detail::concat(" ", call.output_layouts[0].spec);
  return call.layer.empty() ? text : text + "  " + call.layer;
}

bool changes_between_runs(Space space) {
  return space == Space::parameter || space == Space::variable || space == Space::output;
}

}  // namespace

BoundPlan::BoundPlan(const Plan& plan, Part part, std::shared_ptr<KernelSet> kernels,
                     std::span<const Memory* const> memories, LaunchPlace place)
    : kernels_(std::move(kernels)),
      first_call_(plan.calls.data()),
      work_(memories.size()),
      devices_(plan.devices),
      part_(part),
      checked_(plan.settings.checks_numerics),
      capturable_(!plan.settings.checks_numerics && memories[0]->device &&
                  backend_of(*memories[0]->device).captures_graphs()),
      home_(memories[0]->device),
      place_(place) {
  int phase = -1;
  for (size_t s = 0; s < plan.calls.size();) {
    const KernelCall& call = plan.calls[s];
    if (call.place.per_replica != (part == Part::per_replica)) {
      ++s;
      continue;
    }
    for (; phase < call.place.phase; ++phase) phase_begin_.push_back(launches_.size());
    const compile::PreparedLaunch& prepared = kernels_->launch(plan.calls, s);
    add(std::span(plan.calls).subspan(s, prepared.calls), prepared.kernel.get());
    s += prepared.calls;
  }
  for (; phase < plan.phases; ++phase) phase_begin_.push_back(launches_.size());
  bound_.resize(patches_.size());
  rebase(memories);
}

// Adds the launch that computes these calls.
void BoundPlan::add(std::span<const KernelCall> calls, const Kernel* kernel) {
  const KernelCall& first = calls[0];
  Cost cost;
  int64_t half_flops = 0;
  for (const KernelCall& call : calls) {
    cost.flops += call.cost.flops;
    cost.bytes += call.cost.bytes;
    if (is_floating(call.dtype()) && size_of(call.dtype()) == 2) half_flops += call.cost.flops;
  }
  if (!first.copies)
    work_[static_cast<size_t>(first.place.device)] +=
        {.kernels = 1, .flops = cost.flops, .half_flops = half_flops};
  if (!first.copies && !kernel) return;  // on a device that computes nothing
  // The arena was laid out for the kernels that planning prepared; these may have been prepared later.
  require(
      !kernel || kernel->workspace_bytes() <= first.workspace_bytes, ErrorCode::failed_precondition,
      first.where, first.op->name,
      ": a setting of the process that kernels go by, such as config::enable_op_determinism(), was changed "
      "while this function was compiled: call it before");
  if (kernel) capturable_ = capturable_ && !kernel->reads_values();
  if (!devices_.empty()) {
    if (segments_.empty() || segments_.back().device != first.place.device ||
        segments_.back().copies != first.copies)
      segments_.push_back({launches_.size(), launches_.size(), first.place.device,
                           devices_[static_cast<size_t>(first.place.device)]->threads(), first.copies});
    ++segments_.back().end;
  }
  launches_.push_back({.kernel = kernel,
                       .inputs = pointers_.size(),
                       .outputs = pointers_.size() + first.inputs.size(),
                       .workspace_offset = first.workspace_bytes > 0 ? first.workspace_offset : -1,
                       .workspace = nullptr,
                       .name = observe::intern(launch_name(calls)),
                       .flops = cost.flops,
                       .bytes = cost.bytes,
                       .call = &first,
                       .calls = calls.size()});
  for (const KernelCall& call : calls)
    for (const auto* operands : {&call.inputs, &call.outputs})
      for (const Operand& operand : *operands) {
        (changes_between_runs(operand.space) ? patches_ : fixed_).push_back({pointers_.size(), operand});
        pointers_.push_back(nullptr);
      }
}

void BoundPlan::rebase(std::span<const Memory* const> memories) {
  for (Launch& launch : launches_) {
    const Memory& memory = *memories[static_cast<size_t>(launch.call->place.device)];
    char* arena = part_ == Part::per_replica ? memory.replica_arena : memory.device_arena;
    launch.workspace = launch.workspace_offset >= 0 ? arena + launch.workspace_offset : nullptr;
  }
  for (const Patch& patch : fixed_)
    pointers_[patch.pointer] = memories[static_cast<size_t>(patch.operand.device)]->at(patch.operand);
}

void BoundPlan::bind(std::span<const Memory* const> memories) {
  for (size_t i = 0; i < patches_.size(); ++i) {
    const Patch& patch = patches_[i];
    void* const pointer = memories[static_cast<size_t>(patch.operand.device)]->at(patch.operand);
    if (pointer == bound_[i]) continue;  // launches that a replayed graph has queued may still read it
    bound_[i] = pointers_[patch.pointer] = pointer;
  }
}

std::pair<size_t, size_t> BoundPlan::launches_of(int phase) const {
  return {phase_begin_[static_cast<size_t>(phase)], phase_begin_[static_cast<size_t>(phase) + 1]};
}

size_t BoundPlan::launches_until(int calls) const {
  const KernelCall* const end = first_call_ + calls;
  return static_cast<size_t>(std::partition_point(launches_.begin(), launches_.end(),
                                                  [&](const Launch& l) { return l.call < end; }) -
                             launches_.begin());
}

void BoundPlan::run(int phase, Stream& stream, const PhaseSync& sync) const {
  auto [at, end] = launches_of(phase);
  for (const PhaseSync::Wait& wait : sync.waits)
    for (const Event* event : wait.events) event->wait(stream);
  for (const PhaseSync::Mark& mark : sync.marks) {
    const size_t stop = std::clamp(mark.launches, at, end);
    run(at, stop, stream);
    at = stop;
    mark.mark->reach(stream);
  }
  run(at, end, stream);
}

void BoundPlan::run(size_t begin, size_t end, Stream& stream) const {
  if (begin == end) return;
  stream.device().bind_thread();
  launch_place() = place_;
  for (size_t i = begin; i < end; ++i) launch(launches_[i], place_, stream);
}

void BoundPlan::run_inside(int phase, Stream& stream) const {
  const LaunchPlace place = launch_place();
  const auto [begin, end] = launches_of(phase);
  for (size_t i = begin; i < end; ++i) launch(launches_[i], place, stream);
}

void BoundPlan::run(const Segment& segment) const {
  const LaunchPlace place{segment.device, place_.replica};
  launch_place() = place;
  DeviceBackend& device = backend_of(*devices_[static_cast<size_t>(segment.device)]);
  device.bind_thread();
  Stream& stream = device.compute_stream();
  for (size_t i = segment.begin; i < segment.end; ++i)
    segment.copies ? copy(launches_[i]) : launch(launches_[i], place, stream);
}

void BoundPlan::copy(const Launch& l) const {
  const auto device = [&](const Operand& operand) -> Device& {
    return *devices_[static_cast<size_t>(operand.device)];
  };
  const observe::Span span(
      l.name, "copy", {.device = l.call->outputs[0].device, .replica = place_.replica, .bytes = l.bytes});
  copy_across(device(l.call->inputs[0]), pointers_[l.inputs], device(l.call->outputs[0]),
              pointers_[l.outputs], l.call->output_layouts[0].spec.bytes());
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

}  // namespace

// Running side by side pays where a launch ends before it has filled the device. Phases of more than a few
// milliseconds consist of launches that fill it: side by side they would take each other's cache.
bool BoundPlan::is_long(size_t begin, size_t end) const {
  constexpr int64_t kLongFlops = 1'000'000'000'000, kLongBytes = 8'000'000'000;
  int64_t flops = 0, bytes = 0;
  for (size_t i = begin; i < end; ++i) flops += launches_[i].flops, bytes += launches_[i].bytes;
  return flops >= kLongFlops || bytes >= kLongBytes;
}

// What the launch reads and writes.
LaunchOrder::Launch BoundPlan::uses_of(const Launch& l) const {
  LaunchOrder::Launch uses{.pure = l.call->op->pure};
  for (size_t s = 0, at = l.inputs; s < l.calls; ++s) {
    for (const OperandLayout& layout : l.call[s].input_layouts)
      uses.reads.push_back(range_of(layout, pointers_[at++]));
    for (const OperandLayout& layout : l.call[s].output_layouts)
      uses.writes.push_back(range_of(layout, pointers_[at++]));
  }
  if (l.workspace) {
    const auto* at = static_cast<const char*>(l.workspace);
    uses.writes.push_back({at, at + l.call->workspace_bytes});
  }
  return uses;
}

std::vector<CapturedLaunch> BoundPlan::captured_launches(int phase, const PhaseSync& sync,
                                                         size_t branches) const {
  const auto [begin, end] = launches_of(phase);
  LaunchOrder order(is_long(begin, end) ? 1 : branches);
  std::vector<CapturedLaunch> all;
  const auto add = [&](LaunchOrder::Launch uses, std::function<void(Stream&)> launch) {
    all.push_back({.launch = std::move(launch), .after = order.add(std::move(uses))});
  };
  for (const PhaseSync::Wait& wait : sync.waits)
    add({.writes = wait.memory, .crosses = true}, [events = wait.events](Stream& stream) {
      for (const Event* event : events) event->wait(stream);
    });
  auto mark = sync.marks.begin();
  const auto add_marks = [&](size_t launches) {
    for (; mark != sync.marks.end() && mark->launches <= launches; ++mark)
      add({.crosses = true, .last = true}, [mark = mark->mark](Stream& stream) { mark->reach(stream); });
  };
  for (size_t i = begin; i < end; ++i) {
    add_marks(i);
    const Launch& l = launches_[i];
    add(uses_of(l), [this, &l](Stream& stream) {
      launch_place() = place_;
      this->launch(l, place_, stream);
    });
  }
  add_marks(std::numeric_limits<size_t>::max());
  return all;
}

const Device& BoundPlan::device_of(const Launch& l) const {
  if (!devices_.empty()) return *devices_[static_cast<size_t>(l.call->place.device)];
  return home_ ? *home_ : device_by_name("/CPU:0");
}

void BoundPlan::launch(const Launch& l, LaunchPlace place, Stream& stream) const {
  const observe::EventOptions about{
      .device = place.device, .replica = place.replica, .flops = l.flops, .bytes = l.bytes};
  const auto enqueue = [&] {
    l.kernel->launch({pointers_.data() + l.inputs, pointers_.data() + l.outputs, l.workspace, stream});
  };
  try {
    if (observe::tracing()) [[unlikely]] {
      const int64_t start = monotonic_ns();
      observe::record_span(l.name, "kernel", start, start + stream.timed(enqueue), about);
    } else {
      enqueue();
    }
    if (checked_) [[unlikely]] {
      stream.synchronize();  // the kernel's own time is no part of the check's
      const int64_t start = monotonic_ns();
      check_numerics(device_of(l), l.call->op->name, l.call->input_layouts, l.call->output_layouts,
                     pointers_.data() + l.inputs, l.call->where);
      if (auto* clock = observe::current_replica())
        clock->count(observe::Counter::checking_ns, monotonic_ns() - start);
    }
  } catch (Error& error) {
    error.note(detail::concat("in ", l.name.c_str(), ", emitted at ", l.call->where.file_name(), ":",
                              l.call->where.line()));
    throw;
  }
}

}  // namespace lockstep::execute
