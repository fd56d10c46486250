#include "execute/replicated_program.h"

#include <algorithm>

#include "comm/workers.h"
#include "device/memory_ledger.h"
#include "execute/same_program.h"
#include "execute/step_schedule.h"
#include "lockstep/device/config.h"
#include "observe/activity.h"

namespace lockstep::execute {

using compile::Spread;
namespace {

int64_t batch_of(const SpecList& signature, const std::vector<bool>& split, const std::string& name,
                 std::source_location where) {
  int64_t batch = -1;
  for (size_t i = 0; i < signature.size(); ++i) {
    if (!split[i]) continue;
    const int64_t rows = signature[i].shape[0];
    require(batch < 0 || rows == batch, ErrorCode::shape_mismatch, where, "function \"", name,
            "\": argument ", i, " is ", signature[i], " but another has ", batch,
            " examples; all arguments with a first dimension are cut along it");
    batch = rows;
  }
  return batch;
}

ReplicaLayout layout_of(const ReplicaOptions& replicas, const std::vector<int64_t>& rows,
                        const std::vector<bool>& split, const std::string& name, std::source_location where) {
  ReplicaLayout layout;
  layout.devices = replicas.devices;
  layout.reproducible = replicas.reproducible;
  layout.central_updates = replicas.central_updates;
  layout.cross_device_ops = replicas.cross_device_ops;
  layout.bucket_bytes = replicas.bucket_bytes;
  layout.bf16_gradients = replicas.bf16_gradients;
  layout.split_parameters = split;
  if (replicas.workers) {
    layout.workers = replicas.workers.get();
    layout.worker = replicas.workers->rank();
    layout.num_workers = replicas.workers->size();
  }
  const int devices = static_cast<int>(replicas.devices.size());
  layout.replicas = layout.num_workers * devices;
  if (replicas.reproducible) {
    require(replicas.virtual_replicas >= layout.replicas, ErrorCode::invalid_argument, where, "function \"",
            name, "\": ", replicas.virtual_replicas, " virtual replicas are fewer than its ", layout.replicas,
            " devices");
    layout.replicas = replicas.virtual_replicas;
  }
  require(replicas.weights.empty() || !replicas.reproducible, ErrorCode::invalid_argument, where,
          "function \"", name,
          "\": slices cannot be weighted where results must not depend on the devices (reproducible)");
  require(replicas.weights.empty() || !replicas.workers, ErrorCode::unsupported, where, "function \"", name,
          "\": slices cannot be weighted where several workers train together");
  layout.weighted = !replicas.weights.empty();
  layout.slices = replicas.weights.empty()
                      ? slice_rows(rows, replicas_of_workers(layout.replicas, layout.num_workers, devices))
                      : slice_batch(rows[0], replicas.weights);
  require(layout.batch() > 0, ErrorCode::invalid_argument, where, "function \"", name,
          "\" runs as replicas: it needs an argument with at least one example in its first dimension");
  return layout;
}

ReplicaTrace trace_of(const ReplicaLayout& layout) {
  ReplicaTrace replica{.global_batch = layout.batch(), .reproducible = layout.reproducible};
  for (const Slice& slice : layout.slices) replica.begins.push_back(slice.begin);
  return replica;
}

SpecList sliced(SpecList specs, const std::vector<bool>& split, int64_t size) {
  for (size_t i = 0; i < specs.size(); ++i)
    if (split[i]) specs[i].shape[0] = size;
  return specs;
}

// The first slice that has examples: the same in all processes.
const Slice& first_with_examples(const ReplicaLayout& layout) {
  return *std::find_if(layout.slices.begin(), layout.slices.end(), [](const Slice& s) { return s.size > 0; });
}

// Whether a program runs as one replica, here and elsewhere: what it sums is its own, and all phases are one.
// Variables that keep a part in every replica are not known to programs without replicas.
bool is_alone(const ReplicaLayout& layout, const Graph& graph) {
  return layout.replicas == 1 && !layout.workers &&
         std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
           return node.op == &kVariable && node.attrs.as<VariableAttrs>().variable.per_replica();
         });
}

// As one that is not replicated: with all of the batch its first example is the batch's.
Plan plan_alone(Graph graph, PlanOptions options) {
  for (Node& node : graph.nodes)
    if (node.op == &kExampleOffset) {
      node.op = &kConstant;
      node.attrs = ConstantAttrs{0};
    }
  options.split_parameters.clear();
  return make_plan(std::move(graph), options);
}

}  // namespace

