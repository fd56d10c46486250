#include "execute/executable.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>

#include "base/parallel.h"
#include "base/worker.h"
#include "device/copy.h"
#include "execute/all_reduce/host_threads.h"
#include "execute/bound_program.h"
#include "execute/graph_replay.h"
#include "execute/output_pool.h"
#include "graph/eager.h"
#include "graph/variable_impl.h"
#include "tensor/tensor_impl.h"

namespace lockstep::compile {

using observe::Category;

std::vector<Slice> slice_batch(int64_t batch, int replicas) {
  const int64_t share = (batch + replicas - 1) / replicas;
  std::vector<Slice> slices;
  for (int64_t r = 0; r < replicas; ++r) {
    const int64_t begin = std::min(batch, r * share);
    slices.push_back({begin, std::min(batch, begin + share) - begin});
  }
  return slices;
}

std::vector<Slice> slice_batch(int64_t batch, const std::vector<double>& weights) {
  const int replicas = static_cast<int>(weights.size());
  if (batch <= replicas) return slice_batch(batch, replicas);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> sizes;
  int64_t given = 0;
  for (double part = 0; const double weight : weights) {
    part += weight;
    sizes.push_back(std::llround(static_cast<double>(batch) * part / total) - given);
    given += sizes.back();
  }
  // Empty slices come last, and here there are enough examples for all.
  for (int64_t& size : sizes)
    if (size == 0) {
      --*std::max_element(sizes.begin(), sizes.end());
      size = 1;
    }
  std::vector<Slice> slices;
  for (int64_t begin = 0; const int64_t size : sizes) {
    slices.push_back({begin, size});
    begin += size;
  }
  return slices;
}

std::pair<int, int> ReplicaLayout::replicas_of(int device) const {
  const int count = static_cast<int>(devices.size());
  const int share = replicas / count;
  const int larger = replicas % count;
  const int first = device * share + std::min(device, larger);
  return {first, first + share + (device < larger ? 1 : 0)};
}

namespace {

size_t row_bytes(const TensorSpec& spec) {
  return spec.shape[0] > 0 ? spec.bytes() / static_cast<size_t>(spec.shape[0]) : 0;
}

Tensor with_storage_on(Device& device, const TensorImpl& impl) {
  const size_t bytes = impl.storage->bytes();
  auto copy = std::make_shared<Storage>(device, bytes, std::source_location::current());
  copy_across(impl.storage->device(), impl.storage->data(), device, copy->data(), bytes);
  const Tensor whole = make_tensor(std::move(copy), {DType::uint8, {static_cast<int64_t>(bytes)}});
  return make_view(*whole.impl(), impl.spec, impl.strides, impl.offset);
}

constexpr size_t kSentAhead = 256 << 10;  // bytes from which on a copy beside the computation pays

int total_threads(const ReplicaLayout& layout) {
  int total = 0;
  for (const Device* device : layout.devices) total += device->threads();
  return total;
}

}  // namespace

class Executable::Impl {
 public:
  Impl(std::vector<Plan> plans, std::vector<int64_t> plan_slices, ReplicaLayout layout)
      : plans_(std::move(plans)),
        layout_(std::move(layout)),
        use_(current_memory_use()),
        waiting_(waiting_of(total_threads(layout_))) {
    const std::source_location where = std::source_location::current();
    mirror_versions_.assign(plans_[0].variables.size(), kNoVersion);
    map_variables();
    for (size_t d = 0; d < layout_.devices.size(); ++d)
      devices_.push_back(make_device(static_cast<int>(d), plan_slices, where));
    if (share_card())
      for (const auto& device : devices_) {
        for (RepeatedLaunches& launches : device->launches) launches.set_lanes(kSharedLanes);
        for (const auto& replica : device->replicas) replica->launches.set_lanes(kSharedLanes);
      }
    sums_.emplace(layout_, collect_sums(), waiting_);
    for (size_t d = 1; d < layout_.devices.size(); ++d)
      workers_.push_back(std::make_unique<Worker>(waiting_));
    tasks_.resize(devices_.size());
    int core = 0;
    for (size_t d = 0; d < devices_.size(); ++d) {
      tasks_[d] = {this, static_cast<int>(d), core, nullptr};
      core += layout_.devices[d]->threads();
    }
    output_pool_.resize(plans_[0].outputs.size());
  }

