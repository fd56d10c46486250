#include "execute/replicated_program.h"

#include <algorithm>

#include "device/memory_ledger.h"

namespace lockstep::execute {
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
  require(batch > 0, ErrorCode::invalid_argument, where, "function \"", name,
          "\" runs as replicas: it needs an argument with at least one example in its first dimension");
  return batch;
}

ReplicaLayout layout_of(const ReplicaOptions& replicas, int64_t batch, const std::vector<bool>& split,
                        const std::string& name, std::source_location where) {
  ReplicaLayout layout;
  layout.devices = replicas.devices;
  layout.reproducible = replicas.reproducible;
  layout.central_updates = replicas.central_updates;
  layout.cross_device_ops = replicas.cross_device_ops;
  layout.bucket_bytes = replicas.bucket_bytes;
  layout.split_parameters = split;
  layout.replicas = static_cast<int>(replicas.devices.size());
  if (replicas.reproducible) {
    require(replicas.virtual_replicas >= layout.replicas, ErrorCode::invalid_argument, where, "function \"",
            name, "\": ", replicas.virtual_replicas, " virtual replicas are fewer than its ", layout.replicas,
            " devices");
    layout.replicas = replicas.virtual_replicas;
  }
  require(replicas.weights.empty() || !replicas.reproducible, ErrorCode::invalid_argument, where,
          "function \"", name,
          "\": slices cannot be weighted where results must not depend on the devices (reproducible)");
  layout.slices =
      replicas.weights.empty() ? slice_batch(batch, layout.replicas) : slice_batch(batch, replicas.weights);
  return layout;
}

ReplicaTrace trace_of(const ReplicaLayout& layout, int64_t batch) {
  ReplicaTrace replica{.global_batch = batch, .reproducible = layout.reproducible};
  for (const Slice& slice : layout.slices) replica.begins.push_back(slice.begin);
  return replica;
}

SpecList sliced(SpecList specs, const std::vector<bool>& split, int64_t size) {
  for (size_t i = 0; i < specs.size(); ++i)
    if (split[i]) specs[i].shape[0] = size;
  return specs;
}

}  // namespace

ReplicaSlices first_slice(const SpecList& signature, const std::vector<bool>& split,
                          const ReplicaOptions& replicas, const std::string& name,
                          std::source_location where) {
  const int64_t batch = batch_of(signature, split, name, where);
  const ReplicaLayout layout = layout_of(replicas, batch, split, name, where);
  ReplicaTrace replica = trace_of(layout, batch);
  const auto used =
      std::find_if(layout.slices.begin(), layout.slices.end(), [](const Slice& s) { return s.size > 0; });
  replica.local_batch = used->size;
  return {sliced(signature, split, used->size), std::move(replica)};
}

void add_statistics(ProgramStatistics& statistics, const Plan& plan, Part part, int64_t times) {
  for (const Step& step : plan.steps) {
    if (step.place.per_replica != (part == Part::per_replica)) continue;
    statistics.flops += step.cost.flops * times;
    statistics.bytes_accessed += step.cost.bytes * times;
    const bool with_the_last =
        step.group >= 0 && &step != plan.steps.data() && step.group == (&step)[-1].group;
    statistics.launches += with_the_last ? 0 : times;
  }
}

ReplicatedProgram compile_replicated(const SpecList& signature, const std::vector<bool>& split,
                                     const ReplicaOptions& replicas, const ReplicaTracer& trace,
                                     const ReplicatedProgramOptions& settings, std::source_location where) {
  const int64_t batch = batch_of(signature, split, settings.name, where);
  ReplicaLayout layout = layout_of(replicas, batch, split, settings.name, where);
  PlanOptions options = plan_options(layout, 0);
  options.stacks_outputs = settings.stacks_outputs;
  ReplicaTrace replica = trace_of(layout, batch);
  ReplicatedProgram program;
  const MemoryUseScope use("function " + settings.name);
  std::vector<Plan> plans;
  std::vector<int64_t> sizes;
  for (const Slice& slice : layout.slices) {
    if (slice.size == 0) continue;
    if (std::find(sizes.begin(), sizes.end(), slice.size) == sizes.end()) {
      replica.local_batch = slice.size;
      Graph graph = trace(sliced(signature, split, slice.size), replica);
      if (!plans.empty()) graph = compile::feeding_part(std::move(graph), plans[0], split);
      sizes.push_back(slice.size);
      options.local_batch = slice.size;
      plans.push_back(make_plan(std::move(graph), options));
      // Arguments that nothing reads are missing from the graph, but the caller still passes them.
      plans.back().parameters.resize(signature.size());
    }
    const auto plan = std::find(sizes.begin(), sizes.end(), slice.size) - sizes.begin();
    add_statistics(program.statistics, plans[static_cast<size_t>(plan)], Part::per_replica, 1);
  }
  add_statistics(program.statistics, plans[0], Part::per_device, static_cast<int64_t>(layout.devices.size()));
  program.slices = layout.slices;
  program.executable =
      std::make_unique<StepExecutable>(std::move(plans), std::move(sizes), std::move(layout));
  return program;
}

}  // namespace lockstep::execute
