#include "lockstep/distribute/strategy.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <set>

#include "comm/cluster.h"
#include "comm/connection.h"
#include "comm/workers.h"
#include "device/ceilings.h"
#include "device/configuration.h"
#include "device/why_one_device.h"
#include "distribute/strategy_owner.h"
#include "distribute/worker_batches.h"
#include "distribute/worker_summaries.h"
#include "execute/all_reduce/choice.h"
#include "execute/replicated_runs.h"
#include "execute/same_program.h"
#include "graph/eager.h"
#include "graph/emit.h"
#include "graph/tensor_bytes.h"
#include "graph/variable_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/base/errors.h"
#include "lockstep/base/log.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "observe/loop.h"
#include "ops/random/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::distribute {

// --- what a strategy is --------------------------------------------------------------------------------------------

class Strategy::Impl {
 public:
  Impl(Kind kind, std::string name, std::vector<Device*> devices, StrategyOptions options,
       std::shared_ptr<comm::Workers> workers)
      : kind(kind),
        name(std::move(name)),
        devices(std::move(devices)),
        options(std::move(options)),
        workers(std::move(workers)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // A loop written by hand ends when nobody holds its strategy any more.
  ~Impl() {
    constexpr double kWaitsForOthers = 10;  // seconds: they end their loops when this one does, or not at all
    if (!loop || !options.report) return;
    observe::RunSummary summary = loop->summary();
    if (observe::steps(summary) < observe::kWorthReporting) return;
    if (workers && std::uncaught_exceptions() == 0)
      summary = of_all_workers(*workers, std::move(summary), kWaitsForOthers);
    if (workers && !workers->chief()) return;
    observe::print(observe::report_on(std::move(summary), loop->title()));
  }

  // Of the loop over run(), which begins now where there is none.
  observe::Loop& running(const Strategy& self) {
    if (loop) return *loop;
    if (devices.size() > 1 || workers) sums = self.sums_description();
    loop = std::make_unique<observe::Loop>(
        name + "::run", static_cast<int>(devices.size()),
        [this, used = DevicesOfRun(devices)](observe::RunSummary& summary) {
          summary.sums = sums;
          summary.setting.kind = observe::RunKind::strategy;
          summary.setting.same_examples = std::max(workers_alike.load(), replicas_alike());
          used.describe(summary);
        });
    return *loop;
  }

  // Replicas that were given the same tensors by every run(), none of which was distributed.
  int replicas_alike() const { return undistributed == runs_made ? static_cast<int>(devices.size()) : 1; }

  const Kind kind;
  const std::string name;
  const std::vector<Device*> devices;
  const StrategyOptions options;
  const std::shared_ptr<comm::Workers> workers;  // null: this process alone
  std::shared_ptr<const VariableOwner> owner;
  std::unique_ptr<execute::ReplicatedRuns> runs;
  std::string sums;           // who makes them, of several devices
  std::set<uint64_t> shared;  // variables that have had the chief's value
  std::unique_ptr<observe::Loop> loop;
  std::atomic<int> workers_alike{1};  // that read the same batches
  std::atomic<int64_t> runs_made{0};
  std::atomic<int64_t> undistributed{0};  // of them, with batches that every replica got whole
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

// `devices`: of all workers.
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

// Those of all strategies that are alive.
struct Owners {
  std::mutex mutex;
  std::vector<std::weak_ptr<const StrategyOwner>> list;
};
Owners& owners() {
  static auto* all = new Owners;
  return *all;
}

ReplicaOptions replicas_of(const Strategy::Impl& impl) {
  return {.devices = impl.devices,
          .workers = impl.workers,
          .reproducible = impl.options.reproducible,
          .virtual_replicas = impl.options.virtual_replicas,
          .weights = impl.options.weights,
          .central_updates = impl.kind == Strategy::Kind::central_storage,
          .cross_device_ops = impl.options.cross_device_ops,
          .bucket_bytes = impl.options.bucket_bytes,
          .bf16_gradients = impl.options.communication.compression == Compression::bf16};
}

std::shared_ptr<Strategy::Impl> make(Strategy::Kind kind, const char* name,
                                     const std::vector<std::string>& names, const StrategyOptions& options,
                                     std::source_location where,
                                     const std::shared_ptr<comm::Workers>& workers = nullptr) {
  std::vector<Device*> devices = chosen_devices(name, names, where);
  if (names.empty() && devices.size() == 1 && !workers)
    if (const std::string why = why_one_device(device_facts(Configuration::of_process())); !why.empty())
      log_once(LogAt(LogLevel::warning, where), name, " has one device, ", devices[0]->name(), ": ", why);
  const size_t processes = workers ? static_cast<size_t>(workers->size()) : 1;
  check_options(name, options, devices.size() * processes, where);
  auto impl = std::make_shared<Strategy::Impl>(kind, name, std::move(devices), options, workers);
  const auto owner = std::make_shared<const StrategyOwner>(impl);
  impl->owner = owner;
  impl->runs = std::make_unique<execute::ReplicatedRuns>(replicas_of(*impl));
  const std::lock_guard lock(owners().mutex);
  std::erase_if(owners().list, [](const auto& other) { return other.expired(); });
  owners().list.push_back(owner);
  return impl;
}

comm::Engine engine_of(CommunicationImplementation implementation) {
  switch (implementation) {
    case CommunicationImplementation::automatic: return comm::Engine::automatic;
    case CommunicationImplementation::gloo: return comm::Engine::gloo;
    case CommunicationImplementation::mpi: return comm::Engine::mpi;
    case CommunicationImplementation::nccl: return comm::Engine::nccl;
  }
  return comm::Engine::automatic;
}

// What workers must have in common for one program to run on all of them.
void agree(comm::Workers& workers, const std::vector<Device*>& devices, const StrategyOptions& options,
           std::source_location where) {
  std::string described;
  for (const Device* device : devices)
    described +=
        detail::concat(described.empty() ? "" : ", ", device->kind() == DeviceKind::gpu ? "GPU" : "CPU");
  workers.require_equal("their devices", described, where);
  workers.require_equal("the options of the strategy",
                        detail::concat("reproducible ", options.reproducible, ", virtual_replicas ",
                                       options.virtual_replicas, ", bucket_bytes ", options.bucket_bytes,
                                       ", cross_device_ops ", static_cast<int>(options.cross_device_ops),
                                       ", timeout_seconds ", options.communication.timeout_seconds,
                                       ", elastic.min_workers ", options.elastic.min_workers,
                                       ", compression ", static_cast<int>(options.communication.compression)),
                        where);
  // Initial values and the seeds of shuffles are drawn from it.
  int64_t state = random::default_generator().position();
  workers.broadcast("the state of the random generator", &state, sizeof state);
  random::agree_on(state);
}

constexpr int64_t kNoState = -1;  // of a loop by hand, in the place of the steps that a worker has finished

// Of a worker that is not in the run.
void join_loop(comm::Workers& workers, const char* what, std::source_location where) {
  try {
    workers.join();
  } catch (const comm::Passed&) {
    fail(ErrorCode::failed_precondition, where, what,
         ": the run is past this loop, and how that went is known to nobody; a program whose workers are to "
         "join at any time has one loop by hand, or trains with fit");
  }
}

constexpr const char* kSentAsBf16 = "; gradients are sent as bfloat16";

std::shared_ptr<Strategy::Impl> make_multi_worker(const StrategyOptions& options,
                                                  std::source_location where) {
  constexpr const char* kName = "MultiWorkerMirroredStrategy";
  const comm::Cluster cluster = comm::read_cluster(where);
  const CommunicationOptions& communication = options.communication;
  require(communication.timeout_seconds > 0 && communication.join_timeout_seconds > 0,
          ErrorCode::invalid_argument, where, kName, ": time limits must be positive, received ",
          communication.timeout_seconds, " and ", communication.join_timeout_seconds);
  require(
      options.elastic.min_workers >= 0 && (options.elastic.min_workers <= cluster.size || cluster.size == 1),
      ErrorCode::invalid_argument, where, kName, ": elastic.min_workers is ", options.elastic.min_workers,
      ", of ", cluster.size, " workers");
  if (cluster.rank == 0) log(LogLevel::info, kName, ": ", cluster.description);
  if (cluster.size == 1 || cluster.evaluator)
    return make(Strategy::Kind::mirrored, kName, {}, options, where);
  const std::vector<Device*> devices = chosen_devices(kName, {}, where);
  check_options(kName, options, devices.size() * static_cast<size_t>(cluster.size), where);
  const bool compressed = communication.compression == Compression::bf16;
  require(
      !compressed || !options.reproducible, ErrorCode::unsupported, where, kName,
      ": Compression::bf16 and reproducible exclude each other: each worker rounds its own sum, so that bits "
      "depend on the number of workers; choose one of them");
  require(!compressed || devices[0]->kind() == DeviceKind::cpu, ErrorCode::unsupported, where, kName,
          ": Compression::bf16 is for workers with CPUs; between GPUs a model of the policy mixed_bfloat16 "
          "sends half the bytes");
  require(options.weights.empty(), ErrorCode::unsupported, where, kName,
          ": slices cannot be weighted where several workers train together; leave weights empty");
  const std::shared_ptr<comm::Workers> workers =
      comm::Workers::meet(cluster,
                          {.engine = engine_of(communication.implementation),
                           .on_gpus = devices[0]->kind() == DeviceKind::gpu,
                           .timeout_s = communication.timeout_seconds,
                           .join_timeout_s = communication.join_timeout_seconds,
                           .min_workers = options.elastic.min_workers,
                           .wait_s = options.elastic.wait_seconds},
                          where);
  agree(*workers, devices, options, where);
  if (workers->newcomer())
    log(LogLevel::info, kName,
        ": the run is under way; this worker joins it when it calls fit or "
        "admit");
  else if (workers->chief())
    log(LogLevel::info, kName, ": ", workers->description(), compressed ? kSentAsBf16 : "");
  return make(Strategy::Kind::mirrored, kName, {}, options, where, workers);
}

const std::shared_ptr<Strategy::Impl>& default_impl() {
  static const auto* impl = new std::shared_ptr<Strategy::Impl>(std::make_shared<Strategy::Impl>(
      Strategy::Kind::none, "default strategy", std::vector<Device*>(), StrategyOptions(), nullptr));
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
int Strategy::num_workers() const { return impl_->workers ? impl_->workers->size() : 1; }
int Strategy::worker() const { return impl_->workers ? impl_->workers->rank() : 0; }
const std::shared_ptr<comm::Workers>& Strategy::workers() const { return impl_->workers; }
bool Strategy::is_chief() const { return !impl_->workers || impl_->workers->chief(); }
bool Strategy::elastic() const { return impl_->workers && impl_->workers->elastic(); }
int Strategy::num_replicas_in_sync() const {
  if (impl_->options.reproducible) return impl_->options.virtual_replicas;
  // Who has not joined yet must come to the sizes that the others came to when they began.
  if (impl_->workers && impl_->workers->newcomer())
    return impl_->workers->launched() * static_cast<int>(impl_->devices.size());
  return std::max(1, num_workers() * static_cast<int>(impl_->devices.size()));
}
std::string Strategy::description() const {
  std::string text = impl_->name;
  for (size_t d = 0; d < impl_->devices.size(); ++d)
    text += (d == 0 ? " on " : ", ") + impl_->devices[d]->name();
  if (impl_->workers) text += detail::concat(" of worker ", worker(), " of ", num_workers());
  return text;
}
std::string Strategy::sums_description() const {
  if (impl_->devices.empty()) return "one replica: nothing is added up";
  const std::string reason =
      execute::choose_all_reduce(impl_->devices, impl_->options.reproducible, impl_->options.cross_device_ops,
                                 impl_->workers != nullptr)
          .reason;
  if (!impl_->workers) return reason;
  const bool compressed = impl_->options.communication.compression == Compression::bf16;
  return detail::concat(impl_->workers->description(), "; ", reason, compressed ? kSentAsBf16 : "");
}
ReplicaOptions Strategy::replica_options() const { return replicas_of(*impl_); }

// --- scope ---------------------------------------------------------------------------------------------------------

const std::shared_ptr<const VariableOwner>& Strategy::owner() const { return impl_->owner; }

StrategyOwner::StrategyOwner(const std::shared_ptr<Strategy::Impl>& impl)
    : impl_(impl),
      description_(Strategy(impl).description()),
      several_(impl->devices.size() > 1 || impl->workers) {}

std::optional<Strategy> StrategyOwner::strategy() const {
  auto impl = impl_.lock();
  if (!impl) return {};
  return Strategy(std::move(impl));
}

std::vector<std::shared_ptr<const StrategyOwner>> living_owners() {
  const std::lock_guard lock(owners().mutex);
  std::vector<std::shared_ptr<const StrategyOwner>> living;
  for (const auto& owner : owners().list)
    if (auto known = owner.lock(); known && known->alive()) living.push_back(std::move(known));
  return living;
}

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

// --- run -----------------------------------------------------------------------------------------------------------

void Strategy::add(std::vector<Argument>& arguments, const Distributed& value) const {
  const std::source_location here = std::source_location::current();
  if (value.whole().defined()) {
    arguments.push_back({value.whole(), kind() != Kind::none, value.worker_rows()});
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
  arguments.push_back({parts.size() == 1 ? parts[0] : concat(parts, 0), kind() != Kind::none, {}});
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
  std::vector<int64_t> worker_rows;
  for (const Argument& argument : arguments) {
    require(argument.value.defined(), ErrorCode::invalid_argument, here, "run: an argument is none");
    inputs.push_back(argument.value);
    split.push_back(argument.split);
    if (worker_rows.empty()) worker_rows = argument.worker_rows;
  }
  require(
      !impl_->workers || !impl_->workers->newcomer(), ErrorCode::unsupported, here,
      "run: this worker was started while the run is under way; a loop by hand that others may join calls "
      "strategy.admit() before its steps, as fit does by itself");
  std::vector<Distributed> results;
  if (kind() == Kind::none) {
    for (const Tensor& value : body(inputs)) results.push_back(Distributed::same(value, 1));
    return results;
  }
  ++impl_->runs_made;
  // Without a batch every replica does the same: a row for each.
  if (std::none_of(split.begin(), split.end(), [](bool s) { return s; })) {
    impl_->undistributed +=
        std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.rank() > 0; });
    const Distributed all = distribute(range(num_replicas_in_sync(), DType::int64), here);
    inputs.push_back(all.whole());
    split.push_back(true);
    worker_rows = all.worker_rows();
  }
  observe::Loop& loop = impl_->running(*this);
  observe::StepClock& clock = loop.clock();
  observe::TimedStep step(&clock);
  execute::ReplicatedRuns::Result run;
  {
    const observe::TimeScopeOfAll scope(clock, observe::Category::host);
    run = impl_->runs->run(
        name() + "::run", [&](std::span<const Tensor> in) { return body(in.first(arguments.size())); },
        inputs, split, worker_rows, &clock,
        [&](const std::vector<Variable>& variables) {
          require_own(variables, "run", here);
          share_new_values(variables);
        },
        here);
  }
  step.made();
  loop.look();
  std::vector<int64_t> sizes;
  for (const execute::Slice& slice : run.slices) sizes.push_back(slice.size);
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const Tensor& output = run.outputs[i];
    switch (run.spreads[i]) {
      case execute::ReplicatedRuns::Spread::same:
        results.push_back(Distributed::same(output, static_cast<int>(sizes.size())));
        break;
      case execute::ReplicatedRuns::Spread::rows:
        results.push_back(Distributed::rows(output, sizes, worker_rows));
        break;
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

void Strategy::note_same_examples(int workers) const { impl_->workers_alike = workers; }

std::vector<Distributed> Strategy::run_tensors(const Body& f, std::span<const RunArgument> arguments,
                                               std::source_location where) const {
  const CallSite site(where);
  std::vector<Argument> tensors;
  for (const RunArgument& argument : arguments) add(tensors, argument);
  return run_body(f, tensors);
}

observe::RunSummary Strategy::summary() const {
  return impl_->loop ? impl_->loop->summary() : observe::RunSummary();
}

// --- workers -------------------------------------------------------------------------------------------------------

namespace {

// What all workers hold, in their order.
TensorList of_all_workers(comm::Workers* workers, const char* what, const TensorList& own) {
  if (!workers) return own;
  comm::MessageWriter message;
  message.put(static_cast<int32_t>(own.size()));
  for (const Tensor& tensor : own) {
    message.put(static_cast<int32_t>(tensor.dtype())).put(int32_t{tensor.rank()});
    for (int i = 0; i < tensor.rank(); ++i) message.put(tensor.shape()[i]);
    message.put_text(bytes_of(tensor));
  }
  TensorList all;
  for (const std::string& each : workers->gather_large(what, message.take())) {
    comm::MessageReader reader(each);
    for (auto count = reader.get<int32_t>(); count > 0; --count) {
      TensorSpec spec;
      spec.dtype = static_cast<DType>(reader.get<int32_t>());
      for (auto rank = reader.get<int32_t>(); rank > 0; --rank) spec.shape.push_back(reader.get<int64_t>());
      all.push_back(tensor_of(spec, reader.get_text()));
    }
  }
  return all;
}

}  // namespace

TensorList Strategy::gather_from_workers(const char* what, const TensorList& own) const {
  return of_all_workers(impl_->workers.get(), what, own);
}

void Strategy::share_values(const std::vector<Variable>& variables) const {
  if (!impl_->workers) return;
  comm::Workers& workers = *impl_->workers;
  execute::require_same_variables(workers, variables, std::source_location::current());
  std::string bytes;
  for (const Variable& variable : variables) {
    impl_->shared.insert(variable.id());
    if (!variable.per_replica()) bytes += bytes_of(variable.value());
  }
  const bool own_counts = workers.chief();
  workers.broadcast("the values of variables", bytes.data(), static_cast<int64_t>(bytes.size()));
  size_t at = 0;
  for (const Variable& variable : variables) {
    const TensorSpec spec{variable.dtype(), variable.shape()};
    if (variable.per_replica()) {
      // Parts that all workers have become one of the chief's.
      TensorList own;
      for (const Tensor& part : variable.impl()->parts)
        if (part.defined()) own.push_back(part);
      if (own.empty()) own.push_back(variable.value());
      // One after the other, as one process adds them up.
      const TensorList parts = of_all_workers(&workers, "the parts of a variable", own);
      Tensor sum = parts[0];
      for (size_t r = 1; r < parts.size(); ++r) sum = variable.impl()->sum_of_parts(sum, parts[r]);
      const Tensor mine = own_counts ? sum : Tensor::full(spec.dtype, spec.shape, 0, sum.device());
      variable.assign(mine.to(variable.value().device()));
      continue;
    }
    if (!own_counts && bytes.compare(at, spec.bytes(), bytes_of(variable.value())) != 0)
      variable.assign(tensor_of(spec, bytes.substr(at, spec.bytes())).to(variable.value().device()));
    at += spec.bytes();
  }
}

int64_t Strategy::recover(int64_t steps, const std::vector<Variable>& variables,
                          std::source_location where) const {
  require(elastic(), ErrorCode::failed_precondition, where, "recover: ", description(),
          " is not elastic; make it with {.elastic = {.min_workers = 2}}");
  comm::Workers& workers = *impl_->workers;
  while (true) {
    // Newcomers wait in admit(), and what they do next is what is done behind that.
    workers.form_anew(false, false);
    if (workers.newcomer()) {
      log(LogLevel::warning,
          "recover: the run has gone on without this worker, which was not heard of for too long; it waits "
          "until it is let in");
      steps = kNoState;
      join_loop(workers, "recover", where);
    }
    try {
      return go_on_from_farthest(steps, variables, where);
    } catch (const errors::UnavailableError&) {
      // Another has gone meanwhile.
      if (!workers.broken()) throw;
    }
  }
}

int64_t Strategy::admit(int64_t steps, const std::vector<Variable>& variables,
                        std::source_location where) const {
  if (!elastic()) return steps;
  comm::Workers& workers = *impl_->workers;
  // Whenever they have formed anew all come to the question: those who were in a step come here from recover().
  while (true) try {
      if (workers.newcomer()) {
        steps = kNoState;
        join_loop(workers, "admit", where);
      } else {
        const std::vector<std::string> all =
            workers.gather("whether workers wait to join", workers.newcomers_waiting() > 0 ? "yes" : "no");
        if (std::find(all.begin(), all.end(), "yes") == all.end()) return steps;
        workers.form_anew(false);
        if (workers.newcomer()) continue;
      }
      steps = go_on_from_farthest(steps, variables, where);
    } catch (const errors::UnavailableError&) {
      if (!workers.broken()) throw;
      steps = recover(steps, variables, where);
    }
}

int64_t Strategy::go_on_from_farthest(int64_t steps, const std::vector<Variable>& variables,
                                      std::source_location where) const {
  comm::Workers& workers = *impl_->workers;
  int64_t most = steps;
  int donor = workers.rank();
  const std::vector<std::string> all = workers.gather("the steps that are finished", std::to_string(steps));
  for (size_t r = 0; r < all.size(); ++r)
    if (const int64_t theirs = std::stoll(all[r]);
        theirs > most || (theirs == most && static_cast<int>(r) < donor))
      most = theirs, donor = static_cast<int>(r);
  require(most != kNoState, ErrorCode::failed_precondition, where,
          "none of the workers that are left has the state of the loop");
  std::vector<Variable> shared = variables;
  shared.push_back(random::default_generator().state());
  std::string bytes;
  for (const Variable& variable : shared) bytes += bytes_of(variable.value());
  workers.broadcast("the values of variables", bytes.data(), static_cast<int64_t>(bytes.size()), donor);
  size_t at = 0;
  for (const Variable& variable : shared) {
    const TensorSpec spec{variable.dtype(), variable.shape()};
    if (steps < most)
      variable.assign(tensor_of(spec, bytes.substr(at, spec.bytes())).to(variable.value().device()));
    at += spec.bytes();
    // run() gives all workers the chief's values of what it has not seen: these they have.
    impl_->shared.insert(variable.id());
  }
  return most;
}

void Strategy::share_new_values(const std::vector<Variable>& variables) const {
  if (!impl_->workers) return;
  std::vector<Variable> fresh;
  for (const Variable& variable : variables)
    if (!impl_->shared.contains(variable.id())) fresh.push_back(variable);
  if (!fresh.empty()) share_values(fresh);
}

// --- joining -------------------------------------------------------------------------------------------------------

Tensor Strategy::reduce(ReduceOp op, const Distributed& value, std::optional<int> axis,
                        std::source_location where) const {
  TensorList parts = of_all_workers(impl_->workers.get(), "a reduction", value.local_results());
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
  if (axis == 0 && value.whole().defined() && !impl_->workers) return value.whole();
  const TensorList parts = of_all_workers(impl_->workers.get(), "a gathering", value.local_results());
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
  if (impl_->workers) {
    const std::vector<execute::ReplicaRange> ranges = execute::replicas_of_workers(
        num_replicas_in_sync(), num_workers(), static_cast<int>(devices().size()));
    std::vector<int64_t> worker_rows = execute::rows_of_workers(rows, ranges);
    const int64_t begin = std::accumulate(worker_rows.begin(), worker_rows.begin() + worker(), int64_t{0});
    return distribute_own(rows_of(batch, begin, worker_rows[static_cast<size_t>(worker())]), worker_rows);
  }
  const std::vector<execute::Slice> slices = impl_->options.weights.empty()
                                                 ? execute::slice_batch(rows, num_replicas_in_sync())
                                                 : execute::slice_batch(rows, impl_->options.weights);
  std::vector<int64_t> sizes;
  for (const execute::Slice& slice : slices) sizes.push_back(slice.size);
  return Distributed::rows(batch, std::move(sizes));
}

Distributed Strategy::distribute_own(const Tensor& own, const std::vector<int64_t>& worker_rows) const {
  const std::vector<execute::ReplicaRange> ranges =
      execute::replicas_of_workers(num_replicas_in_sync(), num_workers(), static_cast<int>(devices().size()));
  const std::vector<execute::Slice> slices = execute::slice_rows(worker_rows, ranges);
  const execute::ReplicaRange range = ranges[static_cast<size_t>(worker())];
  std::vector<int64_t> sizes;
  for (int r = range.first; r < range.last; ++r) sizes.push_back(slices[static_cast<size_t>(r)].size);
  return Distributed::rows(own, std::move(sizes), worker_rows);
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

DistributedDataset::DistributedDataset(const Strategy& strategy, data::Dataset dataset, bool own_batches,
                                       std::string sharing)
    : strategy_(std::make_shared<const Strategy>(strategy)),
      dataset_(std::move(dataset)),
      own_batches_(own_batches),
      sharing_(std::move(sharing)) {}

data::Explanation DistributedDataset::explain(const data::ExplainOptions& options,
                                              std::source_location where) const {
  return with_sharing(data::explain(dataset_, options, where), sharing_);
}

DistributedDataset Strategy::distribute_dataset(const data::Dataset& dataset,
                                                std::source_location where) const {
  require(dataset.defined(), ErrorCode::invalid_argument, where, "distribute_dataset: there is no dataset");
  if (!impl_->workers) return {*this, dataset};
  impl_->workers->require_equal("the number of batches of the dataset", std::to_string(dataset.cardinality()),
                                where);
  const WorkerDataset own = worker_dataset(*this, dataset, false, where);
  return {*this, own.dataset, own.batches == WorkerDataset::Batches::own, own.description};
}

DistributedDataset Strategy::distribute_datasets_from_function(
    const std::function<data::Dataset(const InputContext&)>& make, std::source_location where) const {
  require(
      !elastic(), ErrorCode::unsupported, where,
      "distribute_datasets_from_function: every worker would read a dataset of its own, and an elastic run "
      "would lose it with the worker; use distribute_dataset(), whose batches all workers have");
  const InputContext context{.num_input_pipelines = num_workers(),
                             .input_pipeline_id = worker(),
                             .num_replicas_in_sync = num_replicas_in_sync()};
  const data::Dataset local = make(context);
  require(local.defined(), ErrorCode::invalid_argument, where,
          "distribute_datasets_from_function: the function returned no dataset");
  // A replica's batches, one for each replica of this process, are its part of a global one.
  const auto size = local.element_spec(where).tensors;
  require(!size.empty() && size[0].shape.rank() > 0, ErrorCode::shape_mismatch, where,
          "distribute_datasets_from_function: the dataset is not batched; add  "
          ".batch(context.get_per_replica_batch_size(global_batch_size))");
  const int64_t each = size[0].shape[0];
  const execute::ReplicaRange own = execute::replicas_of_workers(
      num_replicas_in_sync(), num_workers(),
      std::max(1, static_cast<int>(devices().size())))[static_cast<size_t>(worker())];
  const std::string sharing =
      impl_->workers ? "by the program: every worker reads the dataset that the function makes for it" : "";
  if (own.size() == 1) return {*this, local, impl_->workers != nullptr, sharing};
  require(each > 0, ErrorCode::invalid_argument, where,
          "distribute_datasets_from_function: the size of a batch must be known; batch with drop_remainder");
  return {*this, local.rebatch(each * own.size(), false, where), impl_->workers != nullptr, sharing};
}

DistributedDataset::iterator& DistributedDataset::iterator::operator++() {
  batch_ = {};
  goes_on_ = iterator_->next(batch_);
  cut();
  return *this;
}

void DistributedDataset::iterator::cut() {
  if (!strategy_->workers()) {
    if (goes_on_) element_ = strategy_->distribute(batch_);
    return;
  }
  TensorList arrays = batch_.defined() ? batch_.flat() : TensorList();
  std::string layout;
  std::vector<int64_t> worker_rows;
  if (!parts_)
    parts_ = std::make_shared<WorkerBatches>(
        *strategy_, own_batches_ ? WorkerDataset::Batches::own : WorkerDataset::Batches::global);
  goes_on_ = parts_->take(arrays, layout, worker_rows);
  strategy_->note_same_examples(parts_->same_examples());
  if (!goes_on_) return;
  // A worker that never had a batch knows their structure from the dataset.
  if (batch_.defined())
    structure_ = batch_.structure();
  else if (!structure_)
    structure_ = dataset_.element_spec().structure;
  element_ = {*structure_, {}};
  for (const Tensor& array : arrays) element_.flat.push_back(strategy_->distribute_own(array, worker_rows));
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
          "global_mean takes one value per example (first dimension), received ",
          per_example.defined() ? "a scalar" : "none");
  return reduce_sum(per_example) / static_cast<double>(global_size(per_example, where));
}

}  // namespace lockstep::distribute