  // What was recorded refers to events of the sums.
  ~Impl() {
    for (const auto& device : devices_) {
      device->launches.clear();
      for (const auto& replica : device->replicas) replica->launches = {};
    }
  }

  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) {
    clock_ = clock;
    const MemoryUseScope use(use_);
    {
      const observe::TimeScopeOfAll scope(clock, Category::host);
      bind_outputs(outputs);
      bind_variables();
    }
    inputs_ = inputs;
    sums_->begin_run(clock);
    // Replicas write their parts of results that are the first device's: behind whoever still reads the last ones
    // there, and in front of whoever reads these.
    for (size_t d = 1; d < devices_.size(); ++d) stream_of(d).wait_for(stream_of(0));
    // A copy between GPUs waits for all that both have been given: it comes before they are given this run.
    if (binds_first())
      for (size_t d = 0; d < devices_.size(); ++d) bring_inputs(static_cast<int>(d));
    try {
      if (devices_.size() == 1) {
        run_device(0);
      } else {
        run_devices();
      }
    } catch (...) {
      distrust_mirrors();
      throw;
    }
    sums_->end_run();
    for (size_t d = 1; d < devices_.size(); ++d) stream_of(0).wait_for(stream_of(d));
    settle_variables();
  }

  bool run_rows(const FunctionCore::RowRuns& runs, std::span<Tensor> outputs, observe::StepClock* clock) {
    if (devices_.size() > 1 || layout_.replicated() || !devices_[0]->launches[0].joined()) return false;
    RowRuns rows{.arrays = {}, .order = nullptr, .first = runs.first, .rows = runs.rows, .runs = runs.runs};
    for (const Tensor& array : runs.arrays) {
      if (&array.device() != devices_[0]->device) return false;
      rows.arrays.push_back(array.impl()->data());
    }
    if (runs.order.defined()) {
      if (&runs.order.device() != devices_[0]->device) return false;
      rows.order = static_cast<const int64_t*>(runs.order.impl()->data());
    }
    clock_ = clock;
    {
      const observe::TimeScopeOfAll scope(clock, Category::host);
      bind_outputs(outputs);
      bind_variables();
    }
    DeviceContext& device = *devices_[0];
    wait_for_earlier(device, 0);
    device.uniform[0]->bind(device.memory[0]);
    {
      const observe::TimeScope scope(clock_of(0), Category::compute);
      if (!device.launches[0].run(*device.uniform[0], rows, *device.device)) return false;
    }
    mark_end(device, runs.runs);
    backend_of(*device.device)
        .count_kernels(runs.runs * device.uniform[0]->kernels(), runs.runs * device.uniform[0]->flops());
    if (observe::ReplicaClock* replica = clock_of(0))
      replica->count(observe::Counter::flops, runs.runs * device.uniform[0]->flops());
    settle_variables();
    return true;
  }

  const Plan& plan() const { return plans_[0]; }

  MemoryFigures memory() const {
    MemoryFigures figures;
    const auto add = [&](const ArenaSize& arena) {
      figures.arena += arena.bytes;
      figures.peak += arena.peak;
      figures.unplanned += arena.unplanned;
    };
    for (const auto& device : devices_) {
      for (size_t p = 0; p < plans_.size(); ++p)
        if (device->uniform[p]) add(plans_[p].device_arenas[0]);
      for (const auto& replica : device->replicas)
        add(plans_[static_cast<size_t>(replica->plan)].replica_arena);
    }
    return figures;
  }

 private:
  // An input as a device has it.
  struct Staged {
    std::unique_ptr<Storage> storage;  // a copy
    std::array<const void*, 2> usual{};

    // Whether it lies in one of the first places in which it was seen.
    bool is_usual(const void* data) {
      for (const void*& place : usual) {
        if (!place) place = data;
        if (place == data) return true;
      }
      return false;
    }
  };

  struct Replica {
    int number = 0;
    int plan = 0;
    Slice slice;
    Memory memory;
    std::unique_ptr<Storage> arena;
    std::vector<Staged> staged;       // its slices of the inputs
    std::unique_ptr<Storage> offset;  // where a device of its own memory reads the example offset
    std::unique_ptr<BoundProgram> program;
    RepeatedLaunches launches;
  };

