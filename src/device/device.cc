#include "lockstep/device/device.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <mutex>
#include <ostream>

#include "device/cpu_device.h"
#include "lockstep/base/error.h"

namespace lockstep {

std::string_view name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "CPU";
    case DeviceKind::gpu: return "GPU";
    case DeviceKind::null: return "NULL";
  }
  return "unknown";
}

Device::Device(DeviceKind kind, int index, int threads)
    : kind_(kind),
      index_(index),
      threads_(threads),
      name_("/" + std::string(lockstep::name(kind)) + ":" + std::to_string(index)) {}

Device::~Device() = default;

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.name(); }

namespace {

// Never destroyed: tensors in static storage may outlive any order of destruction.
struct Registry {
  std::mutex mutex;
  LogicalCpuOptions options;
  std::vector<std::unique_ptr<Device>> owned;
  std::vector<Device*> devices;
  std::atomic<bool> ready{false};
  std::source_location initialized_at;

  void initialize(std::source_location where) {
    if (ready.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex);
    if (ready.load(std::memory_order_relaxed)) return;
    std::vector<int> threads = options.threads_of;
    if (threads.empty()) {
      const int each = options.threads > 0 ? options.threads : std::max(1, available_cores() / options.count);
      threads.assign(static_cast<size_t>(options.count), each);
    }
    for (const int count : threads) {
      owned.push_back(std::make_unique<CpuDevice>(static_cast<int>(owned.size()), count));
      devices.push_back(owned.back().get());
    }
    initialized_at = where;
    ready.store(true, std::memory_order_release);
  }
};

Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

thread_local Device* scoped_device = nullptr;

constexpr int kMaxDevices = 256;

}  // namespace

void set_logical_cpus(const LogicalCpuOptions& options, std::source_location where) {
  require(options.count >= 1 && options.count <= kMaxDevices && options.threads >= 0,
          ErrorCode::invalid_argument, where, "set_logical_cpus: count must be between 1 and ", kMaxDevices,
          " and threads not negative, received count=", options.count, ", threads=", options.threads);
  const bool all_positive =
      std::all_of(options.threads_of.begin(), options.threads_of.end(), [](int t) { return t >= 1; });
  require(options.threads_of.size() <= kMaxDevices && all_positive, ErrorCode::invalid_argument, where,
          "set_logical_cpus: threads_of takes at most ", kMaxDevices, " counts of at least 1 thread each");
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.ready.load(std::memory_order_relaxed) && r.options != options)
    fail(ErrorCode::failed_precondition, where,
         "logical devices cannot be modified after being initialized: they were by ",
         r.initialized_at.file_name(), ":", r.initialized_at.line(),
         "; call set_logical_cpus before the first tensor is made");
  r.options = options;
}

std::span<Device* const> logical_devices(std::source_location where) {
  registry().initialize(where);
  return registry().devices;
}

Device& device_by_name(std::string_view text, std::source_location where) {
  std::string wanted(text);
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  if (!wanted.starts_with('/')) wanted.insert(0, "/");
  std::string known;
  for (Device* device : logical_devices(where)) {
    if (device->name() == wanted) return *device;
    known += (known.empty() ? "" : ", ") + device->name();
  }
  fail(ErrorCode::device_mismatch, where, "there is no device \"", text, "\"; there are: ", known);
}

Device& current_device() { return scoped_device ? *scoped_device : *logical_devices().front(); }

DeviceScope::DeviceScope(Device& device) : previous_(scoped_device) { scoped_device = &device; }
DeviceScope::~DeviceScope() { scoped_device = previous_; }

}  // namespace lockstep
