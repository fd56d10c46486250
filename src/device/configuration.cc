#include "device/configuration.h"

#include <algorithm>
#include <utility>

#include "base/environment.h"
#include "device/cpu_device.h"
#include "device/device_name.h"
#include "device/gpu_driver.h"
#include "device/plugin.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

using Logical = config::LogicalDeviceConfiguration;

constexpr size_t kMaxDevices = 256;
constexpr int kMaxThreads = 4096;

// Whether `type` asks for devices of this type; an unknown one is an error.
bool wanted(const config::PhysicalDevice& device, std::string_view type, std::source_location where) {
  if (type.empty()) return true;
  const auto kind = parse_device_kind(type);
  require(kind.has_value(), ErrorCode::invalid_argument, where, "\"", type,
          "\" is not a type of device; there are CPU and GPU");
  return device.device_type == name(*kind);
}

bool is_gpu(const config::PhysicalDevice& device) { return device.device_type == name(DeviceKind::gpu); }

bool has_limit(const std::vector<Logical>& logical) {
  return std::any_of(logical.begin(), logical.end(), [](const Logical& l) { return l.memory_limit_mb > 0; });
}

}  // namespace

Configuration::Configuration(std::vector<Physical> physical, int cores, std::optional<bool> forced_growth)
    : cores_(cores), forced_growth_(forced_growth) {
  for (Physical& device : physical)
    entries_.push_back({.device = std::move(device), .visible = true, .logical = {{}}, .growth = {}});
}

Configuration& Configuration::of_process() {
  // Never destroyed, as the devices.
  static auto* instance = [] {
    std::optional<bool> growth;
    if (env::read_string("TF_FORCE_GPU_ALLOW_GROWTH"))
      growth = env::read_bool("TF_FORCE_GPU_ALLOW_GROWTH", true);
    std::vector<Physical> physical = {{"/physical_device:CPU:0", "CPU"}};
    for (size_t i = 0; i < machine_gpus().list.size(); ++i)
      physical.push_back({detail::concat("/physical_device:GPU:", i), "GPU"});
    return new Configuration(std::move(physical), available_cores(), growth);
  }();
  return *instance;
}

std::string Configuration::names() const {
  std::string text;
  for (const Entry& e : entries_) text += (text.empty() ? "" : ", ") + e.device.name;
  return text;
}

const Configuration::Entry& Configuration::entry(const Physical& device, std::string_view caller,
                                                 std::source_location where) const {
  for (const Entry& e : entries_)
    if (e.device == device) return e;
  fail(ErrorCode::device_mismatch, where, caller, ": there is no physical device \"", device.name,
       "\" of type ", device.device_type, "; there are: ", names());
}

Configuration::Entry& Configuration::entry(const Physical& device, std::string_view caller,
                                           std::source_location where) {
  return const_cast<Entry&>(std::as_const(*this).entry(device, caller, where));
}

void Configuration::require_modifiable(std::string_view caller, std::string_view what,
                                       std::source_location where) const {
  require(initialized_by_.empty(), ErrorCode::failed_precondition, where, caller, ": ", what,
          " cannot be modified after being initialized, and the devices were initialized by ",
          initialized_by_, "; call ", caller, " before the first tensor, op or device is used");
}

std::vector<config::PhysicalDevice> Configuration::physical_devices(std::string_view type,
                                                                    std::source_location where) const {
  std::vector<Physical> devices;
  for (const Entry& e : entries_)
    if (wanted(e.device, type, where)) devices.push_back(e.device);
  return devices;
}

std::vector<config::PhysicalDevice> Configuration::visible_devices(std::string_view type,
                                                                   std::source_location where) const {
  const std::lock_guard lock(mutex_);
  std::vector<Physical> devices;
  for (const Entry& e : entries_)
    if (e.visible && wanted(e.device, type, where)) devices.push_back(e.device);
  return devices;
}

