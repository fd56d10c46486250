#include "compile/planning/plan.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/environment.h"
#include "compile/passes/buffer_assignment.h"
#include "compile/passes/fusion.h"
#include "compile/passes/passes.h"
#include "compile/passes/transfers.h"
#include "compile/passes/verify.h"
#include "compile/planning/kernel_pool.h"
#include "compile/planning/launch_groups.h"
#include "compile/planning/lowering.h"
#include "compile/planning/schedule.h"

namespace lockstep::compile {

bool same_kernels(const PlanOptions& a, const PlanOptions& b) {
  return a.kind == b.kind && (a.device == b.device || a.kind == DeviceKind::cpu) && a.devices == b.devices &&
         a.device_threads == b.device_threads && a.replica_threads == b.replica_threads &&
         a.reproducible == b.reproducible;
}

DeviceKind PlanOptions::kind_at(NodePlace place) const {
  return split_over_devices() ? device_at(place)->kind() : kind;
}

Device* PlanOptions::device_at(NodePlace place) const {
  return split_over_devices() ? devices[static_cast<size_t>(place.device)] : device;
}

int PlanOptions::threads_for(const KernelCall& call) const {
  if (split_over_devices()) return device_at(call.place)->threads();
  if (call.place.per_replica) return replica_threads;
  if (!reproducible || kind == DeviceKind::null) return device_threads;
  return find_kernel(kind, *call.op, call.where).thread_invariant ? device_threads : 1;
}

Graph feeding_part(Graph graph, const Plan& whole, const std::vector<bool>& split_parameters) {
  const Placement placement = place_nodes(graph, split_parameters);
  std::erase_if(graph.updates, [](const VariableUpdate& update) { return !update.variable.per_replica(); });
  for (Value& output : graph.outputs)
    if (!placement.nodes[static_cast<size_t>(output.node)].per_replica) output = {};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != &kAllReduceSum) continue;
    const int64_t sequence = graph.nodes[i].attrs.as<CollectiveAttrs>().sequence;
    if (std::any_of(whole.collectives.begin(), whole.collectives.end(),
                    [&](const Collective& c) { return c.sequence == sequence; }))
      graph.roots.push_back({static_cast<int32_t>(i), 0});
  }
  return graph;
}

Plan make_plan(Graph graph, const PlanOptions& options) {
  const bool replicated = !options.split_parameters.empty();
  const PlanSettings settings;
  // With numerics checks on, ops stay unfused, so that an error can name the op.
  const bool checked = settings.checks_numerics;
  const auto pass = [&](std::string_view name, Graph result) {
    graph = std::move(result);
    verify_after(name, graph, options.kind);
  };
  graph = simplify(std::move(graph), replicated, !checked);
  if (!checked && !options.split_over_devices()) graph = apply_rewrites(std::move(graph), options.kind);
  if (!checked)
    pass("fuse_elementwise",
         fuse_elementwise(graph, place_nodes(graph, options.split_parameters, options.devices)));
  if (!checked && !options.split_over_devices())
    graph = apply_rewrites_behind_fusion(std::move(graph), options.kind);
  if (options.split_over_devices()) pass("insert_transfers", insert_transfers(graph));
  pass("separate_all_reduce_inputs", separate_all_reduce_inputs(graph));
  std::vector<OrderEdge> edges;
  pass("assign_result_buffers", assign_result_buffers(graph, options.split_parameters, edges));
  const Placement placement = place_nodes(graph, options.split_parameters, options.devices);
  std::vector<int> order = schedule(graph, placement, edges);
  std::vector<std::vector<int>> groups;
  if (!checked && !options.split_over_devices() && group_rule(options.kind) &&
      env::read_bool("LOCKSTEP_GROUP_LAUNCHES", true)) {
    groups = group_launches(graph, placement, edges, order);
    if (!groups.empty()) order = schedule(graph, placement, edges, groups);
  }
  Plan plan = lower(graph, placement, options, groups, order);
  plan.settings = settings;
  return plan;
}

std::string Plan::to_string() const {
  std::ostringstream out;
  const auto print = [&](const Operand& o) {
    static constexpr const char* kNames[] = {"device",         "replica",  "parameter",      "variable",
                                             "captured_input", "constant", "example_offset", "output"};
    out << ' ' << kNames[static_cast<int>(o.space)];
    if (o.index >= 0) out << o.index;
    out << '+' << o.offset;
  };
  for (const KernelCall& call : calls) {
    out << "phase " << call.place.phase << (call.place.per_replica ? " replica " : " device ")
        << call.op->name;
    if (!devices.empty()) out << " on " << *devices[static_cast<size_t>(call.place.device)];
    out << ':';
    for (const Operand& o : call.inputs) print(o);
    out << " ->";
    for (const Operand& o : call.outputs) print(o);
    for (const OperandLayout& layout : call.output_layouts) out << ' ' << layout.spec;
    if (call.group >= 0) out << ", in group " << call.group;
    out << '\n';
  }
  for (const Collective& c : collectives) {
    out << "sum before phase " << c.phase << " #" << c.sequence << ' ' << c.spec << ':';
    print(c.input);
    out << " ->";
    print(c.result);
    out << '\n';
  }
  for (const ArenaSize& arena : device_arenas)
    out << "device arena " << arena.bytes << " bytes (peak " << arena.peak << "), ";
  out << "replica arena " << replica_arena.bytes << " bytes (peak " << replica_arena.peak << ")\n";
  return out.str();
}

}  // namespace lockstep::compile
