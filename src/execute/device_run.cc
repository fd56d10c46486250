#include "execute/device_run.h"

#include <algorithm>

#include "base/parallel.h"

namespace lockstep::execute {

using observe::Category;

namespace {

constexpr int64_t kShortRunsPerMark = 8;
// A GPU's first launches load code and capture graphs, one for each of the two blocks that inputs alternate
// between.
constexpr int64_t kFirstLaunches = 4;

size_t row_bytes(const TensorSpec& spec) {
  return spec.shape[0] > 0 ? spec.bytes() / static_cast<size_t>(spec.shape[0]) : 0;
}

std::vector<StagedInput> staged_inputs(size_t count, Device& device) {
  std::vector<StagedInput> inputs;
  for (size_t i = 0; i < count; ++i) inputs.emplace_back(device);
  return inputs;
}

RunAheadOptions ahead_options(const DeviceRunOptions& options, bool short_runs) {
  return {.depth = options.runs_ahead, .runs_per_mark = short_runs ? kShortRunsPerMark : 1};
}

}  // namespace

// Sets of kernels for bound plans that may run at the same time, one per lane: plans of one lane run one
// after the other.
class DeviceRun::Lanes {
 public:
  Lanes(const StepPlans& plans, PlanOptions options)
      : plans_(plans), options_(std::move(options)), sets_(plans.size()) {}

  std::shared_ptr<KernelSet> kernels(size_t p, size_t lane) {
    auto& sets = sets_[p];
    while (sets.size() <= lane) sets.push_back(plans_[p].kernels->borrow(options_));
    return sets[lane];
  }

