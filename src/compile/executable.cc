#include "compile/executable.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <numeric>

#include "base/parallel.h"
#include "base/worker.h"
#include "compile/bound_program.h"
#include "compile/output_pool.h"
#include "compile/repeated_launches.h"
#include "compile/replica_sum.h"
#include "device/copy.h"
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
        waiting_(waiting_of(total_threads(layout_))),
        barrier_(static_cast<int>(layout_.devices.size()), waiting_) {
    const std::source_location where = std::source_location::current();
    mirror_versions_.assign(plans_[0].variables.size(), kNoVersion);
    map_variables();
    for (size_t d = 0; d < layout_.devices.size(); ++d)
      devices_.push_back(make_device(static_cast<int>(d), plan_slices, where));
    collect_sums();
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

  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) {
    clock_ = clock;
    if (clock) clock->enter(Category::host);
    bind_outputs(outputs);
    bind_variables();
    if (clock) clock->leave();
    inputs_ = inputs;
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
    settle_variables();
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
    std::vector<TreeNode> nodes;                     // of the summation tree that this device adds up itself
    std::vector<std::unique_ptr<Storage>> partials;  // by node, for those of more than one leaf
    int threads = 1;
    int concurrent = 1;  // replicas that run at once
  };

  // One value that is summed, as the devices and replicas hold it.
  struct Sum {
    int phase = 0;
    DType dtype = DType::float32;
    int64_t size = 0;
    size_t scratch = 0;                       // offset into the devices' partials
    std::vector<const void*> inputs;          // by replica; null: empty slice
    std::vector<const void*> addends;         // by node of sum_nodes_
    std::vector<std::vector<void*>> results;  // by device, by plan; null: not there
  };

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
        context->device->copy_from_host(replica->offset->data(), &replica->slice.begin, sizeof(int64_t));
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
    if (layout_.replicated()) {
      const int last_used = last_leaf(first, last);
      context->nodes = largest_nodes(layout_.replicas, first, last_used);
    }
    return context;
  }

  // Empty slices come last and are left out of every sum.
  int last_leaf(int first, int last) const {
    while (last > first && layout_.slices[static_cast<size_t>(last) - 1].size == 0) --last;
    return last;
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

  void collect_sums() {
    if (!layout_.replicated()) return;
    for (int r = 0; r < last_leaf(0, layout_.replicas); ++r) leaves_.push_back({r, r + 1});
    for (const auto& device : devices_)
      for (const TreeNode& node : device->nodes) sum_nodes_.push_back(node);
    size_t scratch = 0;
    for (const Collective& collective : plans_[0].collectives) {
      Sum sum{.phase = collective.phase,
              .dtype = collective.spec.dtype,
              .size = collective.spec.shape.size(),
              .scratch = scratch,
              .inputs = {},
              .addends = {},
              .results = {}};
      sum.inputs.assign(static_cast<size_t>(layout_.replicas), nullptr);
      scratch +=
          (static_cast<size_t>(collective.spec.shape.size()) * partial_size(collective.spec.dtype) + 63) /
          64 * 64;
      for (const auto& device : devices_) {
        auto& results = sum.results.emplace_back(plans_.size(), nullptr);
        for (size_t p = 0; p < plans_.size(); ++p)
          if (device->uniform[p]) results[p] = device->memory[p].at(twin(p, collective).result);
        for (const auto& replica : device->replicas)
          sum.inputs[static_cast<size_t>(replica->number)] =
              replica->memory.at(twin(static_cast<size_t>(replica->plan), collective).input);
      }
      sums_.push_back(std::move(sum));
    }
    for (const auto& device : devices_)
      for (const TreeNode& node : device->nodes)
        device->partials.push_back(
            node.last - node.first > 1 && devices_.size() > 1
                ? std::make_unique<Storage>(*device->device, scratch, std::source_location::current())
                : nullptr);
    for (Sum& sum : sums_)
      for (const auto& device : devices_)
        for (size_t n = 0; n < device->nodes.size(); ++n)
          sum.addends.push_back(device->partials[n]
                                    ? static_cast<char*>(device->partials[n]->data()) + sum.scratch
                                    : sum.inputs[static_cast<size_t>(device->nodes[n].first)]);
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
      void* data = plan.variable_updated[v] ? variable.mutable_data(true) : variable.value.impl()->data();
      Device& home = variable.value.device();
      for (const auto& device : devices_) {
        void* own = data;
        if (device->device != &home) {
          auto& mirror = device->mirrors[v];
          const size_t bytes = variable.spec.bytes();
          const bool stale = !mirror || mirror_versions_[v] != variable.version;
          if (!mirror) mirror = std::make_unique<Storage>(*device->device, bytes, variable.where);
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
    if (here)
      device.device->copy_within(stage.storage->data(), source, bytes);
    else
      copy_across(input.storage->device(), source, *device.device, stage.storage->data(), bytes);
    return stage.storage->data();
  }

  // --- running ---------------------------------------------------------------------------------------------------

  struct Task {
    Impl* self;
    int device;
    int first_core;  // where the device's share of the machine begins
    std::exception_ptr error;
  };

  void run_devices() {
    barrier_.reset();
    for (Task& task : tasks_) task.error = nullptr;
    for (size_t d = 1; d < devices_.size(); ++d) workers_[d - 1]->start(run_task, &tasks_[d]);
    run_task(&tasks_[0]);
    for (const auto& worker : workers_) worker->wait();
    for (const Task& task : tasks_)
      if (task.error) std::rethrow_exception(task.error);
  }

  static void run_task(void* context) {
    auto* task = static_cast<Task*>(context);
    set_first_core(task->first_core);
    try {
      task->self->run_device(task->device);
    } catch (...) {
      task->error = std::current_exception();
      task->self->barrier_.abort();
    }
  }

  observe::ReplicaClock* clock_of(int d) const { return clock_ ? &clock_->replica(d) : nullptr; }

  // Waits for all devices; false where one failed.
  bool meet(int d) {
    const observe::TimeScope scope(clock_of(d), Category::waiting_for_others);
    return barrier_.meet();
  }

  void run_device(int d) {
    DeviceContext& device = *devices_[static_cast<size_t>(d)];
    const TeamScope team(device.threads);
    {
      const observe::TimeScope scope(clock_of(d), Category::copy);
      bind_inputs(device, inputs_);
    }
    for (size_t p = 0; p < plans_.size(); ++p)
      if (device.uniform[p]) device.uniform[p]->bind(device.memory[p]);
    for (const auto& replica : device.replicas) replica->program->bind(replica->memory);
    int64_t kernels = 0;
    int64_t flops = 0;
    for (int phase = 0; phase < plans_[0].phases; ++phase) {
      if (phase > 0 && !sum_over_replicas(d, phase)) return;
      const observe::TimeScope scope(clock_of(d), Category::compute);
      // Plan 0 last: it writes the variables that the others still read.
      for (size_t p = plans_.size(); p-- > 0;)
        if (device.uniform[p] && !(p == 0 && leaves_updates(d, phase)))
          device.launches[p].run(*device.uniform[p], phase, *device.device);
      run_replicas(device, phase);
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
    device.device->count_kernels(kernels, flops);
  }

  // The last phase makes the updates, and results that no replica waits for.
  bool leaves_updates(int d, int phase) const {
    return layout_.central_updates && d > 0 && phase == plans_[0].phases - 1;
  }

  void run_replicas(DeviceContext& device, int phase) {
    if (device.concurrent == 1) {
      // Alone on the thread, so that kernels prepared for one thread use no more.
      const TeamScope team(layout_.reproducible ? 1 : device.threads);
      for (const auto& replica : device.replicas)
        replica->launches.run(*replica->program, phase, *device.device);
      return;
    }
    parallel(device.concurrent, [&](int index) {
      for (size_t r = static_cast<size_t>(index); r < device.replicas.size();
           r += static_cast<size_t>(device.concurrent))
        device.replicas[r]->program->run(phase);
    });
  }

  // The share of a sum's elements that device d adds up for all: whole cache lines.
  std::pair<int64_t, int64_t> share(const Sum& sum, int64_t d) const {
    auto count = static_cast<int64_t>(devices_.size());
    if (layout_.cross_device_ops == CrossDeviceOps::reduction_to_one_device) {
      if (d > 0) return {sum.size, sum.size};
      count = 1;
    } else if (layout_.cross_device_ops == CrossDeviceOps::hierarchical_copy) {
      if (d % 2 == 1) return {sum.size, sum.size};
      count = (count + 1) / 2;
      d /= 2;
    }
    const int64_t lines = (sum.size + kLine - 1) / kLine;
    return {std::min(sum.size, lines * d / count * kLine),
            std::min(sum.size, lines * (d + 1) / count * kLine)};
  }

  // Every device adds up the nodes of the tree that it holds, then one share of the elements for
  // all, then fetches the other shares. False where another device failed.
  bool sum_over_replicas(int d, int phase) {
    if (std::none_of(sums_.begin(), sums_.end(), [&](const Sum& sum) { return sum.phase == phase; }))
      return true;
    DeviceContext& device = *devices_[static_cast<size_t>(d)];
    const bool alone = devices_.size() == 1;
    const observe::Span span("all_reduce_sum", "communication", {.device = d});
    const observe::TimeScope scope(clock_of(d), Category::exposed_communication);
    if (!alone) {
      for (size_t n = 0; n < device.nodes.size(); ++n)
        if (device.partials[n]) add_own(device, n, phase);
      if (!meet(d)) return false;
    }
    for (const Sum& sum : sums_) {
      if (sum.phase != phase || !device.device->has_memory()) continue;
      const auto [first, last] = share(sum, d);
      void* target = sum.results[static_cast<size_t>(d)][0];
      parallel_for(last - first, kLine * 64, device.threads, [&](int64_t begin, int64_t end) {
        if (alone)
          sum_in_tree_order(sum.dtype, layout_.replicas, leaves_, sum.inputs.data(), target, first + begin,
                            first + end);
        else
          sum_in_tree_order(sum.dtype, layout_.replicas, sum_nodes_, sum.addends.data(), target,
                            first + begin, first + end);
      });
      if (!alone) count_addends(d, static_cast<int64_t>(size_of(sum.dtype)) * (last - first));
    }
    if (!alone && !meet(d)) return false;
    for (const Sum& sum : sums_)
      if (sum.phase == phase) fetch_shares(d, sum);
    // Nobody may overwrite a sum that others still fetch.
    return alone || meet(d);
  }

  void add_own(DeviceContext& device, size_t n, int phase) {
    const TreeNode node = device.nodes[n];
    const std::span<const TreeNode> leaves(leaves_.data() + node.first,
                                           static_cast<size_t>(node.last - node.first));
    for (const Sum& sum : sums_) {
      if (sum.phase != phase || !device.device->has_memory()) continue;
      void* target = static_cast<char*>(device.partials[n]->data()) + sum.scratch;
      parallel_for(sum.size, kLine * 64, device.threads, [&](int64_t begin, int64_t end) {
        sum_partially(sum.dtype, layout_.replicas, leaves, sum.inputs.data() + node.first, target, begin,
                      end);
      });
    }
  }

  // The addends that device d reads from the others' memory.
  void count_addends(int d, int64_t bytes) {
    for (size_t e = 0; e < devices_.size(); ++e) {
      if (static_cast<int>(e) == d) continue;
      const int64_t read = bytes * static_cast<int64_t>(devices_[e]->nodes.size());
      devices_[e]->device->count_copy(0, read);
      devices_[static_cast<size_t>(d)]->device->count_copy(read, 0);
    }
  }

  void fetch_shares(int d, const Sum& sum) {
    const auto& results = sum.results[static_cast<size_t>(d)];
    auto* own = static_cast<char*>(results[0]);
    const size_t width = size_of(sum.dtype);
    for (size_t e = 0; e < devices_.size(); ++e) {
      if (static_cast<int>(e) == d) continue;
      const auto [first, last] = share(sum, static_cast<int64_t>(e));
      const size_t offset = static_cast<size_t>(first) * width;
      copy_across(*devices_[e]->device, static_cast<const char*>(sum.results[e][0]) + offset,
                  *devices_[static_cast<size_t>(d)]->device, own + offset,
                  static_cast<size_t>(last - first) * width);
    }
    for (size_t p = 1; p < results.size(); ++p)
      if (results[p] && devices_[static_cast<size_t>(d)]->device->has_memory())
        std::memcpy(results[p], own, static_cast<size_t>(sum.size) * width);
  }

  std::vector<Plan> plans_;
  ReplicaLayout layout_;
  std::vector<std::vector<int>>
      variable_index_;  // by plan: where plan 0's variables stand there, -1: nowhere
  std::vector<std::unique_ptr<DeviceContext>> devices_;
  std::vector<uint64_t> mirror_versions_;
  std::vector<TreeNode> leaves_;     // the replicas that are not empty
  std::vector<TreeNode> sum_nodes_;  // all devices' nodes in order: they cover every leaf in use
  std::vector<Sum> sums_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Task> tasks_;
  const Waiting waiting_;
  Barrier barrier_;
  observe::StepClock* clock_ = nullptr;  // of the run in progress, as are the inputs
  std::span<const Tensor> inputs_;
  static constexpr uint64_t kNoVersion = ~uint64_t{0};
  static constexpr int64_t kLine = 64;  // elements
  std::vector<OutputPool> output_pool_;
};

Executable::Executable(std::vector<Plan> plans, std::vector<int64_t> plan_slices, ReplicaLayout layout)
    : impl_(std::make_unique<Impl>(std::move(plans), std::move(plan_slices), std::move(layout))) {}
Executable::~Executable() = default;

void Executable::run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) {
  impl_->run(inputs, outputs, clock);
}
MemoryFigures Executable::memory() const { return impl_->memory(); }
const Plan& Executable::plan() const { return impl_->plan(); }

}  // namespace lockstep::compile