  struct DeviceContext {
    Device* device = nullptr;
    bool streams = false;  // its launches are queued
    // By plan: values that are the same for all replicas are computed once on the device. Plan 0
    // updates the variables and writes the outputs; the others only feed their replicas.
    std::vector<Memory> memory;
    std::vector<std::unique_ptr<BoundProgram>> uniform;
    std::vector<RepeatedLaunches> launches;  // of those
    std::vector<std::unique_ptr<Storage>> arenas;
    TensorList held;                                // constants, and captures as this device has them
    std::vector<std::unique_ptr<Storage>> mirrors;  // of variables that live on another device
    std::vector<Staged> staged;                     // inputs that are not split
    std::vector<std::unique_ptr<Storage>> outputs;  // where this device's own copy of a result goes
    std::vector<std::unique_ptr<Replica>> replicas;
    int threads = 1;
    int concurrent = 1;  // replicas that run at once
    // Of a GPU: the ends of the last two runs, how many such marks there were, and how many runs came behind the last.
    std::array<std::unique_ptr<Event>, 2> marks;
    uint64_t marked = 0;
    int64_t unmarked = 0;
  };

  Stream& stream_of(size_t d) const { return backend_of(*layout_.devices[d]).compute_stream(); }

  PlanOptions options(const Device& device) const {
    PlanOptions options{.kind = device.kind(),
                        .split_parameters = layout_.split_parameters,
                        .uniform_threads = device.threads(),
                        .replica_threads = 1,
                        .reproducible = layout_.reproducible};
    if (!layout_.replicated()) options.split_parameters.clear();
    options.replica_threads = layout_.reproducible ? 1 : device.threads();
    return options;
  }

  // --- construction ----------------------------------------------------------------------------------------------

  // Plans of other slice sizes may have met the variables in another order, or not at all.
  void map_variables() {
    for (const Plan& plan : plans_) {
      auto& indices = variable_index_.emplace_back();
      for (const Variable& variable : plans_[0].variables) {
        const auto it = std::find_if(plan.variables.begin(), plan.variables.end(),
                                     [&](const Variable& v) { return v.id() == variable.id(); });
        indices.push_back(it == plan.variables.end() ? -1 : static_cast<int>(it - plan.variables.begin()));
      }
    }
  }

  std::unique_ptr<DeviceContext> make_device(int d, const std::vector<int64_t>& plan_slices,
                                             std::source_location where) {
    auto context = std::make_unique<DeviceContext>();
    context->device = layout_.devices[static_cast<size_t>(d)];
    context->streams = stream_of(static_cast<size_t>(d)).asynchronous();
    for (auto& mark : context->marks) mark = backend_of(*context->device).new_event();
    context->threads = context->device->threads();
    const PlanOptions plan_options = options(*context->device);
    const size_t variables = plans_[0].variables.size();
    context->mirrors.resize(variables);
    context->staged.resize(plans_[0].parameters.size());
    context->outputs.resize(plans_[0].outputs.size());
    context->memory.resize(plans_.size());
    context->uniform.resize(plans_.size());
    context->launches.resize(plans_.size());
    context->arenas.resize(plans_.size());

    const auto [first, last] = layout_.replicas_of(d);
    std::vector<bool> used(plans_.size(), false);
    used[0] = true;
    for (int r = first; r < last; ++r) {
      if (!layout_.replicated()) break;
      const Slice slice = layout_.slices[static_cast<size_t>(r)];
      if (slice.size == 0) continue;
      const auto plan = std::find(plan_slices.begin(), plan_slices.end(), slice.size) - plan_slices.begin();
      require(plan < static_cast<std::ptrdiff_t>(plans_.size()), ErrorCode::internal, where,
              "no plan for a slice of ", slice.size);
      auto replica = std::make_unique<Replica>();
      replica->number = r;
      replica->plan = static_cast<int>(plan);
      replica->slice = slice;
      used[static_cast<size_t>(plan)] = true;
      context->replicas.push_back(std::move(replica));
    }
    for (size_t p = 0; p < plans_.size(); ++p) {
      if (!used[p]) continue;
      context->arenas[p] =
          std::make_unique<Storage>(*context->device, plans_[p].device_arenas[0].bytes, where);
      prepare_memory(context->memory[p], p, *context);
      context->memory[p].device_arena = static_cast<char*>(context->arenas[p]->data());
      context->uniform[p] =
          std::make_unique<BoundProgram>(plans_[p], false, plan_options, context->memory[p], d, -1);
      if (!layout_.replicated() && context->uniform[p]->capturable())
        context->launches[p].join(join_steps(plans_[p], *context->device));
    }
    for (const auto& replica : context->replicas) {
      const auto p = static_cast<size_t>(replica->plan);
      replica->arena = std::make_unique<Storage>(*context->device, plans_[p].replica_arena.bytes, where);
      replica->memory = context->memory[p];
      replica->memory.device_arena = context->memory[p].device_arena;
      replica->memory.replica_arena = static_cast<char*>(replica->arena->data());
      replica->memory.example_offset = replica->slice.begin;
      if (context->device->kind() == DeviceKind::gpu) {
        replica->offset = std::make_unique<Storage>(*context->device, sizeof(int64_t), where);
        backend_of(*context->device)
            .copy_from_host(replica->offset->data(), &replica->slice.begin, sizeof(int64_t));
        replica->memory.example_offset_at = replica->offset->data();
      }
      replica->staged.resize(plans_[p].parameters.size());
      replica->program =
          std::make_unique<BoundProgram>(plans_[p], true, plan_options, replica->memory, d, replica->number);
    }
    context->concurrent =
        layout_.reproducible
            ? std::max(1, std::min<int>(context->threads, static_cast<int>(context->replicas.size())))
            : 1;
    return context;
  }

