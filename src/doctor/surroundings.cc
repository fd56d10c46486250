#include "doctor/surroundings.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "device/cpu_device.h"
#include "lockstep/base/error.h"
#include "lockstep/device/config.h"

namespace lockstep::doctor {
namespace {

// The text after `key` on the first line that begins with it; the whole line where `key` is empty.
std::string line_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    line.erase(0, key.size());
    const size_t begin = line.find_first_not_of(" \t:=\"");
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return {};
}

int64_t kibibytes(const std::string& text) {
  int64_t count = 0;
  std::istringstream(text) >> count;
  return count * 1024;
}

std::string instruction_sets() {
  std::string found;
#if defined(__x86_64__)
  const auto add = [&](bool there, const char* name) {
    if (there) found += (found.empty() ? "" : ", ") + std::string(name);
  };
  add(__builtin_cpu_supports("avx2"), "AVX2");
  add(__builtin_cpu_supports("fma"), "FMA");
  add(__builtin_cpu_supports("avx512f"), "AVX-512");
  add(__builtin_cpu_supports("avx512vnni"), "VNNI");
  add(__builtin_cpu_supports("avx512bf16"), "bfloat16");
#endif
  return found.empty() ? "baseline only" : found;
}

// "200000 100000": microseconds of processor time in a period; "max 100000": no limit.
std::optional<double> core_quota(const std::string& root) {
  std::istringstream text(line_of(root + "/sys/fs/cgroup/cpu.max", ""));
  double quota = 0, period = 0;
  if (text >> quota >> period && period > 0) return quota / period;
  return std::nullopt;
}

std::optional<int64_t> memory_limit(const std::string& root) {
  std::istringstream text(line_of(root + "/sys/fs/cgroup/memory.max", ""));
  int64_t bytes = 0;
  return text >> bytes ? std::optional(bytes) : std::nullopt;
}

std::optional<int64_t> size_of_folder(const std::string& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) return std::nullopt;
  return static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize);
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(1 << 30));
}

Host look_at_host(const std::string& root) {
  Host host;
  host.cpu = line_of(root + "/proc/cpuinfo", "model name");
  if (host.cpu.empty()) host.cpu = "unknown";
  host.instruction_sets = instruction_sets();
#if defined(__x86_64__)
  host.avx2 = __builtin_cpu_supports("avx2");
#endif
  utsname kernel{};
  uname(&kernel);
  host.system = line_of(root + "/etc/os-release", "PRETTY_NAME");
  host.system += (host.system.empty() ? "" : ", ") + std::string("Linux ") + kernel.release;
  host.cores = static_cast<int>(std::thread::hardware_concurrency());
  host.usable_cores = available_cores();
  host.core_quota = core_quota(root);
  host.memory = kibibytes(line_of(root + "/proc/meminfo", "MemTotal"));
  host.memory_available = kibibytes(line_of(root + "/proc/meminfo", "MemAvailable"));
  host.memory_limit = memory_limit(root);
  host.shared_memory = size_of_folder(root + "/dev/shm");
  return host;
}

Surroundings look_around(const nvidia::Search& search) {
  Surroundings seen;
  seen.host = look_at_host(search.root);
  // Plugins first: the libraries that they have loaded are then the ones that are found.
  seen.plugins = plugin_statuses();
  if (const nvidia::Build* build = nvidia::registered_build()) seen.build = *build;
  // Before the list of devices, for which the plugin may initialise CUDA.
  seen.nvidia = nvidia::discover(search);
  seen.environment = environment();
  seen.unknown_variables = env::unknown_variables();
  try {
    for (const config::PhysicalDevice& device : config::list_physical_devices())
      seen.devices.push_back(device.name);
  } catch (const Error& error) {
    seen.devices_fault = error.message();
  }
  seen.own_pid = getpid();
  return seen;
}

}  // namespace lockstep::doctor
