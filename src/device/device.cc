#include "lockstep/device/device.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ostream>

#include "device/configuration.h"
#include "device/copy.h"
#include "device/cpu_device.h"
#include "device/device_backend.h"
#include "device/device_name.h"
#include "device/gpu_driver.h"
#include "device/memory_summary.h"
#include "device/registry.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

std::string_view name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "CPU";
    case DeviceKind::gpu: return "GPU";
    case DeviceKind::null: return "NULL";
  }
  return "unknown";
}

Device::Device(std::unique_ptr<DeviceBackend> backend)
    : kind_(backend->kind()),
      index_(backend->index()),
      threads_(backend->threads()),
      name_(backend->name()),
      backend_(std::move(backend)) {}

Device::~Device() = default;

MemoryInfo Device::memory_info() const { return backend_->memory_info(); }
void Device::reset_peak_memory() { backend_->reset_peak_memory(); }
void Device::set_memory_limit(int64_t bytes) { backend_->set_memory_limit(bytes); }
DeviceCounters Device::counters() const { return backend_->counters(); }
void Device::reset_counters() { backend_->reset_counters(); }
void Device::synchronize() const { backend_->compute_stream().synchronize(); }

namespace {

// A limit is one of the memory that is held, and blocks are larger than what was asked for: by as much as
// they are now.
void add_rounding(observe::MemorySummary& summary, int64_t held) {
  if (summary.after <= 0 || held <= summary.after) return;
  const double larger = static_cast<double>(held - summary.after) / static_cast<double>(summary.after);
  const auto of = [&](int64_t bytes) { return static_cast<int64_t>(larger * static_cast<double>(bytes)); };
  const observe::MemorySummary::Use rounding{.name = "rounding up",
                                             .before = of(summary.before),
                                             .at_peak = of(summary.peak),
                                             .after = held - summary.after};
  summary.before += rounding.before;
  summary.peak += rounding.at_peak;
  summary.after += rounding.after;
  const auto smaller = std::find_if(summary.uses.begin(), summary.uses.end(),
                                    [&](const auto& use) { return use.at_peak < rounding.at_peak; });
  summary.uses.insert(smaller, rounding);
}

}  // namespace

observe::MemorySummary memory_summary(const Device& device) {
  observe::MemorySummary summary = backend_of(device).ledger().summary();
  const MemoryInfo info = device.memory_info();
  summary.limit = info.limit;
  summary.reserved = info.reserved;
  summary.largest_free = info.largest_free;
  if (info.limit > 0) add_rounding(summary, info.current);
  return summary;
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.name(); }

namespace {

// Never destroyed: tensors in static storage may outlive any order of destruction.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Device>> owned;
  std::vector<Device*> devices;  // CPUs, then GPUs
  Device* default_device = nullptr;
  std::atomic<bool> ready{false};
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

thread_local const DeviceScope* innermost = nullptr;

constexpr int kMaxDevices = 256;

std::string names(std::span<Device* const> devices) {
  std::string text;
  for (const Device* device : devices) text += (text.empty() ? "" : ", ") + device->name();
  return text;
}

Device* find(const DeviceName& name, std::span<Device* const> devices) {
  const auto it =
      std::find_if(devices.begin(), devices.end(), [&](const Device* device) { return name.names(*device); });
  return it == devices.end() ? nullptr : *it;
}

// The device of a scope. Where there is none and soft placement is on: the first of its type, else the first.
Device& resolve(const DeviceName& name, std::source_location where) {
  const auto devices = initialized_devices("tf::device()", where);
  if (Device* found = find(name, devices)) return *found;
  require(Configuration::of_process().soft_placement, ErrorCode::device_mismatch, where,
          "there is no device \"", name.to_string(), "\"; there are: ", names(devices),
          "; config::set_soft_device_placement(true) lets its ops run on one that there is");
  DeviceName type;
  type.kind = name.kind;
  Device* instead = find(type, devices);
  if (!instead) instead = devices.front();
  log_once(LogLevel::warning, "there is no device \"", name.to_string(), "\" (there are: ", names(devices),
           "): by soft placement its ops run on ", instead->name());
  if (name.kind == DeviceKind::gpu && instead->kind() == DeviceKind::cpu)
    Configuration::of_process().note_on_cpu(detail::concat("ops of \"", name.to_string(), "\" at ",
                                                           where.file_name(), ":", where.line(),
                                                           ", which is not there: soft placement is on"));
  return *instead;
}

}  // namespace