  void prepare_memory(Memory& memory, size_t p, DeviceContext& device) {
    const Plan& plan = plans_[p];
    memory.device = device.device;
    memory.parameters.resize(plan.parameters.size());
    memory.variables.resize(plan.variables.size());
    memory.outputs.resize(plan.outputs.size());
    for (const Tensor& capture : plan.captures) {
      const TensorImpl& impl = *capture.impl();
      // The plan knows the capture by its strides, so a strided one stays where it is, or moves with all of its
      // memory to a device that cannot read it there.
      const bool strided = !is_contiguous(impl.spec.shape, impl.strides);
      const bool here = &impl.storage->device() == device.device ||
                        (strided && impl.storage->device().kind() == device.device->kind());
      device.held.push_back(here      ? capture
                            : strided ? with_storage_on(*device.device, impl)
                                      : capture.to(*device.device));
      memory.captures.push_back(device.held.back().impl()->data());
    }
    for (const auto& [spec, value] : plan.constants) {
      device.held.push_back(Tensor::full(spec.dtype, spec.shape, value, *device.device));
      memory.constants.push_back(device.held.back().impl()->data());
    }
  }

  std::vector<ReplicaSum> collect_sums() {
    std::vector<ReplicaSum> sums;
    if (!layout_.replicated()) return sums;
    for (const Collective& collective : plans_[0].collectives) {
      ReplicaSum sum{.phase = collective.phase,
                     .dtype = collective.spec.dtype,
                     .size = collective.spec.shape.size(),
                     .inputs = std::vector<const void*>(static_cast<size_t>(layout_.replicas), nullptr),
                     .results = {},
                     .ready = {},
                     .conditions = {}};
      for (const auto& device : devices_) {
        auto& results = sum.results.emplace_back(plans_.size(), nullptr);
        for (size_t p = 0; p < plans_.size(); ++p)
          if (device->uniform[p]) results[p] = device->memory[p].at(twin(p, collective).result);
        for (const auto& replica : device->replicas)
          sum.inputs[static_cast<size_t>(replica->number)] =
              replica->memory.at(twin(static_cast<size_t>(replica->plan), collective).input);
        size_t ready = 0;
        if (!device->replicas.empty()) {
          const Replica& last = *device->replicas.back();
          ready = last.program->launches_until(twin(static_cast<size_t>(last.plan), collective).ready);
        }
        sum.ready.push_back(ready);
        if (collective.condition && backend_of(*device->device).has_memory())
          sum.conditions.push_back(static_cast<const bool*>(device->memory[0].at(*collective.condition)));
      }
      sums.push_back(std::move(sum));
    }
    return sums;
  }

  // The same collective in another plan.
  const Collective& twin(size_t plan, const Collective& collective) const {
    const auto& all = plans_[plan].collectives;
    const auto it = std::find_if(all.begin(), all.end(),
                                 [&](const Collective& c) { return c.sequence == collective.sequence; });
    require(it != all.end() && it->spec == collective.spec && it->phase == collective.phase,
            ErrorCode::failed_precondition, std::source_location::current(),
            "the sums over replicas differ between slices of different sizes: ", collective.spec,
            " is summed in one of them only, or at another point. The shape of what is summed must not "
            "depend on the batch size");
    return *it;
  }

  // --- binding ---------------------------------------------------------------------------------------------------

