#include "execute/step.h"

#include "base/parallel.h"
#include "graph/variable_impl.h"

namespace lockstep::execute {

using observe::Category;

namespace {

// Devices on one GPU. Steps: one of ResNet-50 on two of them takes 36.8 ms where each is given after the
// last, and 37.4 where the next one is queued already. Branches: 36.8 ms with one or two, 38 with four, 41
// with eight and 63 with as many as there could be.
constexpr DeviceRunOptions kOnSharedGpu{.runs_ahead = 1, .branches = 2};

bool has_parts(const Variable& variable, const ReplicaLayout& layout) {
  return layout.replicated() && variable.impl()->options.per_replica;
}

// The first plan's variables that are there as a whole, or as a part for each replica.
std::vector<size_t> variables_with(bool parts, const Plan& plan, const ReplicaLayout& layout) {
  std::vector<size_t> found;
  for (size_t v = 0; v < plan.variables.size(); ++v)
    if (has_parts(plan.variables[v], layout) == parts) found.push_back(v);
  return found;
}

std::vector<Variable> select(const std::vector<Variable>& variables, const std::vector<size_t>& numbers) {
  std::vector<Variable> selected;
  for (const size_t v : numbers) selected.push_back(variables[v]);
  return selected;
}

VariableMirrors make_mirrors(const Plan& plan, const ReplicaLayout& layout,
                             const std::vector<size_t>& mirrored) {
  std::vector<bool> updated;
  for (const size_t v : mirrored) updated.push_back(plan.variable_updated[v]);
  std::vector<std::vector<VariableUse>> uses;
  for (size_t d = 0; d < layout.devices.size(); ++d)
    uses.emplace_back(mirrored.size(),
                      layout.central_updates && d > 0 ? VariableUse::reads : VariableUse::updates);
  return {layout.devices, select(plan.variables, mirrored), std::move(updated), std::move(uses)};
}

}  // namespace

StepExecutable::StepExecutable(std::vector<Plan> plans, std::vector<int64_t> slice_sizes,
                               ReplicaLayout layout)
    : plans_(std::move(plans), std::move(slice_sizes)),
      layout_(std::move(layout)),
      memory_use_(current_memory_use()),
      staging_(layout_.devices.size() > 1 && stream(0).asynchronous() ? Staging::before_all
                                                                      : Staging::by_each_device),
      mirrored_(variables_with(false, plans_.first(), layout_)),
      per_replica_(variables_with(true, plans_.first(), layout_)),
      mirrors_(make_mirrors(plans_.first(), layout_, mirrored_)),
      replica_variables_(select(plans_.first().variables, per_replica_), layout_),
      outputs_(plans_.first().outputs, layout_) {
  const DeviceRunOptions options = layout_.shares_gpu() ? kOnSharedGpu : DeviceRunOptions();
  for (size_t d = 0; d < layout_.devices.size(); ++d)
    runs_.push_back(std::make_unique<DeviceRun>(static_cast<int>(d), plans_, layout_, observer_, options));
  // It copies what lies in the host's memory, which is where an asynchronous device does not work.
  if (layout_.workers && !stream(0).asynchronous() && backend_of(*layout_.devices[0]).has_memory())
    rollback_.emplace(plans_, mirrored_, per_replica_);
  all_reduce_ = make_all_reduce(ReplicaGroup(layout_), collect_sums(), observer_);
  for (const auto& run : runs_) run->sum_with(*all_reduce_);
  threads_.emplace(
      layout_.devices, [this](int d) { run_device(d); }, [this] { all_reduce_->abort(); }, observer_);
}

StepExecutable::~StepExecutable() {
  for (const auto& run : runs_) run->release_graphs();
}

std::vector<ReplicaSum> StepExecutable::collect_sums() const {
  std::vector<ReplicaSum> sums;
  if (!layout_.replicated()) return sums;
  for (const compile::Collective& collective : plans_.first().collectives) {
    ReplicaSum& sum = sums.emplace_back();
    sum.phase = collective.phase;
    sum.dtype = collective.spec.dtype;
    sum.size = collective.spec.shape.size();
    sum.inputs.resize(static_cast<size_t>(layout_.replicas));
    sum.order = collective.ready;
    sum.name = collective.name;
    sum.is_gradient = collective.is_gradient;
    for (const auto& run : runs_) run->add_to(sum, collective);
  }
  return sums;
}

Stream& StepExecutable::stream(size_t d) const { return backend_of(*layout_.devices[d]).compute_stream(); }

void StepExecutable::bind(std::span<Tensor> outputs) {
  const auto scope = observer_.time_of_all(Category::host);
  outputs_.take(outputs);
  mirrors_.renew();
  replica_variables_.spread();
  for (size_t d = 0; d < runs_.size(); ++d) {
    runs_[d]->bind_outputs(outputs_);
    for (size_t i = 0; i < mirrored_.size(); ++i) runs_[d]->bind_variable(mirrored_[i], mirrors_.at(d, i));
    for (size_t i = 0; i < per_replica_.size(); ++i)
      runs_[d]->bind_replica_variable(per_replica_[i], replica_variables_, i);
  }
}

void StepExecutable::run(std::span<const Tensor> inputs, std::span<Tensor> outputs,
                         observe::StepClock* clock) {
  const MemoryUseScope use(memory_use_);
  observer_.listen(clock);
  bind(outputs);
  inputs_ = inputs;
  if (rollback_) rollback_->save();
  all_reduce_->begin_step();
  // Replicas write their parts of results that are the first device's: behind whoever still reads the last
  // ones there, and in front of whoever reads these.
  for (size_t d = 1; d < runs_.size(); ++d) stream(d).wait_for(stream(0));
  if (staging_ == Staging::before_all)
    for (const auto& run : runs_) run->stage_inputs(inputs);
  try {
    threads_->run();
    all_reduce_->end_step();
  } catch (...) {
    // A device that is alone has nobody to let go, but other processes may wait for it.
    all_reduce_->abort();
    if (rollback_) rollback_->roll_back();
    mirrors_.invalidate();
    throw;
  }
  for (size_t d = 1; d < runs_.size(); ++d) stream(0).wait_for(stream(d));
  mirrors_.commit();
}

void StepExecutable::run_device(int d) {
  const TeamScope team(layout_.devices[static_cast<size_t>(d)]->threads());
  const MemoryUseScope use(memory_use_);
  DeviceRun& run = *runs_[static_cast<size_t>(d)];
  run.wait_for_turn();
  if (staging_ == Staging::by_each_device) run.stage_inputs(inputs_);
  run.run();
}

bool StepExecutable::run_rows(const FunctionCore::RowRuns& runs, std::span<Tensor> outputs,
                              observe::StepClock* clock) {
  if (runs_.size() > 1 || !runs_[0]->takes_rows(runs)) return false;
  observer_.listen(clock);
  bind(outputs);
  if (!runs_[0]->run_rows(runs)) return false;
  mirrors_.commit();
  return true;
}

ArenaSize StepExecutable::arenas() const {
  ArenaSize total;
  for (const auto& run : runs_)
    for (const ArenaSize& arena : run->arenas()) add(total, arena);
  return total;
}

}  // namespace lockstep::execute
