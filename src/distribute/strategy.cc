#include "lockstep/distribute/strategy.h"

#include <algorithm>
#include <mutex>

#include "comm/cluster.h"
#include "execute/all_reduce/choice.h"
#include "execute/replicated_runs.h"
#include "graph/emit.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::distribute {

// --- what a strategy is --------------------------------------------------------------------------------------------

class Strategy::Impl {
 public:
  Impl(Kind kind, std::string name, std::vector<Device*> devices, StrategyOptions options)
      : kind(kind), name(std::move(name)), devices(std::move(devices)), options(std::move(options)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // A loop written by hand ends when nobody holds its strategy any more.
  ~Impl() {
    constexpr int64_t kWorthReporting = 10;  // steps
    if (!clock || !options.report) return;
    observe::RunSummary summary = clock->summary();
    if (observe::steps(summary) < kWorthReporting) return;
    summary.sums = sums;
    observe::print(observe::report_on(std::move(summary), name + "::run"));
  }

  const Kind kind;
  const std::string name;
  const std::vector<Device*> devices;
  const StrategyOptions options;
  std::shared_ptr<const VariableOwner> owner;
  std::unique_ptr<execute::ReplicatedRuns> runs;
  std::unique_ptr<observe::StepClock> clock;
  std::string sums;  // who makes them, of several devices
};

// A strategy as variables know it. Does not keep it alive: variables outlive strategies.
class StrategyOwner final : public VariableOwner {
 public:
  explicit StrategyOwner(const std::shared_ptr<Strategy::Impl>& impl)
      : impl_(impl), description_(Strategy(impl).description()) {}
  std::string description() const override { return description_; }
  std::optional<Strategy> strategy() const {
    auto impl = impl_.lock();
    if (!impl) return {};
    return Strategy(std::move(impl));
  }

 private:
  std::weak_ptr<Strategy::Impl> impl_;
  std::string description_;
};

namespace {

std::vector<Device*> chosen_devices(const char* strategy, const std::vector<std::string>& names,
                                    std::source_location where) {
  std::vector<Device*> devices;
  for (const std::string& name : names) {
    Device& device = device_by_name(name, where);
    require(std::find(devices.begin(), devices.end(), &device) == devices.end(), ErrorCode::invalid_argument,
            where, strategy, ": ", device.name(),
            " is listed twice; every replica needs a device of its own");
    devices.push_back(&device);
  }
  if (!devices.empty()) return devices;
  for (const DeviceKind kind : {DeviceKind::gpu, DeviceKind::cpu}) {
    for (Device* device : logical_devices(where))
      if (device->kind() == kind) devices.push_back(device);
    if (!devices.empty()) break;
  }
  return devices;
}

void check_options(const char* strategy, const StrategyOptions& options, size_t devices,
                   std::source_location where) {
  require(options.weights.empty() || options.weights.size() == devices, ErrorCode::invalid_argument, where,
          strategy, ": ", options.weights.size(), " weights for ", devices, " devices");
  for (const double weight : options.weights)
    require(weight > 0, ErrorCode::invalid_argument, where, strategy, ": weights must be positive, received ",
            weight);
  require(!options.reproducible || options.virtual_replicas >= static_cast<int>(devices),
          ErrorCode::invalid_argument, where, strategy, ": ", options.virtual_replicas,
          " virtual replicas are fewer than the ", devices, " devices");
}

// All strategies that are alive.
struct Alive {
  std::mutex mutex;
  std::vector<std::weak_ptr<Strategy::Impl>> list;
};
Alive& alive() {
  static auto* all = new Alive;
  return *all;
}

ReplicaOptions replicas_of(const Strategy::Impl& impl) {
  return {.devices = impl.devices,
          .reproducible = impl.options.reproducible,
          .virtual_replicas = impl.options.virtual_replicas,
          .weights = impl.options.weights,
          .central_updates = impl.kind == Strategy::Kind::central_storage,
          .cross_device_ops = impl.options.cross_device_ops,
          .bucket_bytes = impl.options.bucket_bytes};
}

std::shared_ptr<Strategy::Impl> make(Strategy::Kind kind, const char* name,
                                     const std::vector<std::string>& names, const StrategyOptions& options,
                                     std::source_location where) {
  std::vector<Device*> devices = chosen_devices(name, names, where);
  check_options(name, options, devices.size(), where);
  auto impl = std::make_shared<Strategy::Impl>(kind, name, std::move(devices), options);
  impl->owner = std::make_shared<const StrategyOwner>(impl);
  impl->runs = std::make_unique<execute::ReplicatedRuns>(replicas_of(*impl));
  const std::lock_guard lock(alive().mutex);
  std::erase_if(alive().list, [](const auto& other) { return other.expired(); });
  alive().list.push_back(impl);
  return impl;
}

std::shared_ptr<Strategy::Impl> make_multi_worker(const StrategyOptions& options,
                                                  std::source_location where) {
  const comm::Cluster cluster = comm::read_cluster(where);
  require(cluster.size == 1 && !cluster.evaluator, ErrorCode::unsupported, where,
          "MultiWorkerMirroredStrategy: this process is ", cluster.description,
          ", and this version trains within one process: each worker would train by itself. Use "
          "MirroredStrategy on one "
          "machine");
  log(LogLevel::info, "MultiWorkerMirroredStrategy: ", cluster.description);
  return make(Strategy::Kind::mirrored, "MultiWorkerMirroredStrategy", {}, options, where);
}

const std::shared_ptr<Strategy::Impl>& default_impl() {
  static const auto* impl = new std::shared_ptr<Strategy::Impl>(std::make_shared<Strategy::Impl>(
      Strategy::Kind::none, "default strategy", std::vector<Device*>(), StrategyOptions()));
  return *impl;
}

}  // namespace

Strategy::Strategy() : impl_(default_impl()) {}
OneDeviceStrategy::OneDeviceStrategy(const std::string& device, const StrategyOptions& options,
                                     std::source_location where)
    : Strategy(make(Kind::one_device, "OneDeviceStrategy", {device}, options, where)) {}
MirroredStrategy::MirroredStrategy(const std::vector<std::string>& devices, const StrategyOptions& options,
                                   std::source_location where)
    : Strategy(make(Kind::mirrored, "MirroredStrategy", devices, options, where)) {}
MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const StrategyOptions& options,
                                                         std::source_location where)
    : Strategy(make_multi_worker(options, where)) {}