  void bind_outputs(std::span<Tensor> outputs) {
    for (size_t k = 0; k < plans_[0].outputs.size(); ++k) {
      outputs[k] = Tensor();
      TensorSpec spec = plans_[0].outputs[k].spec;
      const PlannedOutput& planned = plans_[0].outputs[k];
      const size_t block = spec.bytes();
      if (planned.per_replica) spec.shape[0] = layout_.slices.back().begin + layout_.slices.back().size;
      if (planned.stacked) spec.shape.insert(0, layout_.replicas);
      outputs[k] = output_pool_[k].take(spec, *layout_.devices[0]);
      char* data = static_cast<char*>(outputs[k].impl()->data());
      for (const auto& device : devices_) {
        for (size_t p = 0; p < plans_.size(); ++p)
          if (device->uniform[p])
            device->memory[p].outputs[k] =
                (p == 0 && device == devices_[0]) || planned.stacked ? data : own_output(*device, k);
        // A replica writes its own rows, but may read what all have in common.
        for (const auto& replica : device->replicas) {
          void*& target = replica->memory.outputs[k];
          if (planned.per_replica)
            target = data + static_cast<size_t>(replica->slice.begin) * row_bytes(spec);
          else if (planned.stacked)
            target = data + static_cast<size_t>(replica->number) * block;
          else
            target = device->memory[static_cast<size_t>(replica->plan)].outputs[k];
        }
      }
    }
  }

  void* own_output(DeviceContext& device, size_t k) {
    if (!device.outputs[k])
      device.outputs[k] = std::make_unique<Storage>(*device.device, plans_[0].outputs[k].spec.bytes(),
                                                    std::source_location::current());
    return device.outputs[k]->data();
  }

  void bind_variables() {
    const Plan& plan = plans_[0];
    for (size_t v = 0; v < plan.variables.size(); ++v) {
      VariableImpl& variable = *plan.variables[v].impl();
      if (layout_.replicated() && variable.options.per_replica) {
        bind_parts(variable, v);
        continue;
      }
      variable.gather();
      void* data = plan.variable_updated[v] ? variable.mutable_data(true) : variable.value.impl()->data();
      Device& home = variable.value.device();
      for (const auto& device : devices_) {
        void* own = data;
        if (device->device != &home) {
          auto& mirror = device->mirrors[v];
          const size_t bytes = variable.spec.bytes();
          const bool stale = !mirror || mirror_versions_[v] != variable.version;
          if (!mirror) {
            mirror = std::make_unique<Storage>(*device->device, bytes, variable.where);
            mirror->set_use(memory_use("variables"));
          }
          if (stale) copy_across(home, data, *device->device, mirror->data(), bytes);
          own = mirror->data();
        }
        for (size_t p = 0; p < plans_.size(); ++p)
          if (device->uniform[p]) set_variable(device->memory[p], p, v, own);
        for (const auto& replica : device->replicas)
          set_variable(replica->memory, static_cast<size_t>(replica->plan), v, own);
      }
    }
  }

  void bind_parts(VariableImpl& variable, size_t v) {
    TensorList& parts = variable.spread(layout_.replicas);
    // A replica without examples does not run, but what it has must not be left out of a sum.
    for (size_t r = 1; r < parts.size(); ++r)
      if (layout_.slices[r].size == 0 && parts[r].defined()) {
        parts[0] = variable.sum_of_parts(parts[0], parts[r]);
        parts[r] = {};
      }
    for (const auto& device : devices_)
      for (const auto& replica : device->replicas) {
        Tensor& part = parts[static_cast<size_t>(replica->number)];
        part = part.defined() ? part.to(*device->device)
                              : Tensor::full(variable.spec.dtype, variable.spec.shape, 0, *device->device);
        set_variable(replica->memory, static_cast<size_t>(replica->plan), v, part.impl()->data());
      }
  }

  // A step that failed may have updated some devices and not others: what the variable itself holds
  // counts, for this program and for all others.
  void distrust_mirrors() {
    for (size_t v = 0; v < plans_[0].variables.size(); ++v) {
      if (plans_[0].variable_updated[v]) ++plans_[0].variables[v].impl()->version;
      mirror_versions_[v] = kNoVersion;
    }
  }

