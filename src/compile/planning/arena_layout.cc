#include "compile/planning/arena_layout.h"

#include <algorithm>

#include "compile/planning/memory_plan.h"

namespace lockstep::compile {
namespace {

bool in_arena(const Operand& o) { return o.space == Space::device_arena || o.space == Space::replica_arena; }

template <class F>
void for_each_operand(Plan& plan, const F& f) {
  for (KernelCall& call : plan.calls) {
    for (Operand& o : call.inputs) f(o);
    for (Operand& o : call.outputs) f(o);
  }
  for (Collective& c : plan.collectives) {
    f(c.input);
    f(c.result);
    if (c.condition) f(*c.condition);
  }
}

}  // namespace

Operand ArenaLayout::new_buffer(size_t bytes, NodePlace place, int position) {
  buffers_.push_back({.bytes = bytes,
                      .first = position,
                      .last = position,
                      .per_replica = place.per_replica,
                      .device = place.device});
  return {place.per_replica ? Space::replica_arena : Space::device_arena,
          static_cast<int>(buffers_.size()) - 1, 0, place.device};
}

void ArenaLayout::written_from(const Operand& value, int position) {
  buffers_[static_cast<size_t>(value.index)].first = position;
}

void ArenaLayout::used_at(const Operand& value, int position) {
  if (!in_arena(value)) return;
  Buffer& buffer = buffers_[static_cast<size_t>(value.index)];
  buffer.last = std::max(buffer.last, position);
}

int ArenaLayout::resolve(int buffer) const {
  while (buffers_[static_cast<size_t>(buffer)].same_as >= 0)
    buffer = buffers_[static_cast<size_t>(buffer)].same_as;
  return buffer;
}

void ArenaLayout::may_overwrite(int position, const KernelCall& call, const Operand& input,
                                const Operand& output) {
  if (!in_arena(input) || !in_arena(output) || input.space != output.space || input.offset != 0) return;
  // The same memory read by another input of this call through other strides must stay.
  const auto shared = std::count_if(call.inputs.begin(), call.inputs.end(), [&](const Operand& o) {
    return in_arena(o) && resolve(o.index) == resolve(input.index);
  });
  Buffer& source = buffers_[static_cast<size_t>(resolve(input.index))];
  Buffer& target = buffers_[static_cast<size_t>(output.index)];
  if (shared != 1 || target.same_as >= 0 || source.last != position || source.bytes != target.bytes) return;
  if (&source == &target) return;
  target.same_as = resolve(input.index);
  source.last = std::max(source.last, target.last);
}

void ArenaLayout::run_together(int begin, int end) {
  for (Buffer& buffer : buffers_) {
    if (buffer.first > begin && buffer.first < end) buffer.first = begin;
    if (buffer.last >= begin && buffer.last < end) buffer.last = end - 1;
  }
}

void ArenaLayout::place(Plan& plan) {
  const size_t devices = std::max<size_t>(1, plan.devices.size());
  plan.device_arenas.resize(devices);
  for (size_t d = 0; d < devices; ++d) plan.device_arenas[d] = place(plan, false, static_cast<int>(d));
  plan.replica_arena = place(plan, true, 0);
}

// Places the buffers of one arena.
ArenaSize ArenaLayout::place(Plan& plan, bool per_replica, int device) {
  const auto is_here = [&](bool of_replica, int of_device) {
    return of_replica == per_replica && of_device == device;
  };
  std::vector<Lifetime> lifetimes;
  std::vector<size_t> buffers;  // whose the first lifetimes are; the others are workspaces of calls
  for (size_t b = 0; b < buffers_.size(); ++b)
    if (is_here(buffers_[b].per_replica, buffers_[b].device) && buffers_[b].same_as < 0) {
      lifetimes.push_back({buffers_[b].bytes, buffers_[b].first, buffers_[b].last});
      buffers.push_back(b);
    }
  std::vector<KernelCall*> with_workspace;
  for (size_t s = 0; s < plan.calls.size(); ++s) {
    KernelCall& call = plan.calls[s];
    if (!is_here(call.place.per_replica, call.place.device) || call.workspace_bytes == 0) continue;
    lifetimes.push_back({call.workspace_bytes, static_cast<int>(s), static_cast<int>(s)});
    with_workspace.push_back(&call);
  }
  const MemoryPlan placed = plan_memory(lifetimes);
  ArenaSize arena{placed.size, placed.peak, 0};
  for (const Lifetime& lifetime : lifetimes) arena.unplanned += lifetime.bytes;
  std::vector<int64_t> offsets(buffers_.size(), 0);
  for (size_t k = 0; k < buffers.size(); ++k) offsets[buffers[k]] = static_cast<int64_t>(placed.offsets[k]);
  for (size_t k = 0; k < with_workspace.size(); ++k)
    with_workspace[k]->workspace_offset = static_cast<int64_t>(placed.offsets[buffers.size() + k]);
  for_each_operand(plan, [&](Operand& operand) {
    if (!in_arena(operand) || operand.index < 0) return;
    if (!is_here(operand.space == Space::replica_arena, operand.device)) return;
    operand.offset += offsets[static_cast<size_t>(resolve(operand.index))];
    operand.index = -1;
  });
  return arena;
}

}  // namespace lockstep::compile