CentralStorageStrategy::CentralStorageStrategy(const std::vector<std::string>& devices,
                                               const StrategyOptions& options, std::source_location where)
    : Strategy(make(Kind::central_storage, "CentralStorageStrategy", devices, options, where)) {}

Strategy::Kind Strategy::kind() const { return impl_->kind; }
const std::string& Strategy::name() const { return impl_->name; }
const std::vector<Device*>& Strategy::devices() const { return impl_->devices; }
const StrategyOptions& Strategy::options() const { return impl_->options; }
int Strategy::num_replicas_in_sync() const {
  if (impl_->options.reproducible) return impl_->options.virtual_replicas;
  return std::max(1, static_cast<int>(impl_->devices.size()));
}
std::string Strategy::description() const {
  std::string text = impl_->name;
  for (size_t d = 0; d < impl_->devices.size(); ++d)
    text += (d == 0 ? " on " : ", ") + impl_->devices[d]->name();
  return text;
}
std::string Strategy::sums_description() const {
  if (impl_->devices.empty()) return "one replica: nothing is added up";
  return execute::choose_all_reduce(impl_->devices, impl_->options.reproducible,
                                    impl_->options.cross_device_ops)
      .reason;
}
ReplicaOptions Strategy::replica_options() const { return replicas_of(*impl_); }

// --- scope ---------------------------------------------------------------------------------------------------------

const std::shared_ptr<const VariableOwner>& Strategy::owner() const { return impl_->owner; }

Strategy Strategy::of(const std::shared_ptr<const VariableOwner>& owner) {
  const auto* known = dynamic_cast<const StrategyOwner*>(owner.get());
  return known ? known->strategy().value_or(Strategy()) : Strategy();
}

Strategy Strategy::current() { return of(VariableOwnerScope::current()); }

Strategy::Scope Strategy::scope(std::source_location where) const { return {*this, where}; }