  // What was written now is what every mirror holds; a variable that lives on none of the devices
  // gets it back from the first.
  void settle_variables() {
    for (size_t v = 0; v < plans_[0].variables.size(); ++v) {
      VariableImpl& variable = *plans_[0].variables[v].impl();
      if (layout_.replicated() && variable.options.per_replica) continue;
      if (plans_[0].variable_updated[v]) {
        ++variable.version;
        Device& home = variable.value.device();
        if (std::find(layout_.devices.begin(), layout_.devices.end(), &home) == layout_.devices.end())
          copy_across(*layout_.devices[0], devices_[0]->mirrors[v]->data(), home,
                      variable.value.impl()->data(), variable.spec.bytes());
      }
      mirror_versions_[v] =
          plans_[0].variable_updated[v] && layout_.central_updates ? kNoVersion : variable.version;
    }
  }

  void set_variable(Memory& memory, size_t p, size_t v, void* data) {
    if (const int index = variable_index_[p][v]; index >= 0)
      memory.variables[static_cast<size_t>(index)] = data;
  }

  bool binds_first() const { return devices_.size() > 1 && layout_.devices[0]->kind() == DeviceKind::gpu; }
  void bring_inputs(int d) {
    const observe::TimeScope scope(clock_of(d), Category::copy);
    bind_inputs(*devices_[static_cast<size_t>(d)], inputs_);
  }

  void bind_inputs(DeviceContext& device, std::span<const Tensor> inputs) {
    for (size_t i = 0; i < plans_[0].parameters.size(); ++i) {
      const TensorImpl& input = *inputs[i].impl();
      const TensorSpec& spec = input.spec;
      char* data = static_cast<char*>(input.data());
      const bool split = layout_.replicated() && layout_.split_parameters[i];
      void* whole = data;
      if (!split) whole = brought(device.staged[i], device, input, data, spec.bytes());
      for (size_t p = 0; p < plans_.size(); ++p)
        if (device.uniform[p]) device.memory[p].parameters[i] = whole;
      for (const auto& replica : device.replicas) {
        if (!split) {
          replica->memory.parameters[i] = whole;
          continue;
        }
        char* rows = data + static_cast<size_t>(replica->slice.begin) * row_bytes(spec);
        const size_t bytes = static_cast<size_t>(replica->slice.size) * row_bytes(spec);
        replica->memory.parameters[i] = brought(replica->staged[i], device, input, rows, bytes);
      }
    }
  }

  // Where the device reads an input: there, or in a copy of it. What was recorded on a GPU holds for the pointers it
  // was recorded with, so an input that lies elsewhere with every call is copied as well.
  void* brought(Staged& stage, DeviceContext& device, const TensorImpl& input, void* source, size_t bytes) {
    const bool here = &input.storage->device() == device.device;
    if (here && (device.device->kind() != DeviceKind::gpu || stage.is_usual(source))) return source;
    if (!stage.storage || stage.storage->bytes() < bytes)
      stage.storage = std::make_unique<Storage>(*device.device, bytes, std::source_location::current());
    void* const target = stage.storage->data();
    if (here) {
      backend_of(*device.device).compute_stream().copy(target, source, bytes);
    } else if (input.storage->device().kind() == DeviceKind::cpu && bytes >= kSentAhead) {
      // The GPU still computes with what the last run left there: the host's bytes arrive beside that meanwhile.
      const Storage ahead(*device.device, bytes, std::source_location::current(), true);
      copy_across(input.storage->device(), source, *device.device, ahead.data(), bytes);
      backend_of(*device.device).compute_stream().copy(target, ahead.data(), bytes);
    } else {
      copy_across(input.storage->device(), source, *device.device, target, bytes);
    }
    return target;
  }

  // --- running ---------------------------------------------------------------------------------------------------

  struct Task {
    Impl* self;
    int device;
    int first_core;  // where the device's share of the machine begins
    std::exception_ptr error;
  };

  void run_devices() {
    for (Task& task : tasks_) task.error = nullptr;
    for (size_t d = 1; d < devices_.size(); ++d) {
      // Until its thread is awake.
      if (clock_) clock_->replica(static_cast<int>(d)).enter(Category::idle);
      workers_[d - 1]->start(run_woken_task, &tasks_[d]);
    }
    run_task(&tasks_[0]);
    const observe::TimeScope scope(clock_of(0), Category::waiting_for_others);
    for (const auto& worker : workers_) worker->wait();
    if (clock_)
      for (size_t d = 1; d < devices_.size(); ++d) clock_->replica(static_cast<int>(d)).leave();
    for (const Task& task : tasks_)
      if (task.error) std::rethrow_exception(task.error);
  }

