#include "lockstep/device/config.h"

#include <algorithm>

#include "device/configuration.h"
#include "device/device_backend.h"
#include "device/device_name.h"
#include "device/gpu_driver.h"
#include "device/memory_ledger.h"
#include "device/memory_summary.h"
#include "device/registry.h"
#include "lockstep/base/error.h"

namespace lockstep::config {
namespace {

Configuration& settings() { return Configuration::of_process(); }

}  // namespace

std::vector<PhysicalDevice> list_physical_devices(std::string_view device_type, std::source_location where) {
  return settings().physical_devices(device_type, where);
}

std::vector<LogicalDevice> list_logical_devices(std::string_view device_type, std::source_location where) {
  const auto kind = parse_device_kind(device_type);
  require(kind || device_type.empty(), ErrorCode::invalid_argument, where, "\"", device_type,
          "\" is not a type of device; there are CPU and GPU");
  std::vector<LogicalDevice> devices;
  for (const Device* device : initialized_devices("list_logical_devices()", where))
    if (!kind || device->kind() == *kind)
      devices.push_back({device->name(), std::string(name(device->kind()))});
  return devices;
}

DeviceDetails get_device_details(const PhysicalDevice& device, std::source_location where) {
  settings().logical_devices(device, where);  // throws where there is no such device
  const std::vector<PhysicalDevice> gpus = settings().physical_devices("GPU", where);
  const auto found = std::find(gpus.begin(), gpus.end(), device);
  if (found == gpus.end()) return {};
  const PhysicalGpu& gpu = machine_gpus().list[static_cast<size_t>(found - gpus.begin())];
  return {.device_name = gpu.name,
          .uuid = gpu.uuid,
          .compute_capability = {gpu.capability_major, gpu.capability_minor},
          .memory = gpu.memory};
}

void set_visible_devices(const std::vector<PhysicalDevice>& devices, std::string_view device_type,
                         std::source_location where) {
  settings().set_visible_devices(devices, device_type, where);
}
std::vector<PhysicalDevice> get_visible_devices(std::string_view device_type, std::source_location where) {
  return settings().visible_devices(device_type, where);
}

void set_logical_device_configuration(const PhysicalDevice& device,
                                      const std::vector<LogicalDeviceConfiguration>& logical_devices,
                                      std::source_location where) {
  settings().set_logical_devices(device, logical_devices, where);
}
std::vector<LogicalDeviceConfiguration> get_logical_device_configuration(const PhysicalDevice& device,
                                                                         std::source_location where) {
  return settings().logical_devices(device, where);
}

void set_memory_growth(const PhysicalDevice& device, bool enable, std::source_location where) {
  settings().set_memory_growth(device, enable, where);
}
bool get_memory_growth(const PhysicalDevice& device, std::source_location where) {
  return settings().memory_growth(device, where);
}

MemoryInfo get_memory_info(std::string_view device, std::source_location where) {
  return device_by_name(device, where).memory_info();
}
observe::MemorySummary get_memory_summary(std::string_view device, std::source_location where) {
  return memory_summary(device_by_name(device, where));
}
void reset_memory_stats(std::string_view device, std::source_location where) {
  Device& found = device_by_name(device, where);
  found.reset_peak_memory();
  backend_of(found).ledger().begin_run();
}

namespace threading {
void set_intra_op_parallelism_threads(int threads, std::source_location where) {
  settings().set_intra_op_threads(threads, where);
}
int get_intra_op_parallelism_threads() { return settings().intra_op_threads(); }
void set_inter_op_parallelism_threads(int threads, std::source_location where) {
  settings().set_inter_op_threads(threads, where);
}
int get_inter_op_parallelism_threads() { return settings().inter_op_threads(); }
}  // namespace threading

void enable_tensor_float_32_execution(bool enabled) { settings().tensor_float_32 = enabled; }
bool tensor_float_32_execution_enabled() { return settings().tensor_float_32; }
void enable_op_determinism(bool enabled) { settings().op_determinism = enabled; }
bool op_determinism_enabled() { return settings().op_determinism; }
void set_soft_device_placement(bool enabled) { settings().soft_placement = enabled; }
bool get_soft_device_placement() { return settings().soft_placement; }
void set_log_device_placement(bool enabled) { settings().log_placement = enabled; }
bool get_log_device_placement() { return settings().log_placement; }
void run_functions_eagerly(bool enabled) { settings().functions_eager = enabled; }
bool functions_run_eagerly() { return settings().functions_eager; }

void require_gpus(int count, std::source_location where) {
  require(count >= 1, ErrorCode::invalid_argument, where, "require_gpus: expected at least 1, received ",
          count);
  const std::string reason = settings().missing_gpus(count);
  require(reason.empty(), ErrorCode::device_mismatch, where, "GPUs are missing: ", reason);
}

}  // namespace lockstep::config