 private:
  const StepPlans& plans_;
  const PlanOptions options_;
  std::vector<std::vector<std::shared_ptr<KernelSet>>> sets_;  // by plan, by lane
};

DeviceRun::DeviceRun(int d, const StepPlans& plans, const ReplicaLayout& layout, const StepObserver& observer,
                     DeviceRunOptions options)
    : number_(d),
      device_(*layout.devices[static_cast<size_t>(d)]),
      backend_(backend_of(device_)),
      stream_(backend_.compute_stream()),
      step_plans_(plans),
      layout_(layout),
      observer_(observer),
      options_(options),
      held_(device_),
      host_inputs_(device_),
      inputs_(staged_inputs(plans.first().parameters.size(), device_)),
      whole_inputs_(inputs_.size()),
      replica_threads_(layout.reproducible ? 1 : device_.threads()) {
  ReplicaRange range;
  if (layout.replicated()) {
    range = layout.replicas_with_examples(d);
    if (layout.reproducible) at_once_ = std::max(1, std::min(device_.threads(), range.size()));
    for (int r = range.first; r < range.last; ++r) examples_ += layout.slices[static_cast<size_t>(r)].size;
    slots_ = layout.weighted ? examples_ : layout.slices[0].size * layout.replicas_of(d).size();
    first_row_ = layout.own_rows().begin;
  } else {
    examples_ = slots_ = layout.whole_batch;
  }
  Lanes lanes(plans, plan_options(layout, d));
  bind_shared(0, lanes);
  for (int r = range.first; r < range.last; ++r)
    if (const size_t p = plans.of(layout.slices[static_cast<size_t>(r)]); !shared_of(p))
      bind_shared(p, lanes);
  for (int r = range.first; r < range.last; ++r) bind_replica(r, lanes);
  for (const SharedPart& shared : shared_) work_ += shared.bound->work();
  for (const Replica& replica : replicas_) work_ += replica.bound->work();
  ahead_.emplace(stream_, ahead_options(options, shared_[0].replay.fused()));
}

// --- construction ------------------------------------------------------------------------------------------

void DeviceRun::bind_shared(size_t p, Lanes& lanes) {
  const Plan& plan = step_plans_[p];
  SharedPart made{
      .slice_plan = p, .memory = Memory(plan, device_), .arena = nullptr, .bound = nullptr, .replay = {}};
  // The kernel of a fused plan has memory of its own: the arena is made when the plan's calls are launched
  // one by one for the first time.
  alignas(64) static char nowhere[64];
  made.memory.device_arena = nowhere;
  for (size_t i = 0; i < plan.captured_inputs.size(); ++i)
    made.memory.captured_inputs[i] = held_.hold(plan.captured_inputs[i]);
  for (size_t i = 0; i < plan.constants.size(); ++i)
    made.memory.constants[i] = held_.hold(plan.constants[i].first, plan.constants[i].second);
  made.bound = std::make_unique<BoundPlan>(plan, Part::per_device, lanes.kernels(p, 0), made.memory,
                                           LaunchPlace{.device = number_, .replica = -1});
  made.replay.set_branches(options_.branches);
  if (!layout_.replicated() && made.bound->capturable()) made.replay.fuse(fuse_whole_step(plan, device_));
  shared_.push_back(std::move(made));
  if (!shared_.back().replay.fused()) return make_arena(shared_.back());
  shared_.back().replay.before_calls([this, index = shared_.size() - 1] { make_arena(shared_[index]); });
}

void DeviceRun::make_arena(SharedPart& made) {
  made.arena = std::make_unique<Storage>(device_, step_plans_[made.slice_plan].device_arenas[0].bytes,
                                         std::source_location::current());
  made.memory.device_arena = static_cast<char*>(made.arena->data());
  made.bound->rebase(made.memory);
}

void DeviceRun::bind_replica(int number, Lanes& lanes) {
  const std::source_location where = std::source_location::current();
  const Slice slice = layout_.slices[static_cast<size_t>(number)];
  const size_t p = step_plans_.of(slice);
  const Plan& own = step_plans_[p];
  Replica replica{.number = number,
                  .slice_plan = p,
                  .slice = slice,
                  .memory = shared_of(p)->memory,
                  .arena = std::make_unique<Storage>(device_, own.replica_arena.bytes, where),
                  .example_offset = std::make_unique<Storage>(device_, sizeof(int64_t), where),
                  .inputs = staged_inputs(own.parameters.size(), device_),
                  .bound = nullptr,
                  .replay = {}};
  replica.memory.replica_arena = static_cast<char*>(replica.arena->data());
  backend_.copy_from_host(replica.example_offset->data(), &slice.begin, sizeof slice.begin);
  replica.memory.example_offset = replica.example_offset->data();
  // Where launches are only queued, one replica's may still run when the next one's are made: then no two
  // replicas share kernels.
  const size_t lane =
      stream_.asynchronous() ? replicas_.size() : replicas_.size() % static_cast<size_t>(at_once_);
  replica.bound = std::make_unique<BoundPlan>(own, Part::per_replica, lanes.kernels(p, lane), replica.memory,
                                              LaunchPlace{.device = number_, .replica = number});
  replica.replay.set_branches(options_.branches);
  replicas_.push_back(std::move(replica));
}

const DeviceRun::SharedPart* DeviceRun::shared_of(size_t p) const {
  const auto found = std::find_if(shared_.begin(), shared_.end(),
                                  [&](const SharedPart& made) { return made.slice_plan == p; });
  return found == shared_.end() ? nullptr : &*found;
}

void DeviceRun::add_to(ReplicaSum& sum, const compile::Collective& collective) const {
  auto& results = sum.results.emplace_back(step_plans_.size(), nullptr);
  for (const SharedPart& made : shared_)
    results[made.slice_plan] = made.memory.at(step_plans_.twin(made.slice_plan, collective).result);
  for (const Replica& replica : replicas_)
    sum.inputs[static_cast<size_t>(replica.number)] =
        replica.memory.at(step_plans_.twin(replica.slice_plan, collective).input);
  size_t ready = 0;
  if (!replicas_.empty()) {
    const Replica& last = replicas_.back();
    ready = last.bound->launches_until(step_plans_.twin(last.slice_plan, collective).ready);
  }
  sum.ready.push_back(ready);
  if (collective.condition && backend_.has_memory())
    sum.conditions.push_back(static_cast<const bool*>(shared_[0].memory.at(*collective.condition)));
}

void DeviceRun::release_graphs() {
  for (SharedPart& made : shared_) made.replay.clear();
  for (Replica& replica : replicas_) replica.replay.clear();
}

std::vector<ArenaSize> DeviceRun::arenas() const {
  std::vector<ArenaSize> all;
  for (const SharedPart& made : shared_) all.push_back(step_plans_[made.slice_plan].device_arenas[0]);
  for (const Replica& replica : replicas_) all.push_back(step_plans_[replica.slice_plan].replica_arena);
  return all;
}

// --- binding -----------------------------------------------------------------------------------------------

void DeviceRun::bind_outputs(ReplicatedOutputs& outputs) {
  for (size_t k = 0; k < step_plans_.first().outputs.size(); ++k) {
    for (SharedPart& made : shared_) made.memory.outputs[k] = outputs.of_device(number_, made.slice_plan, k);
    for (Replica& replica : replicas_)
      replica.memory.outputs[k] = outputs.of_replica(number_, replica.slice_plan, replica.number, k);
  }
}

void DeviceRun::bind_variable(Memory& memory, size_t p, size_t variable, void* data) const {
  if (const int index = step_plans_.variable(p, variable); index >= 0)
    memory.variables[static_cast<size_t>(index)] = data;
}

void DeviceRun::bind_variable(size_t variable, void* data) {
  for (SharedPart& made : shared_) bind_variable(made.memory, made.slice_plan, variable, data);
  for (Replica& replica : replicas_) bind_variable(replica.memory, replica.slice_plan, variable, data);
}

void DeviceRun::bind_replica_variable(size_t variable, const ReplicaVariables& parts, size_t number) {
  for (Replica& replica : replicas_)
    bind_variable(replica.memory, replica.slice_plan, variable, parts.part(number, replica.number));
}

void DeviceRun::stage_inputs(std::span<const Tensor> inputs) {
  const auto scope = observer_.time(number_, Category::copy);
  host_inputs_.begin();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const TensorImpl& input = *inputs[i].impl();
    Device& from = input.storage->device();
    char* const data = static_cast<char*>(input.data());
    // Copies between CPUs cross no bus, and are not counted.
    if (stream_.asynchronous() && &from != &device_) {
      observer_.count(number_, observe::Counter::host_copies, 1);
      observer_.count(number_, observe::Counter::host_copy_bytes, static_cast<int64_t>(input.spec.bytes()));
    }
    const auto bring = [&](StagedInput& staged, void* source, size_t bytes, void*& place) {
      if (host_inputs_.takes(from))
        host_inputs_.add(input.storage, source, bytes, place);
      else
        place = staged.bring(from, source, bytes);
    };
    if (!layout_.splits(i)) {
      bring(inputs_[i], data, input.spec.bytes(), whole_inputs_[i]);
      continue;
    }
    const size_t row = row_bytes(input.spec);
    for (Replica& replica : replicas_)
      bring(replica.inputs[i], data + static_cast<size_t>(replica.slice.begin - first_row_) * row,
            static_cast<size_t>(replica.slice.size) * row, replica.memory.parameters[i]);
  }
  host_inputs_.send();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (layout_.splits(i)) continue;
    for (SharedPart& made : shared_) made.memory.parameters[i] = whole_inputs_[i];
    for (Replica& replica : replicas_) replica.memory.parameters[i] = whole_inputs_[i];
  }
}