Strategy::Scope::Scope(const Strategy& strategy, std::source_location where) {
  const Strategy outer = current();
  require(outer.kind() == Kind::none || outer == strategy, ErrorCode::failed_precondition, where,
          "scope: inside the scope of ", outer.description(), " there can be none of another strategy (",
          strategy.description(), "); end the outer one first");
  owner_ = std::make_unique<VariableOwnerScope>(strategy.owner());
}
Strategy::Scope::~Scope() = default;

void Strategy::adopt(const std::vector<Variable>& variables) const {
  for (const Variable& variable : variables) variable.set_owner(impl_->owner);
}

void Strategy::require_own(const std::vector<Variable>& variables, const char* user,
                           std::source_location where) const {
  for (const Variable& variable : variables) {
    if (variable.owner() == impl_->owner || (!variable.owner() && !variable.trainable())) continue;
    const std::source_location made = variable.where();
    const std::string theirs = variable.owner() ? variable.owner()->description() : "no strategy";
    fail(ErrorCode::failed_precondition, where, user, ": variable \"", variable.name(), "\" made at ",
         made.file_name(), ":", made.line(), " belongs to ", theirs, ", not to ", description(),
         "; make it (its layer or model) inside  auto scope = strategy.scope();  or hand it over with "
         "strategy.adopt(model)");
  }
}

void Strategy::require_none_forgotten(const char* user, std::source_location where) {
  const std::lock_guard lock(alive().mutex);
  for (const auto& other : alive().list) {
    const auto impl = other.lock();
    if (!impl || impl->devices.size() < 2 || impl->owner->used()) continue;
    fail(ErrorCode::failed_precondition, where, user, ": would use one device, while ",
         Strategy(impl).description(),
         " is there and nothing was made in its scope; make and compile the model "
         "inside  auto scope = strategy.scope();  or hand it over with strategy.adopt(model)");
  }
}

// --- run -----------------------------------------------------------------------------------------------------------

void Strategy::add(std::vector<Argument>& arguments, const Distributed& value) const {
  const std::source_location here = std::source_location::current();
  if (value.whole().defined()) {
    arguments.push_back({value.whole(), kind() != Kind::none});
    return;
  }
  const TensorList parts = value.local_results();
  require(!parts.empty(), ErrorCode::invalid_argument, here, "run: a distributed argument has no value");
  require(
      parts.size() == static_cast<size_t>(value.replicas()) || parts.size() == 1, ErrorCode::invalid_argument,
      here,
      "run: a distributed argument must have a value for every replica; distribute() cuts a batch as run() "
      "wants it");
  // Values that are not rows of one tensor become the rows of one.
  arguments.push_back({parts.size() == 1 ? parts[0] : concat(parts, 0), kind() != Kind::none});
}

void Strategy::add(std::vector<Argument>& arguments, const RunArgument& argument) const {
  if (const auto* tensor = std::get_if<Tensor>(&argument.value())) {
    add(arguments, *tensor);
  } else if (const auto* value = std::get_if<const Distributed*>(&argument.value())) {
    add(arguments, **value);
  } else if (const auto* element = std::get_if<const DistributedElement*>(&argument.value())) {
    add(arguments, **element);
  } else if (const auto* given = std::get_if<const data::Element*>(&argument.value())) {
    const data::Element& batch = **given;
    require(num_replicas_in_sync() == 1, ErrorCode::invalid_argument, std::source_location::current(),
            "run: a batch of ", batch.spec(),
            " is not distributed, so that no replica has a slice of it; "
            "distribute() it, or go over  strategy.distribute_dataset(dataset)");
    for (const Tensor& tensor : batch.flat()) add(arguments, tensor);
  }
}

