// Devices: where tensors live and kernels run.
//
// A logical CPU device is a real device: it has its own memory accounting, its own team of threads
// and its own worker, and data that crosses from one to another is copied and counted. Devices live
// until the process ends, so a Device& or Device* never dangles.
//
// A GPU works asynchronously: kernels and copies are queued and happen later, in the order in which they were
// queued, whichever thread did it. Reading an element waits for it; nothing else does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class DeviceBackend;
struct DeviceName;

enum class DeviceKind : uint8_t { cpu, gpu, null };

std::string_view name(DeviceKind kind);

struct MemoryInfo {
  int64_t current = 0;  // bytes held by live tensors and plans
  int64_t peak = 0;     // highest `current` since the last reset
  int64_t limit = 0;    // bytes that may be held; 0: no limit
  // Where memory is cached for whoever comes next: bytes held from the GPU, and the largest piece that nobody
  // uses.
  int64_t reserved = 0;
  int64_t largest_free = 0;
};

// What a device has done since the process started, or since reset_counters().
struct DeviceCounters {
  int64_t kernels = 0;           // kernel launches
  int64_t flops = 0;             // arithmetic of those kernels, by each op's cost rule
  int64_t bytes_copied_in = 0;   // from other devices
  int64_t bytes_copied_out = 0;  // to other devices
};

// Thread-safe.
class Device final {
 public:
  // For the library alone: what is particular to a kind of device is behind `backend`.
  explicit Device(std::unique_ptr<DeviceBackend> backend);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }  // "/CPU:0"
  DeviceKind kind() const { return kind_; }
  int index() const { return index_; }
  // Threads that one kernel on this device may use.
  int threads() const { return threads_; }

  MemoryInfo memory_info() const;
  void reset_peak_memory();
  // 0: no limit. Throws Error(invalid_argument) where more than `bytes` is held already.
  void set_memory_limit(int64_t bytes);

  DeviceCounters counters() const;
  void reset_counters();

  // Returns when all that was queued has happened. Throws deferred device errors: kernels launched earlier
  // met bad values (a label out of range), as CUDA reports asynchronous errors at the next synchronization.
  void synchronize() const;

 private:
  friend DeviceBackend& backend_of(const Device& device);

  const DeviceKind kind_;
  const int index_;
  const int threads_;
  const std::string name_;
  const std::unique_ptr<DeviceBackend> backend_;
};

std::ostream& operator<<(std::ostream& out, const Device& device);

struct LogicalCpuOptions {
  int count = 1;
  int threads = 0;  // of each device; 0: the machine's cores shared out, at least one each
  // Devices of different sizes: the threads of each. Replaces the two above.
  std::vector<int> threads_of = {};
};

// Splits the CPU into logical devices /CPU:0 ... /CPU:count-1: a short way to write
// config::set_logical_device_configuration(), whose rules hold.
void set_logical_cpus(const LogicalCpuOptions& options,
                      std::source_location where = std::source_location::current());

// All logical devices; the first call fixes the configuration.
std::span<Device* const> logical_devices(std::source_location where = std::source_location::current());

// The device of this name ("/CPU:1", "cpu:1", "/job:localhost/device:CPU:1"; the first one that fits);
// throws Error(device_mismatch) listing what there is.
Device& device_by_name(std::string_view name, std::source_location where = std::source_location::current());

// Where new tensors are made on this thread, unless a DeviceScope says otherwise: /GPU:0, or /CPU:0 where
// there is no GPU.
Device& current_device(std::source_location where = std::source_location::current());

// The device that the scopes around this call name; null: there is none, and an op runs where its inputs
// are.
Device* scoped_device();

// While it lives, ops of this thread run on the device, and tensors, variables and layers are made there;
// inputs that live elsewhere are copied. Scopes nest: they end in the reverse order in which they began.
class DeviceScope {
 public:
  explicit DeviceScope(Device& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  friend DeviceScope device(std::string_view name, std::source_location where);
  friend Device* scoped_device();
  DeviceScope(std::string_view name, std::source_location where);

  Device* device_;                          // null: nothing names one
  std::unique_ptr<const DeviceName> name_;  // with what the scopes around it say; null: the device's own
  const DeviceScope* outer_;
};

// A scope by name:
//
//   { auto scope = tf::device("/CPU:1"); y = matmul(x, w); }
//
// The name is /job:<name>/replica:<n>/task:<n>/device:<TYPE>:<n or *>, every part optional, or short:
// "/CPU:1", "cpu:1". Parts that it leaves out are those of the scope around it; "*" and a type without a
// number mean the first device. A device that does not exist is an Error(device_mismatch) that lists what
// there is, unless config::set_soft_device_placement() is on: then another is taken, which is logged once.
[[nodiscard]] DeviceScope device(std::string_view name,
                                 std::source_location where = std::source_location::current());

}  // namespace lockstep