  static void run_woken_task(void* context) {
    const auto* task = static_cast<Task*>(context);
    observe::ReplicaClock* clock = task->self->clock_of(task->device);
    if (clock) clock->leave();
    run_task(context);
    if (clock) clock->enter(Category::waiting_for_others);
  }

  static void run_task(void* context) {
    auto* task = static_cast<Task*>(context);
    set_first_core(task->first_core);
    try {
      task->self->run_device(task->device);
    } catch (...) {
      task->error = std::current_exception();
      task->self->sums_->abort();
    }
  }

  observe::ReplicaClock* clock_of(int d) const { return clock_ ? &clock_->replica(d) : nullptr; }

  void run_device(int d) {
    DeviceContext& device = *devices_[static_cast<size_t>(d)];
    const TeamScope team(device.threads);
    const MemoryUseScope use(use_);
    wait_for_earlier(device, d);
    if (!binds_first()) bring_inputs(d);
    for (size_t p = 0; p < plans_.size(); ++p)
      if (device.uniform[p]) device.uniform[p]->bind(device.memory[p]);
    for (const auto& replica : device.replicas) replica->program->bind(replica->memory);
    int64_t kernels = 0;
    int64_t flops = 0;
    for (int phase = 0; phase < plans_[0].phases; ++phase) {
      if (phase > 0 && !sums_->finish(d, phase, clock_of(d))) return;
      const observe::TimeScope scope(clock_of(d), Category::compute);
      run_uniform(d, phase);
      run_replicas(d, phase);
    }
    for (const auto& uniform : device.uniform)
      if (uniform) {
        kernels += uniform->kernels();
        flops += uniform->flops();
      }
    for (const auto& replica : device.replicas) {
      kernels += replica->program->kernels();
      flops += replica->program->flops();
    }
    mark_end(device);
    backend_of(*device.device).count_kernels(kernels, flops);
    if (observe::ReplicaClock* clock = clock_of(d)) {
      clock->count(observe::Counter::flops, flops);
      if (layout_.replicated()) {
        const auto [first, last] = layout_.replicas_of(d);
        for (int r = first; r < last; ++r)
          clock->count(observe::Counter::examples, layout_.slices[static_cast<size_t>(r)].size);
        clock->count(observe::Counter::slots, layout_.slices[0].size * (last - first));
      }
    }
  }

  // A GPU is given the next run while it works on the last one, and no more: so the time it takes is seen, as time
  // that this thread waits for it. Where a run is one short kernel, that goes for several of them.
  void wait_for_earlier(DeviceContext& device, int d) const {
    if (device.unmarked > 0) return;
    if (const Event& earlier = *device.marks[(device.marked + (share_card() ? 1 : 0)) % 2];
        earlier.recordings() > 0) {
      const observe::TimeScope scope(clock_of(d), Category::compute, observe::ThreadState::blocks);
      earlier.synchronize();
      if (clock_ && sums_->on_gpus()) sums_->on_gpus()->account(d, share_card() ? 1 : 2, *clock_of(d));
    }
  }
  // Replicas on one card are given each run after the last: a step of ResNet-50 on two of them takes 36.8 ms so, and 37.4
  // where the next run is queued already.
  bool share_card() const {
    return layout_.devices.size() > 1 && layout_.devices[0]->kind() == DeviceKind::gpu &&
           std::any_of(layout_.devices.begin() + 1, layout_.devices.end(), [&](const Device* device) {
             return backend_of(*device).physical() == backend_of(*layout_.devices[0]).physical();
           });
  }
  static void mark_end(DeviceContext& device, int64_t runs = 1) {
    if (!device.streams) return;
    device.unmarked += runs;
    if (device.unmarked < (device.launches[0].joined() ? kShortRuns : 1)) return;
    device.marks[device.marked++ % 2]->record(backend_of(*device.device).compute_stream());
    device.unmarked = 0;
  }

  // The last phase makes the updates, and results that no replica waits for.
  bool leaves_updates(int d, int phase) const {
    return layout_.central_updates && d > 0 && phase == plans_[0].phases - 1;
  }