std::vector<Distributed> Strategy::run_body(const Body& body, const std::vector<Argument>& arguments) const {
  const std::source_location here = std::source_location::current();
  TensorList inputs;
  std::vector<bool> split;
  for (const Argument& argument : arguments) {
    require(argument.value.defined(), ErrorCode::invalid_argument, here, "run: an argument is none");
    inputs.push_back(argument.value);
    split.push_back(argument.split);
  }
  std::vector<Distributed> results;
  if (kind() == Kind::none) {
    for (const Tensor& value : body(inputs)) results.push_back(Distributed::same(value, 1));
    return results;
  }
  // Without a batch every replica does the same: a row for each.
  if (std::none_of(split.begin(), split.end(), [](bool s) { return s; })) {
    inputs.push_back(range(num_replicas_in_sync(), DType::int64));
    split.push_back(true);
  }
  if (!impl_->clock)
    impl_->clock = std::make_unique<observe::StepClock>(
        observe::StepClockOptions{.replicas = static_cast<int>(impl_->devices.size())});
  if (impl_->sums.empty() && impl_->devices.size() > 1) impl_->sums = sums_description();
  observe::StepClock& clock = *impl_->clock;
  clock.begin_step();
  execute::ReplicatedRuns::Result run;
  try {
    const observe::TimeScopeOfAll scope(clock, observe::Category::host);
    run = impl_->runs->run(
        name() + "::run", [&](std::span<const Tensor> in) { return body(in.first(arguments.size())); },
        inputs, split, &clock,
        [&](const std::vector<Variable>& variables) { require_own(variables, "run", here); }, here);
  } catch (...) {
    clock.abandon_step();
    throw;
  }
  std::vector<int64_t> sizes;
  for (const execute::Slice& slice : run.slices) sizes.push_back(slice.size);
  clock.end_step();
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const Tensor& output = run.outputs[i];
    switch (run.spreads[i]) {
      case execute::ReplicatedRuns::Spread::same:
        results.push_back(Distributed::same(output, num_replicas_in_sync()));
        break;
      case execute::ReplicatedRuns::Spread::rows: results.push_back(Distributed::rows(output, sizes)); break;
      case execute::ReplicatedRuns::Spread::blocks: {
        TensorList values;
        for (size_t r = 0; r < sizes.size(); ++r) {
          Dims begin = Dims::filled(output.rank(), 0), size = Dims::filled(output.rank(), -1);
          begin[0] = static_cast<int64_t>(r);
          size[0] = 1;
          values.push_back(sizes[r] > 0 ? squeeze(slice(output, begin, size), {0}) : Tensor());
        }
        results.push_back(Distributed::of(std::move(values)));
        break;
      }
    }
  }
  return results;
}

observe::RunSummary Strategy::summary() const {
  observe::RunSummary summary = impl_->clock ? impl_->clock->summary() : observe::RunSummary();
  summary.sums = impl_->sums;
  return summary;
}

// --- joining -------------------------------------------------------------------------------------------------------

Tensor Strategy::reduce(ReduceOp op, const Distributed& value, std::optional<int> axis,
                        std::source_location where) const {
  TensorList parts = value.local_results();
  require(!parts.empty(), ErrorCode::invalid_argument, where, "reduce: the value is empty on every replica");
  double count = static_cast<double>(parts.size());
  if (axis) {
    count = 0;
    for (Tensor& part : parts) {
      count += static_cast<double>(part.shape()[normalize_axis(*axis, part.rank(), "reduce", where)]);
      part = reduce_sum(part, {.axis = {*axis}});
    }
  }
  Tensor sum = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    require(parts[i].shape() == sum.shape(), ErrorCode::shape_mismatch, where,
            "reduce: replicas hold values of different shapes, ", sum.shape(), " and ", parts[i].shape(),
            "; say which axis to reduce along, or gather() them");
    sum = sum + parts[i];
  }
  return op == ReduceOp::sum ? sum : sum / count;
}

Tensor Strategy::gather(const Distributed& value, int axis, std::source_location where) const {
  if (axis == 0 && value.whole().defined()) return value.whole();
  const TensorList parts = value.local_results();
  require(!parts.empty(), ErrorCode::invalid_argument, where, "gather: the value is empty on every replica");
  return concat(parts, axis, where);
}

// --- data ----------------------------------------------------------------------------------------------------------

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size,
                                                 std::source_location where) const {
  require(global_batch_size % num_replicas_in_sync == 0, ErrorCode::invalid_argument, where,
          "a global batch of ", global_batch_size, " cannot be divided evenly among ", num_replicas_in_sync,
          " replicas");
  return global_batch_size / num_replicas_in_sync;
}

Distributed Strategy::distribute(const Tensor& batch, std::source_location where) const {
  require(batch.defined() && batch.rank() > 0, ErrorCode::shape_mismatch, where,
          "a batch has a first dimension that runs over the examples, received ",
          batch.defined() ? "a scalar: the dataset is not batched, add  .batch(global_batch_size)" : "none");
  const int64_t rows = batch.shape()[0];
  const std::vector<execute::Slice> slices = impl_->options.weights.empty()
                                                 ? execute::slice_batch(rows, num_replicas_in_sync())
                                                 : execute::slice_batch(rows, impl_->options.weights);
  std::vector<int64_t> sizes;
  for (const execute::Slice& slice : slices) sizes.push_back(slice.size);
  return Distributed::rows(batch, std::move(sizes));
}