std::span<Device* const> initialized_devices(std::string_view what, std::source_location where) {
  Registry& r = registry();
  if (r.ready.load(std::memory_order_acquire)) return r.devices;
  const std::lock_guard lock(r.mutex);
  if (r.ready.load(std::memory_order_relaxed)) return r.devices;
  const Configuration::Devices wanted = Configuration::of_process().freeze(what, where);
  std::vector<std::unique_ptr<Device>> made;
  const auto add = [&](std::unique_ptr<DeviceBackend> backend) {
    made.push_back(std::make_unique<Device>(std::move(backend)));
  };
  for (const int threads : wanted.cpu_threads)
    add(std::make_unique<CpuDevice>(static_cast<int>(made.size()), threads));
  const size_t cpus = made.size();
  for (const Configuration::Gpu& gpu : wanted.gpus)
    add(machine_gpus().driver->make_device(
        gpu.physical, static_cast<int>(made.size() - cpus),
        {.memory_limit = gpu.memory_limit_mb << 20, .growth = gpu.growth}));
  r.owned = std::move(made);
  for (const auto& device : r.owned) r.devices.push_back(device.get());
  r.default_device = r.devices[wanted.gpus.empty() ? 0 : cpus];
  r.ready.store(true, std::memory_order_release);
  return r.devices;
}

void copy_across(Device& from, const void* source, Device& to, void* target, size_t bytes) {
  if (bytes == 0) return;
  DeviceBackend& giver = backend_of(from);
  DeviceBackend& taker = backend_of(to);
  if (giver.has_memory() && taker.has_memory()) {
    if (&giver == &taker)
      taker.compute_stream().copy(target, source, bytes);
    else if (from.kind() == to.kind())
      taker.copy_from_device(target, giver, source, bytes);
    else if (from.kind() == DeviceKind::cpu)
      taker.copy_from_host(target, source, bytes);
    else
      giver.copy_to_host(target, source, bytes);
  }
  giver.count_copy(0, static_cast<int64_t>(bytes));
  taker.count_copy(static_cast<int64_t>(bytes), 0);
}

void set_logical_cpus(const LogicalCpuOptions& options, std::source_location where) {
  std::vector<config::LogicalDeviceConfiguration> logical;
  for (const int threads : options.threads_of) {
    require(threads >= 1, ErrorCode::invalid_argument, where,
            "set_logical_cpus: threads_of takes at least 1 thread for each device, received ", threads);
    logical.push_back({.threads = threads});
  }
  if (logical.empty()) {
    require(options.count >= 1 && options.count <= kMaxDevices && options.threads >= 0,
            ErrorCode::invalid_argument, where, "set_logical_cpus: count must be between 1 and ", kMaxDevices,
            " and threads not negative, received count=", options.count, ", threads=", options.threads);
    logical.assign(static_cast<size_t>(options.count), {.threads = options.threads});
  }
  config::set_logical_device_configuration(config::list_physical_devices("CPU").front(), logical, where);
}

std::span<Device* const> logical_devices(std::source_location where) {
  return initialized_devices("logical_devices()", where);
}

Device& device_by_name(std::string_view text, std::source_location where) {
  const DeviceName name = DeviceName::parse(text, where);
  const auto devices = initialized_devices("device_by_name()", where);
  require(name.kind.has_value(), ErrorCode::invalid_argument, where, "\"", text,
          "\" names no device; there are: ", names(devices));
  Device* found = find(name, devices);
  require(found != nullptr, ErrorCode::device_mismatch, where, "there is no device \"", text,
          "\"; there are: ", names(devices));
  return *found;
}

Device& current_device(std::source_location where) {
  if (Device* scoped = scoped_device()) return *scoped;
  initialized_devices("the first use of a device", where);
  return *registry().default_device;
}

Device* scoped_device() { return innermost ? innermost->device_ : nullptr; }

DeviceScope::DeviceScope(Device& device) : device_(&device), outer_(innermost) { innermost = this; }

DeviceScope::DeviceScope(std::string_view text, std::source_location where)
    : device_(scoped_device()), outer_(innermost) {
  DeviceName name = DeviceName::parse(text, where);
  const DeviceName around = !outer_           ? DeviceName{}
                            : outer_->name_   ? *outer_->name_
                            : outer_->device_ ? DeviceName::of(*outer_->device_)
                                              : DeviceName{};
  name = name.inside(around);
  // Where it says nothing new the device stays, which need not be one that has a name here.
  if (!(name == around)) {
    Device& found = resolve(name, where);
    device_ = name.kind ? &found : nullptr;
  }
  name_ = std::make_unique<const DeviceName>(std::move(name));
  innermost = this;
}

DeviceScope::~DeviceScope() { innermost = outer_; }

DeviceScope device(std::string_view name, std::source_location where) { return {name, where}; }

}  // namespace lockstep