// --- running -----------------------------------------------------------------------------------------------

void DeviceRun::wait_for_turn() {
  if (!ahead_->must_wait()) return;
  const auto scope = observer_.time(number_, Category::compute, observe::ThreadState::blocks);
  ahead_->wait();
  all_reduce_->attribute_waits(number_, ahead_->depth());
}

void DeviceRun::run() {
  // Where results are checked for NaN and infinity, kernels tell the clock how long that takes.
  std::optional<observe::BindReplica> bind;
  if (auto* clock = observer_.device(number_); clock && step_plans_.first().settings.checks_numerics)
    bind.emplace(*clock);
  for (SharedPart& made : shared_) made.bound->bind(made.memory);
  for (Replica& replica : replicas_) replica.bound->bind(replica.memory);
  const bool ended = run_phases();
  host_inputs_.finish();
  if (!ended) return;
  ahead_->queued(1);
  count(1);
}

// False: another device failed.
bool DeviceRun::run_phases() {
  const Category category = launch_category();
  for (int phase = 0; phase < step_plans_.first().phases; ++phase) {
    if (phase > 0 && !all_reduce_->finish(number_, phase)) return false;
    const auto scope = observer_.time(number_, category);
    run_shared(phase);
    run_replicas(phase);
  }
  return true;
}