DistributedElement Strategy::distribute(const data::Element& batch, std::source_location where) const {
  DistributedElement element{batch.structure(), {}};
  for (const Tensor& tensor : batch.flat()) element.flat.push_back(distribute(tensor, where));
  return element;
}

const Distributed& DistributedElement::operator[](Located<int64_t> position) const {
  require(position.value >= 0 && position.value < static_cast<int64_t>(flat.size()),
          ErrorCode::invalid_argument, position.where, "a batch of ", flat.size(), " tensors has no number ",
          position.value);
  return flat[static_cast<size_t>(position.value)];
}

DistributedDataset::DistributedDataset(const Strategy& strategy, data::Dataset dataset)
    : strategy_(std::make_shared<const Strategy>(strategy)), dataset_(std::move(dataset)) {}

DistributedDataset Strategy::distribute_dataset(const data::Dataset& dataset,
                                                std::source_location where) const {
  require(dataset.defined(), ErrorCode::invalid_argument, where, "distribute_dataset: there is no dataset");
  return {*this, dataset};
}

DistributedDataset Strategy::distribute_datasets_from_function(
    const std::function<data::Dataset(const InputContext&)>& make, std::source_location where) const {
  const InputContext context{.num_replicas_in_sync = num_replicas_in_sync()};
  const data::Dataset local = make(context);
  require(local.defined(), ErrorCode::invalid_argument, where,
          "distribute_datasets_from_function: the function returned no dataset");
  // A replica's batches, one for each replica, are a global one.
  const auto size = local.element_spec(where).tensors;
  require(!size.empty() && size[0].shape.rank() > 0, ErrorCode::shape_mismatch, where,
          "distribute_datasets_from_function: the dataset is not batched; add  "
          ".batch(context.get_per_replica_batch_size(global_batch_size))");
  const int64_t each = size[0].shape[0];
  if (num_replicas_in_sync() == 1) return {*this, local};
  require(each > 0, ErrorCode::invalid_argument, where,
          "distribute_datasets_from_function: the size of a batch must be known; batch with drop_remainder");
  return {*this, local.rebatch(each * num_replicas_in_sync(), false, where)};
}

DistributedDataset::iterator& DistributedDataset::iterator::operator++() {
  data::Element batch;
  goes_on_ = iterator_->next(batch);
  if (goes_on_) element_ = strategy_->distribute(batch);
  return *this;
}

// --- inside of a replica -------------------------------------------------------------------------------------------

int num_replicas_in_sync() {
  const ReplicaTrace* replica = ReplicaTrace::current();
  return replica ? static_cast<int>(replica->begins.size()) : 1;
}

Tensor replica_id(std::source_location where) {
  const ReplicaTrace* replica = ReplicaTrace::current();
  if (!replica) return Tensor::scalar<int32_t>(0);
  const std::vector<int64_t>& begins = replica->begins;
  // Slices begin one after another: as many as begin up to here, this one not counted.
  const Tensor offset = emit_one(kExampleOffset, {}, {}, where);
  const Tensor all = Tensor::from<int64_t>(begins, {static_cast<int64_t>(begins.size())});
  return reduce_sum(cast(greater_equal(offset, all), DType::int32)) - 1.0;
}

Tensor all_reduce(ReduceOp op, const Tensor& value, std::source_location where) {
  const ReplicaTrace* replica = ReplicaTrace::current();
  if (!replica) return value;
  return all_reduce_sum(TensorArg(op == ReduceOp::sum ? value : value * replica->share(), where));
}

Tensor global_mean(const Tensor& per_example, std::source_location where) {
  require(per_example.defined() && per_example.rank() > 0, ErrorCode::shape_mismatch, where,
          "global_mean takes one value an example (first dimension), received ",
          per_example.defined() ? "a scalar" : "none");
  return reduce_sum(per_example) / static_cast<double>(global_size(per_example, where));
}

}  // namespace lockstep::distribute
