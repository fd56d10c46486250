// Devices: where tensors live and kernels run.
//
// A logical CPU device is a real device: it has its own memory accounting, its own team of threads
// and its own worker, and data that crosses from one to another is copied and counted. Devices live
// until the process ends, so a Device& or Device* never dangles.
//
// A GPU has a stream: kernels and copies are queued there and happen later, in the order in which they
// were queued, whichever thread did it. Reading an element waits for it; nothing else does.
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

struct DeviceName;
class LaunchGraph;
class MemoryLedger;
struct RecordedLaunch;

enum class DeviceKind : uint8_t { cpu, gpu, null };

std::string_view name(DeviceKind kind);

struct MemoryInfo {
  int64_t current = 0;  // bytes held by live tensors and plans
  int64_t peak = 0;     // highest `current` since the last reset
  int64_t limit = 0;    // bytes that may be held; 0: no limit
  // Where memory is cached for whoever comes next: bytes held from the card, and the largest piece that nobody uses.
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

class Device {
 public:
  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }  // "/CPU:0"
  DeviceKind kind() const { return kind_; }
  int index() const { return index_; }
  // Threads that one kernel on this device may use.
  int threads() const { return threads_; }

  // The card that it is, or is a share of: logical devices of one card have the same number.
  virtual int physical() const { return 0; }
  // Whether kernels of this device can follow pointers into the other's memory.
  virtual bool reads(const Device& other) const { return other.kind() == kind_; }

  // False: the device keeps account of memory but has none (null_device.h).
  virtual bool has_memory() const { return true; }
  // At least 64-byte aligned; throws Error(out_of_memory) with what was asked and what is held.
  virtual void* allocate(size_t bytes, std::source_location where) = 0;
  virtual void deallocate(void* data, size_t bytes) noexcept = 0;
  // Memory for what the host sends ahead of its use: copy_from_host() into it happens beside what the device computes,
  // not behind it. Nothing else may write there.
  virtual void* allocate_ahead(size_t bytes, std::source_location where) { return allocate(bytes, where); }
  // The source may be overwritten, and the target is written, when these return.
  virtual void copy_from_host(void* target, const void* source, size_t bytes) = 0;
  virtual void copy_to_host(void* target, const void* source, size_t bytes) const = 0;

  virtual MemoryInfo memory_info() const = 0;
  // What the memory is used for, over time. Never null.
  MemoryLedger* ledger() const { return ledger_.get(); }
  virtual void reset_peak_memory() = 0;
  // Throws Error(invalid_argument) where more than `bytes` is held already.
  virtual void set_memory_limit(int64_t bytes) = 0;

  virtual DeviceCounters counters() const = 0;
  virtual void reset_counters() = 0;
  virtual void count_kernels(int64_t kernels, int64_t flops) = 0;
  virtual void count_copy(int64_t bytes_in, int64_t bytes_out) = 0;

  // Between two places of this device's memory, which do not overlap.
  virtual void copy_within(void* target, const void* source, size_t bytes);
  // From the memory of another device of the same kind.
  virtual void copy_from_device(void* target, Device& from, const void* source, size_t bytes);
  // `count` times the `width` bytes (1, 2, 4 or 8) of `pattern`.
  virtual void fill(void* target, const void* pattern, size_t width, size_t count);

  // Where kernels are queued, with the calling thread bound to this device; null on CPUs, whose kernels run
  // at once.
  virtual void* stream() const { return nullptr; }
  // Returns when all that was queued has happened.
  virtual void synchronize() const {}
  // What is queued here from now on happens after what is queued on the other device now.
  virtual void wait_for(const Device& /*other*/) {}
  // These launches, to be repeated as a whole; they do not happen now. Null: this device repeats nothing.
  virtual std::unique_ptr<LaunchGraph> record(std::span<const RecordedLaunch> launches);
  // A mark behind all that is queued now, and the wait until it is reached.
  virtual int64_t mark() { return 0; }
  virtual void wait_until(int64_t /*mark*/) const {}

 protected:
  Device(DeviceKind kind, int index, int threads);

 private:
  DeviceKind kind_;
  int index_;
  int threads_;
  std::string name_;
  std::unique_ptr<MemoryLedger> ledger_;
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

// Where new tensors are made on this thread, unless a DeviceScope says otherwise: /GPU:0, or /CPU:0 where there
// is no GPU.
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