bool DeviceRun::takes_rows(const FunctionCore::RowRuns& runs) const {
  const auto is_here = [&](const Tensor& tensor) { return &tensor.device() == &device_; };
  return shared_[0].replay.fused() && (!runs.order.defined() || is_here(runs.order)) &&
         std::all_of(runs.arrays.begin(), runs.arrays.end(), is_here);
}

bool DeviceRun::run_rows(const FunctionCore::RowRuns& runs) {
  SharedPart& only = shared_[0];
  wait_for_turn();
  only.bound->bind(only.memory);
  {
    const auto scope = observer_.time(number_, launch_category());
    if (!only.replay.run(*only.bound, runs, stream_)) return false;
  }
  ahead_->queued(runs.runs);
  count(runs.runs);
  return true;
}

Category DeviceRun::launch_category() {
  if (launches_ == kFirstLaunches || !backend_.captures_graphs()) return Category::compute;
  ++launches_;
  return Category::compiling;
}

void DeviceRun::count(int64_t runs) const {
  backend_.count_kernels(runs * work_.kernels, runs * work_.flops);
  observer_.count(number_, observe::Counter::flops, runs * work_.flops);
  if (work_.half_flops > 0) observer_.count(number_, observe::Counter::half_flops, runs * work_.half_flops);
  if (slots_ == 0) return;
  observer_.count(number_, observe::Counter::examples, runs * examples_);
  observer_.count(number_, observe::Counter::slots, runs * slots_);
}

// The last phase makes the updates, and results that no replica waits for.
bool DeviceRun::leaves_updates(int phase) const {
  return layout_.central_updates && number_ > 0 && phase == step_plans_.first().phases - 1;
}

void DeviceRun::run_shared(int phase) {
  std::span<const PhaseSync::Wait> waits = all_reduce_->waits(number_, phase);
  // The first plan last: it writes the variables that the others still read.
  for (size_t i = shared_.size(); i-- > 0;) {
    SharedPart& made = shared_[i];
    const auto [begin, end] = made.bound->launches_of(phase);
    if (begin == end || (i == 0 && leaves_updates(phase))) continue;
    made.replay.run(*made.bound, phase, stream_, {.waits = waits, .marks = {}});
    waits = {};  // all that comes behind has waited as well
  }
  for (const PhaseSync::Wait& wait : waits)
    for (const Event* event : wait.events) event->wait(stream_);
}

// When the last replica has run, everything that the device adds to a sum is there: its launches reach the
// marks.
void DeviceRun::run_replicas(int phase) {
  const std::span<const PhaseSync::Mark> marks = all_reduce_->marks(number_, phase + 1);
  if (at_once_ == 1 && !replicas_.empty()) {
    // One replica at a time: kernels that were prepared for one thread use no more than that.
    const TeamScope team(replica_threads_);
    for (Replica& replica : replicas_) {
      const bool last = &replica == &replicas_.back();
      replica.replay.run(*replica.bound, phase, stream_,
                         {.waits = {}, .marks = last ? marks : std::span<const PhaseSync::Mark>()});
    }
    return;
  }
  const auto count = static_cast<size_t>(at_once_);
  parallel(at_once_, [&](int index) {
    for (size_t r = static_cast<size_t>(index); r < replicas_.size(); r += count)
      replicas_[r].bound->run(phase, stream_);
  });
  for (const PhaseSync::Mark& mark : marks) mark.mark->reach(stream_);
}

}  // namespace lockstep::execute
