// What tf::config keeps: settings that decide how logical devices are made, until they are.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/config.h"

namespace lockstep {

// Thread-safe. One for the process; tests make their own.
class Configuration {
 public:
  using Physical = config::PhysicalDevice;
  using Logical = config::LogicalDeviceConfiguration;

  // `cores`: shared out among the logical CPUs. `forced_growth`: what the environment says.
  Configuration(std::vector<Physical> physical, int cores, std::optional<bool> forced_growth);
  static Configuration& of_process();

  std::vector<Physical> physical_devices(std::string_view type, std::source_location where) const;
  std::vector<Physical> visible_devices(std::string_view type, std::source_location where) const;
  void set_visible_devices(const std::vector<Physical>& devices, std::string_view type,
                           std::source_location where);
  std::vector<Logical> logical_devices(const Physical& device, std::source_location where) const;
  void set_logical_devices(const Physical& device, const std::vector<Logical>& logical,
                           std::source_location where);
  // Whether the program has set how many logical CPUs there are.
  bool cpus_chosen() const;
  bool memory_growth(const Physical& device, std::source_location where) const;
  void set_memory_growth(const Physical& device, bool enable, std::source_location where);
  int intra_op_threads() const;
  void set_intra_op_threads(int threads, std::source_location where);
  int inter_op_threads() const;
  void set_inter_op_threads(int threads, std::source_location where);

  std::atomic<bool> soft_placement{false};
  std::atomic<bool> log_placement{false};
  std::atomic<bool> tensor_float_32{false};
  std::atomic<bool> op_determinism{true};
  std::atomic<bool> functions_eager{false};

  // What soft placement has put on the CPU in place of a GPU, the first of it; empty: nothing.
  void note_on_cpu(const std::string& what);
  std::string on_cpu() const;

  struct Gpu {
    int physical = 0;  // among the physical GPUs
    int64_t memory_limit_mb = 0;
    bool growth = true;
  };
  // The logical devices to make.
  struct Devices {
    std::vector<int> cpu_threads;
    std::vector<Gpu> gpus;
  };
  // Fixes the settings. `what` and `where` are for the errors of whoever wants to change them later.
  Devices freeze(std::string_view what, std::source_location where);

  // "2 GPUs were asked for, ...": what require_gpus() says; empty where there are enough.
  std::string missing_gpus(int count) const;

 private:
  struct Entry {
    Physical device;
    bool visible = true;
    std::vector<Logical> logical = {{}};
    std::optional<bool> growth;
  };

  const Entry& entry(const Physical& device, std::string_view caller, std::source_location where) const;
  Entry& entry(const Physical& device, std::string_view caller, std::source_location where);
  void require_modifiable(std::string_view caller, std::string_view what, std::source_location where) const;
  std::string names() const;

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  const int cores_;
  const std::optional<bool> forced_growth_;
  bool cpus_chosen_ = false;
  int intra_op_ = 0;
  int inter_op_ = 0;
  std::string on_cpu_;
  std::string initialized_by_;  // "list_logical_devices() in main.cc:12"; empty: not yet
};

// What kernels go by when they are prepared, as the process has it set now.
struct KernelSettings {
  bool tensor_float_32 = config::tensor_float_32_execution_enabled();
  bool op_determinism = config::op_determinism_enabled();
  bool operator==(const KernelSettings&) const = default;
};

}  // namespace lockstep
