// nvidia::Machine as JSON: between the child that asks the driver and this process, and in the doctor's
// report. What is not told is null.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "device/nvidia_driver.h"

template <class T>
struct nlohmann::adl_serializer<std::optional<T>> {
  template <class Json>
  static void to_json(Json& json, const std::optional<T>& value) {
    if (value)
      json = *value;
    else
      json = nullptr;
  }
  template <class Json>
  static void from_json(const Json& json, std::optional<T>& value) {
    if (json.is_null())
      value.reset();
    else
      value = json.template get<T>();
  }
};

namespace lockstep {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LoadAttempt, path, reason)
}

namespace lockstep::nvidia {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Process, pid, name, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NvLink, index, active, peer)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Peer, uuid, access, nvlink, status, distance)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, name, uuid, pci, number, visible_number, capability, memory,
                                   memory_used, multiprocessors, clock_mhz, memory_clock_mhz, memory_bus_bits,
                                   processes, pcie_generation, pcie_width, pcie_max_generation,
                                   pcie_max_width, links, peers, slowed_by, persistence, mig, mig_devices,
                                   compute_mode, ecc_corrected, ecc_uncorrected, celsius, watts, watts_limit,
                                   failures)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Library, title, file, path, version, failures, elsewhere, error, code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Machine, cuda, nvml, libraries, searched, driver_version, cuda_version,
                                   gpus, visible, nodes, on_bus, module_version, container, mishap)
}  // namespace lockstep::nvidia