void Configuration::set_visible_devices(const std::vector<Physical>& devices, std::string_view type,
                                        std::source_location where) {
  constexpr std::string_view kCaller = "set_visible_devices";
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < devices.size(); ++i) {
    const Entry& e = entry(devices[i], kCaller, where);
    require(wanted(e.device, type, where), ErrorCode::invalid_argument, where, kCaller, ": ", e.device.name,
            " is not of type ", type);
    require(std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i), devices[i]) ==
                devices.begin() + static_cast<std::ptrdiff_t>(i),
            ErrorCode::invalid_argument, where, kCaller, ": ", e.device.name, " is listed twice");
  }
  const auto visible = [&](const Entry& e) {
    return wanted(e.device, type, where)
               ? std::find(devices.begin(), devices.end(), e.device) != devices.end()
               : e.visible;
  };
  require(std::any_of(entries_.begin(), entries_.end(),
                      [&](const Entry& e) { return !is_gpu(e.device) && visible(e); }),
          ErrorCode::invalid_argument, where, kCaller,
          ": the CPU cannot be hidden, it runs the program; name a type to choose among the others: "
          "set_visible_devices(gpus, \"GPU\")");
  if (std::all_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return visible(e) == e.visible; }))
    return;
  require_modifiable(kCaller, "visible devices", where);
  for (Entry& e : entries_) e.visible = visible(e);
}

std::vector<Logical> Configuration::logical_devices(const Physical& device,
                                                    std::source_location where) const {
  const std::lock_guard lock(mutex_);
  return entry(device, "get_logical_device_configuration", where).logical;
}

void Configuration::set_logical_devices(const Physical& device, const std::vector<Logical>& logical,
                                        std::source_location where) {
  constexpr std::string_view kCaller = "set_logical_device_configuration";
  const std::lock_guard lock(mutex_);
  Entry& e = entry(device, kCaller, where);
  require(!logical.empty() && logical.size() <= kMaxDevices, ErrorCode::invalid_argument, where, kCaller,
          ": ", device.name, " is split into 1 to ", kMaxDevices, " logical devices, received ",
          logical.size());
  for (const Logical& l : logical) {
    require(l.threads >= 0 && l.threads <= kMaxThreads && l.memory_limit_mb >= 0, ErrorCode::invalid_argument,
            where, kCaller, ": threads are from 0 to ", kMaxThreads,
            " and memory_limit_mb is not negative, received threads=", l.threads,
            ", memory_limit_mb=", l.memory_limit_mb);
    if (is_gpu(device)) {
      require(l.threads == 0, ErrorCode::invalid_argument, where, kCaller, ": ", device.name,
              " is a GPU, which has no threads of the machine's cores; received threads=", l.threads);
      require(l.memory_limit_mb > 0 || logical.size() == 1, ErrorCode::invalid_argument, where, kCaller,
              ": every logical device of ", device.name, " needs a memory_limit_mb, its share of the memory");
    } else {
      require(l.memory_limit_mb == 0, ErrorCode::invalid_argument, where, kCaller, ": ", device.name,
              " is a CPU, whose logical devices share the machine's memory; received memory_limit_mb=",
              l.memory_limit_mb);
    }
  }
  require(!has_limit(logical) || !e.growth.value_or(false), ErrorCode::failed_precondition, where, kCaller,
          ": memory growth is on for ", device.name,
          ", which has no meaning with a memory limit; call set_memory_growth(device, false) first");
  if (e.logical != logical) {
    require_modifiable(kCaller, "logical devices", where);
    e.logical = logical;
  }
  cpus_chosen_ |= !is_gpu(device);
}

bool Configuration::cpus_chosen() const {
  const std::lock_guard lock(mutex_);
  return cpus_chosen_;
}

bool Configuration::memory_growth(const Physical& device, std::source_location where) const {
  constexpr std::string_view kCaller = "get_memory_growth";
  const std::lock_guard lock(mutex_);
  const Entry& e = entry(device, kCaller, where);
  require(is_gpu(device), ErrorCode::invalid_argument, where, kCaller, ": ", device.name, " is not a GPU");
  if (has_limit(e.logical)) return false;
  return forced_growth_.value_or(e.growth.value_or(true));
}

void Configuration::set_memory_growth(const Physical& device, bool enable, std::source_location where) {
  constexpr std::string_view kCaller = "set_memory_growth";
  const std::lock_guard lock(mutex_);
  Entry& e = entry(device, kCaller, where);
  require(is_gpu(device), ErrorCode::invalid_argument, where, kCaller, ": ", device.name,
          " is not a GPU; other devices take memory as it is needed");
  require(!enable || !has_limit(e.logical), ErrorCode::failed_precondition, where, kCaller, ": ", device.name,
          " has logical devices with a memory limit, with which growth has no meaning");
  if (e.growth.value_or(true) != enable) require_modifiable(kCaller, "memory growth", where);
  e.growth = enable;
  if (forced_growth_.value_or(enable) != enable)
    log_once(LogLevel::warning, kCaller, ": TF_FORCE_GPU_ALLOW_GROWTH=", *forced_growth_ ? "true" : "false",
             " decides instead");
}