  void run_uniform(int d, int phase) {
    DeviceContext& device = *devices_[static_cast<size_t>(d)];
    const auto has_launches = [&](size_t p) {
      if (!device.uniform[p] || (p == 0 && leaves_updates(d, phase))) return false;
      const auto [begin, end] = device.uniform[p]->launches_of(phase);
      return begin < end;
    };
    std::span<const Crossings::Wait> waits;
    if (sums_->on_gpus()) waits = sums_->on_gpus()->waits(d, phase);
    // Plan 0 last: it writes the variables that the others still read.
    for (size_t p = plans_.size(); p-- > 0;) {
      if (!has_launches(p)) continue;
      device.launches[p].run(*device.uniform[p], phase, *device.device,
                             {.waits = waits, .announcements = {}});
      waits = {};  // all that comes behind has waited as well
    }
    for (const Crossings::Wait& wait : waits)
      for (const Event* event : wait.events) event->wait(stream_of(static_cast<size_t>(d)));
  }

  void run_replicas(int d, int phase) {
    DeviceContext& device = *devices_[static_cast<size_t>(d)];
    const std::span<const size_t> stops = sums_->stops(d, phase + 1);
    size_t bucket = 0;
    if (device.concurrent > 1) {
      parallel(device.concurrent, [&](int index) {
        for (size_t r = static_cast<size_t>(index); r < device.replicas.size();
             r += static_cast<size_t>(device.concurrent))
          device.replicas[r]->program->run(phase);
      });
    } else if (device.streams) {
      // With the last replica everything the device adds to a sum is there.
      std::span<const Crossings::Announcement> announcements;
      if (sums_->on_gpus()) announcements = sums_->on_gpus()->announcements(d, phase + 1);
      for (size_t r = 0; r < device.replicas.size(); ++r) {
        Replica& replica = *device.replicas[r];
        Crossings crossings;
        if (r + 1 == device.replicas.size()) crossings.announcements = announcements;
        replica.launches.run(*replica.program, phase, *device.device, crossings);
      }
      if (device.replicas.empty())
        for (const Crossings::Announcement& announcement : announcements)
          announcement.event->record(stream_of(static_cast<size_t>(d)));
    } else if (!device.replicas.empty()) {
      // Alone on the thread, so that kernels prepared for one thread use no more.
      const TeamScope team(layout_.reproducible ? 1 : device.threads);
      for (size_t r = 0; r + 1 < device.replicas.size(); ++r) device.replicas[r]->program->run(phase);
      // With the last replica everything the device adds to a bucket is there.
      const BoundProgram& program = *device.replicas.back()->program;
      auto [at, end] = program.launches_of(phase);
      for (; bucket < stops.size() && stops[bucket] < end; ++bucket) {
        const size_t stop = std::max(at, stops[bucket]);
        program.run(at, stop);
        at = stop;
        sums_->contribute(d, phase + 1, bucket, clock_of(d));
      }
      program.run(at, end);
    }
    for (; bucket < stops.size(); ++bucket) sums_->contribute(d, phase + 1, bucket, clock_of(d));
  }

  std::vector<Plan> plans_;
  ReplicaLayout layout_;
  const MemoryLedger::Use use_;  // whose its memory is
  std::vector<std::vector<int>>
      variable_index_;  // by plan: where plan 0's variables stand there, -1: nowhere
  std::vector<std::unique_ptr<DeviceContext>> devices_;
  std::vector<uint64_t> mirror_versions_;
  std::optional<CrossDeviceSums> sums_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Task> tasks_;
  const Waiting waiting_;
  observe::StepClock* clock_ = nullptr;  // of the run in progress, as are the inputs
  std::span<const Tensor> inputs_;
  static constexpr uint64_t kNoVersion = ~uint64_t{0};
  static constexpr int64_t kShortRuns = 8;
  // Of each device on a card that it shares: ResNet-50 on two took 36.8 ms a step with one or two, 38 with four, 41 with
  // eight and 63 with as many as there could be.
  static constexpr size_t kSharedLanes = 2;
  std::vector<OutputPool> output_pool_;
};

Executable::Executable(std::vector<Plan> plans, std::vector<int64_t> plan_slices, ReplicaLayout layout)
    : impl_(std::make_unique<Impl>(std::move(plans), std::move(plan_slices), std::move(layout))) {}
Executable::~Executable() = default;

void Executable::run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) {
  impl_->run(inputs, outputs, clock);
}
bool Executable::run_rows(const FunctionCore::RowRuns& runs, std::span<Tensor> outputs,
                          observe::StepClock* clock) {
  return impl_->run_rows(runs, outputs, clock);
}
MemoryFigures Executable::memory() const { return impl_->memory(); }
const Plan& Executable::plan() const { return impl_->plan(); }

}  // namespace lockstep::compile
