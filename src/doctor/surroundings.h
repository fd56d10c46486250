// All that the doctor looks at before it says anything: tests put together what it should see.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "device/nvidia_driver.h"
#include "device/plugin.h"

namespace lockstep::doctor {

struct Host {
  std::string cpu, instruction_sets, system;
  bool avx2 = true;
  int cores = 1, usable_cores = 1;           // of the machine; of this process's affinity
  std::optional<double> core_quota;          // what the process's control group grants
  int64_t memory = 0, memory_available = 0;  // bytes
  std::optional<int64_t> memory_limit;       // of the control group
  std::optional<int64_t> shared_memory;      // size of /dev/shm
};

struct Surroundings {
  Host host;
  nvidia::Machine nvidia;
  std::optional<nvidia::Build> build;  // what the CUDA plugin says of itself
  std::vector<PluginStatus> plugins;
  std::map<std::string, std::string> environment;
  std::vector<std::string> devices;  // physical devices of tf::config
  std::string devices_fault;         // why they cannot be listed; empty: they can
  std::vector<env::Unknown> unknown_variables;
  int64_t own_pid = 0;

  const std::string* variable(const std::string& name) const {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : &found->second;
  }
};

// "79.6 GiB"
std::string gibibytes(int64_t bytes);

// Files of /proc and /sys are looked for under `root`.
Host look_at_host(const std::string& root = {});
// Loads the plugins; does not initialise devices.
Surroundings look_around(const nvidia::Search& search = {});

}  // namespace lockstep::doctor