void Configuration::note_on_cpu(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (on_cpu_.empty()) on_cpu_ = what;
}

std::string Configuration::on_cpu() const {
  const std::lock_guard lock(mutex_);
  return on_cpu_;
}

int Configuration::intra_op_threads() const {
  const std::lock_guard lock(mutex_);
  return intra_op_;
}

void Configuration::set_intra_op_threads(int threads, std::source_location where) {
  constexpr std::string_view kCaller = "set_intra_op_parallelism_threads";
  require(threads >= 0 && threads <= kMaxThreads, ErrorCode::invalid_argument, where, kCaller,
          ": expected 0 (the cores shared out) to ", kMaxThreads, ", received ", threads);
  const std::lock_guard lock(mutex_);
  if (intra_op_ == threads) return;
  require_modifiable(kCaller, "the number of threads", where);
  intra_op_ = threads;
}

int Configuration::inter_op_threads() const {
  const std::lock_guard lock(mutex_);
  return inter_op_;
}

void Configuration::set_inter_op_threads(int threads, std::source_location where) {
  constexpr std::string_view kCaller = "set_inter_op_parallelism_threads";
  require(threads >= 0 && threads <= kMaxThreads, ErrorCode::invalid_argument, where, kCaller,
          ": expected 0 to ", kMaxThreads, ", received ", threads);
  const std::lock_guard lock(mutex_);
  if (inter_op_ == threads) return;
  require_modifiable(kCaller, "the number of threads", where);
  inter_op_ = threads;
  if (threads > 1)
    log_once(
        LogLevel::warning, kCaller,
        " has no effect: a device runs one op at a time; split the CPU into logical devices to run several");
}

Configuration::Devices Configuration::freeze(std::string_view what, std::source_location where) {
  const std::lock_guard lock(mutex_);
  if (initialized_by_.empty()) {
    const std::string_view file = where.file_name();
    initialized_by_ = detail::concat(what, " in ", file, ":", where.line());
  }
  Devices devices;
  std::vector<int>& threads = devices.cpu_threads;
  int physical = -1;
  for (const Entry& e : entries_) {
    physical += is_gpu(e.device) ? 1 : 0;
    if (!e.visible) continue;
    for (const Logical& l : e.logical) {
      if (is_gpu(e.device))
        devices.gpus.push_back({.physical = physical,
                                .memory_limit_mb = l.memory_limit_mb,
                                .growth = forced_growth_.value_or(e.growth.value_or(true))});
      else
        threads.push_back(l.threads);
    }
  }
  int taken = 0;
  for (const int count : threads) taken += count;
  const auto open = static_cast<int>(std::count(threads.begin(), threads.end(), 0));
  for (int& count : threads)
    if (count == 0) count = intra_op_ > 0 ? intra_op_ : std::max(1, (cores_ - taken) / open);
  return devices;
}

std::string Configuration::missing_gpus(int count) const {
  std::string there;
  int gpus = 0, visible = 0;
  {
    const std::lock_guard lock(mutex_);
    there = names();
    for (const Entry& e : entries_) {
      if (!is_gpu(e.device)) continue;
      ++gpus;
      visible += e.visible ? 1 : 0;
    }
  }
  if (visible >= count) return {};
  std::string text =
      detail::concat(count, " were asked for, ", visible, " can be used; physical devices: ", there);
  if (gpus > visible) text += detail::concat("; ", gpus - visible, " hidden by set_visible_devices");
  for (const PluginStatus& plugin : plugin_statuses())
    if (plugin.kind == PluginKind::device)
      text += plugin.loaded ? detail::concat("; plugin ", plugin.name, " is loaded from ", plugin.path)
                            : detail::concat("; plugin ", plugin.name, " is not loaded: ", plugin.reason);
  if (gpus == 0 && !machine_gpus().reason.empty() && find_plugin("cuda"))
    text += detail::concat("; ", machine_gpus().reason);
  if (const auto shown = env::read_string("CUDA_VISIBLE_DEVICES"))
    text += detail::concat("; CUDA_VISIBLE_DEVICES=", *shown);
  return text;
}

}  // namespace lockstep
