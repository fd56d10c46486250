// tf::config: which devices there are, which of them a program uses, and how.
//
//   const auto cpus = config::list_physical_devices("CPU");
//   config::set_logical_device_configuration(cpus[0], {{}, {}});  // two logical CPUs
//   for (const auto& device : config::list_logical_devices()) std::cout << device.name << '\n';
//
// Physical devices are what the machine has; listing them initialises nothing. The logical devices that are
// made of the visible ones come into being once, when a device is first used (by list_logical_devices(),
// tf::device(), a tensor, an op). From then on a setting that decided how they were made cannot change: an
// Error(failed_precondition) says what initialised them, and in which line; setting what is set already does
// nothing. Device types are "CPU" and "GPU" in any case; none stands for all. GPUs come from the plugin
// liblockstep_cuda.so; where there are none, require_gpus() says why. Thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::config {

struct PhysicalDevice {
  std::string name;         // "/physical_device:CPU:0"
  std::string device_type;  // "CPU"
  bool operator==(const PhysicalDevice&) const = default;
};

struct LogicalDevice {
  std::string name;  // "/CPU:0": what tf::device() takes
  std::string device_type;
  bool operator==(const LogicalDevice&) const = default;
};

std::vector<PhysicalDevice> list_physical_devices(
    std::string_view device_type = {}, std::source_location where = std::source_location::current());
// Initialises the devices.
std::vector<LogicalDevice> list_logical_devices(std::string_view device_type = {},
                                                std::source_location where = std::source_location::current());

// Restricts the devices that are used, of this type or (empty) of all types, to these. A CPU is always used:
// it runs the program.
void set_visible_devices(const std::vector<PhysicalDevice>& devices, std::string_view device_type = {},
                         std::source_location where = std::source_location::current());
// set_visible_devices(gpus[0], "GPU"). A template, so that {} is no device at all.
template <std::same_as<PhysicalDevice> Device>
void set_visible_devices(const Device& device, std::string_view device_type = {},
                         std::source_location where = std::source_location::current()) {
  set_visible_devices(std::vector<PhysicalDevice>{device}, device_type, where);
}
std::vector<PhysicalDevice> get_visible_devices(std::string_view device_type = {},
                                                std::source_location where = std::source_location::current());

// What is known of a physical device; what a CPU does not have is empty.
struct DeviceDetails {
  std::string device_name;                 // "NVIDIA H200"
  std::string uuid;                        // "GPU-5bd3..."
  std::pair<int, int> compute_capability;  // {9, 0}
  int64_t memory = 0;                      // bytes that the GPU has
};
DeviceDetails get_device_details(const PhysicalDevice& device,
                                 std::source_location where = std::source_location::current());

struct LogicalDeviceConfiguration {
  int64_t memory_limit_mb = 0;  // GPUs only; 0: none, which is for a GPU that stays in one piece
  int threads = 0;              // CPUs only; 0: a share of the cores that no other one takes
  bool operator==(const LogicalDeviceConfiguration&) const = default;
};
// Splits a physical device into as many logical ones as there are configurations.
void set_logical_device_configuration(const PhysicalDevice& device,
                                      const std::vector<LogicalDeviceConfiguration>& logical_devices,
                                      std::source_location where = std::source_location::current());
std::vector<LogicalDeviceConfiguration> get_logical_device_configuration(
    const PhysicalDevice& device, std::source_location where = std::source_location::current());

// Whether a GPU takes memory as it is needed (as they do unless told otherwise) or all of it at once; each
// GPU may have its own setting. Not together with a memory limit. TF_FORCE_GPU_ALLOW_GROWTH decides for all.
void set_memory_growth(const PhysicalDevice& device, bool enable,
                       std::source_location where = std::source_location::current());
bool get_memory_growth(const PhysicalDevice& device,
                       std::source_location where = std::source_location::current());

// The memory of a logical device, by a name as tf::device() takes it. Initialises the devices.
MemoryInfo get_memory_info(std::string_view device,
                           std::source_location where = std::source_location::current());
// What the memory is for and how much of it was in use over time, since the program started,
// reset_memory_stats() was called or the last fit() began.
observe::MemorySummary get_memory_summary(std::string_view device,
                                          std::source_location where = std::source_location::current());
// The peak is what is held now.
void reset_memory_stats(std::string_view device,
                        std::source_location where = std::source_location::current());

namespace threading {
// Threads of one kernel on a CPU whose configuration names no number; 0: the cores shared out.
void set_intra_op_parallelism_threads(int threads,
                                      std::source_location where = std::source_location::current());
int get_intra_op_parallelism_threads();
// The number is kept but has no effect, which is logged once: a device runs one op at a time, and only
// different devices run ops at once.
void set_inter_op_parallelism_threads(int threads,
                                      std::source_location where = std::source_location::current());
int get_inter_op_parallelism_threads();
}  // namespace threading

// On: products and convolutions of float32 on a GPU may round their operands to TensorFloat-32 (10 bits of
// fraction), which is several times faster. Off unless set. A change holds for later calls: a compiled
// function is compiled once for each setting.
void enable_tensor_float_32_execution(bool enabled);
bool tensor_float_32_execution_enabled();

// Off: kernels may add up in another order every time, so that two runs differ in their last bits, where that
// is faster: gradients of attention in 16-bit floats on a GPU, which then also hold less memory. On unless
// set. A change holds for later calls, as above. A function of replicas that is `reproducible` refuses to be
// compiled without it.
void enable_op_determinism(bool enabled = true);
bool op_determinism_enabled();

// On: a tf::device() that does not exist is not an error, its ops run on one that does. Which one is said
// once for every name. Off unless set; may change at any time.
void set_soft_device_placement(bool enabled);
bool get_soft_device_placement();

// On: every op that is run, and every step of a function that is compiled, is logged with its device. May
// change at any time.
void set_log_device_placement(bool enabled);
bool get_log_device_placement();

// On: what tf::function and fit compile runs op by op instead, on one device: for debugging, for C++ in a
// step then sees values. Functions that run as replicas stay compiled, which is said once. Off unless set;
// may change at any time.
void run_functions_eagerly(bool enabled);
bool functions_run_eagerly();

// Throws Error(device_mismatch) where fewer than `count` GPUs can be used, with all that is known of why:
// what there is, and which plugin was not loaded for what reason.
void require_gpus(int count, std::source_location where = std::source_location::current());

// Names from before these were settled in TensorFlow.
namespace experimental {
using config::get_device_details;
using config::get_memory_growth;
using config::get_memory_info;
using config::get_visible_devices;
using config::list_logical_devices;
using config::list_physical_devices;
using config::reset_memory_stats;
using config::set_memory_growth;
using config::set_visible_devices;
using VirtualDeviceConfiguration = LogicalDeviceConfiguration;
inline void set_virtual_device_configuration(const PhysicalDevice& device,
                                             const std::vector<LogicalDeviceConfiguration>& devices,
                                             std::source_location where = std::source_location::current()) {
  set_logical_device_configuration(device, devices, where);
}
}  // namespace experimental

}  // namespace lockstep::config