std::vector<int64_t> rows_of_step(const SpecList& signature, const std::vector<bool>& split,
                                  const ReplicaOptions& replicas, std::span<const int64_t> told,
                                  const std::string& name, std::source_location where) {
  const int64_t own = batch_of(signature, split, name, where);
  require(own >= 0, ErrorCode::invalid_argument, where, "function \"", name,
          "\" runs as replicas: it needs an argument with a first dimension, which is cut for them");
  if (!replicas.workers) return {own};
  comm::Workers& workers = *replicas.workers;
  std::vector<int64_t> rows(told.begin(), told.end());
  if (rows.empty())
    for (const std::string& each : workers.gather("the examples of " + name, std::to_string(own), where))
      rows.push_back(std::stoll(each));
  require(
      rows.size() == static_cast<size_t>(workers.size()) && rows[static_cast<size_t>(workers.rank())] == own,
      ErrorCode::invalid_argument, where, "function \"", name, "\": worker ", workers.rank(), " has ", own,
      " examples, not those that it was said to have");
  return rows;
}

ReplicaSlices first_slice(const SpecList& signature, const std::vector<bool>& split,
                          const ReplicaOptions& replicas, const std::vector<int64_t>& rows,
                          const std::string& name, std::source_location where) {
  const ReplicaLayout layout = layout_of(replicas, rows, split, name, where);
  ReplicaTrace replica = trace_of(layout);
  replica.local_batch = first_with_examples(layout).size;
  return {sliced(signature, split, replica.local_batch), std::move(replica)};
}

void add_statistics(ProgramStatistics& statistics, const Plan& plan, Part part, int64_t times) {
  for (const KernelCall& call : plan.calls) {
    if (call.place.per_replica != (part == Part::per_replica)) continue;
    statistics.flops += call.cost.flops * times;
    statistics.bytes_accessed += call.cost.bytes * times;
    const bool with_the_last =
        call.group >= 0 && &call != plan.calls.data() && call.group == (&call)[-1].group;
    statistics.launches += with_the_last ? 0 : times;
  }
}

ReplicatedProgram compile_replicated(const SpecList& signature, const std::vector<bool>& split,
                                     const ReplicaOptions& replicas, const std::vector<int64_t>& rows,
                                     const ReplicaTracer& trace, const ReplicatedProgramOptions& settings,
                                     std::source_location where) {
  const observe::ActivityScope activity("the compilation of a step");
  require(!replicas.reproducible || config::op_determinism_enabled(), ErrorCode::failed_precondition, where,
          "reproducible results need kernels that add up in one order, but ",
          "config::enable_op_determinism(false) was called: leave out one of the two");
  ReplicaLayout layout = layout_of(replicas, rows, split, settings.name, where);
  PlanOptions options = plan_options(layout, 0);
  options.stacks_outputs = settings.stacks_outputs;
  ReplicaTrace replica = trace_of(layout);
  ReplicatedProgram program;
  const MemoryUseScope use("function " + settings.name);
  std::vector<Plan> plans;
  std::vector<int64_t> sizes;
  bool alone = false;
  const auto add_plan = [&](int64_t size) {
    if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) return;
    replica.local_batch = size;
    Graph graph = trace(sliced(signature, split, size), replica);
    std::map<int64_t, NamedSum> names;
    if (plans.empty() && layout.workers) {
      require_same_program(*layout.workers, settings.name, graph, where);
      names = names_of_sums(graph);
    }
    if (!plans.empty()) graph = compile::feeding_part(std::move(graph), plans[0], split);
    sizes.push_back(size);
    options.local_batch = size;
    if (plans.empty()) {
      const compile::Placement placement = compile::place_nodes(graph, split);
      compile::check_updates(graph, placement, compile::is_replicated(split));
      program.spreads = compile::spreads_of_outputs(graph, placement, size, settings.stacks_outputs);
      alone = is_alone(layout, graph) && !schedules_are_recorded();
      // Its own value is all there is.
      if (alone) std::replace(program.spreads.begin(), program.spreads.end(), Spread::blocks, Spread::same);
    }
    plans.push_back(alone ? plan_alone(std::move(graph), options) : make_plan(std::move(graph), options));
    for (compile::Collective& sum : plans.back().collectives) {
      sum.name = names[sum.sequence].name;
      sum.is_gradient = names[sum.sequence].is_gradient;
    }
    // Arguments that nothing reads are missing from the graph, but the caller still passes them.
    plans.back().parameters.resize(signature.size());
  };
  add_plan(first_with_examples(layout).size);
  const ReplicaRange own = layout.own_replicas();
  for (int r = own.first; r < own.last; ++r) {
    const Slice& slice = program.slices.emplace_back(layout.slices[static_cast<size_t>(r)]);
    if (slice.size == 0) continue;
    add_plan(slice.size);
    const auto plan = std::find(sizes.begin(), sizes.end(), slice.size) - sizes.begin();
    add_statistics(program.statistics, plans[static_cast<size_t>(plan)], Part::per_replica, 1);
  }
  add_statistics(program.statistics, plans[0], Part::per_device, static_cast<int64_t>(layout.devices.size()));
  record_schedule(plans[0], settings.name, sizes[0]);
  if (alone) {
    layout.whole_batch = layout.batch();
    layout.slices.clear();
  }
  program.executable =
      std::make_unique<StepExecutable>(std::move(plans), std::move(sizes), std::move(layout));
  return program;
}

}  // namespace lockstep::execute
