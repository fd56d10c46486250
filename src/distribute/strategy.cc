#include "lockstep/distribute/strategy.h"

#include <algorithm>
#include <exception>

#include "comm/cluster.h"
#include "comm/workers.h"
#include "device/ceilings.h"
#include "device/configuration.h"
#include "device/why_one_device.h"
#include "distribute/strategy_impl.h"
#include "distribute/strategy_owner.h"
#include "distribute/worker_summaries.h"
#include "execute/all_reduce/choice.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/ops/random.h"
#include "ops/random/random.h"

namespace lockstep::distribute {

Strategy::Impl::~Impl() {
  constexpr double kWaitsForOthers = 10;  // seconds: they end their loops when this one does, or not at all
  if (!loop || !options.report) return;
  observe::RunSummary summary = loop->summary();
  if (observe::steps(summary) < observe::kWorthReporting) return;
  if (workers && std::uncaught_exceptions() == 0)
    summary = of_all_workers(*workers, std::move(summary), kWaitsForOthers);
  if (workers && !workers->chief()) return;
  observe::print(observe::report_on(std::move(summary), loop->title()));
}

observe::Loop& Strategy::Impl::running(const Strategy& self) {
  if (loop) return *loop;
  if (devices.size() > 1 || workers) sums = self.sums_description();
  loop = std::make_unique<observe::Loop>(name + "::run", static_cast<int>(devices.size()),
                                         [this, used = DevicesOfRun(devices)](observe::RunSummary& summary) {
                                           summary.sums = sums;
                                           summary.setting.kind = observe::RunKind::strategy;
                                           summary.setting.same_examples =
                                               std::max(workers_alike.load(), replicas_alike());
                                           used.describe(summary);
                                         });
  return *loop;
}

int Strategy::Impl::replicas_alike() const {
  return undistributed == runs_made ? static_cast<int>(devices.size()) : 1;
}

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
  add_living_owner(owner);
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
                           .devices_are_gpus = devices[0]->kind() == DeviceKind::gpu,
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
  if (impl_->devices.empty()) return "one replica: nothing to all-reduce";
  const std::string reason =
      execute::choose_all_reduce(impl_->devices, impl_->options.reproducible, impl_->options.cross_device_ops,
                                 impl_->workers != nullptr)
          .reason;
  if (!impl_->workers) return reason;
  const bool compressed = impl_->options.communication.compression == Compression::bf16;
  return detail::concat(impl_->workers->description(), "; ", reason, compressed ? kSentAsBf16 : "");
}
ReplicaOptions Strategy::replica_options() const { return replicas_of(*impl_); }

}  // namespace lockstep::distribute
