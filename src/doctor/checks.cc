#include "doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "doctor/diagnosis.h"

namespace lockstep::doctor {
namespace {

constexpr CheckInfo kChecks[] = {
    {"no_gpu", "the machine has no NVIDIA GPU"},
    {"driver_missing", "there is a GPU, but no driver"},
    {"driver_broken", "the driver is there, but does not start, hangs or crashes"},
    {"driver_too_old", "the driver is older than the CUDA version needs"},
    {"nvml_missing", "the driver's management library is missing"},
    {"device_nodes_missing", "the driver is there, but no device nodes, as in a container without GPUs"},
    {"gpu_failing", "a GPU does not answer"},
    {"visible_devices_empty", "CUDA_VISIBLE_DEVICES is empty: it hides every GPU"},
    {"visible_devices_negative", "CUDA_VISIBLE_DEVICES is -1: it hides every GPU"},
    {"visible_devices_malformed", "CUDA_VISIBLE_DEVICES is not what CUDA understands"},
    {"visible_devices_hide", "CUDA_VISIBLE_DEVICES hides some of the GPUs"},
    {"chip_unsupported", "this build has no code for a GPU's chip"},
    {"compute_mode", "a GPU is set to refuse programs, or all but one"},
    {"mig_without_parts", "a GPU is split by MIG, but has no parts to compute on"},
    {"gpu_memory_held", "other processes hold memory of a GPU"},
    {"gpu_memory_errors", "a GPU's memory had errors that could not be corrected"},
    {"gpu_slowed", "a GPU's clocks are held down by heat or power"},
    {"pcie_width", "a GPU has fewer PCIe lanes than it could"},
    {"persistence_off", "the driver forgets the GPUs when no program uses them"},
    {"nvlink_unused", "GPUs with NVLink talk over PCIe"},
    {"no_peer_access", "GPUs cannot read each other's memory"},
    {"shared_memory_small", "/dev/shm is too small for several GPUs"},
    {"built_without_cuda", "there is a GPU, but no CUDA plugin"},
    {"library_missing", "a library of CUDA is not found"},
    {"nccl_missing", "there are several GPUs, but no NCCL"},
    {"library_version", "a library of CUDA is of another version than this build's"},
    {"plugin_refused", "a plugin is there, but cannot be loaded"},
    {"engine_missing", "an engine that joins the workers of a run has no plugin"},
    {"devices_failed", "the devices cannot be listed"},
    {"gpus_unused", "GPUs are visible, and yet not among the devices"},
    {"unknown_variable", "an environment variable LOCKSTEP_... that does not exist"},
    {"invalid_variable", "an environment variable has a value that is not allowed"},
    {"wait_policy", "OMP_WAIT_POLICY=passive slows small steps down"},
    {"launch_blocking", "CUDA_LAUNCH_BLOCKING makes every kernel wait for the one before"},
    {"tf_config", "TF_CONFIG does not describe a run"},
    {"cpu_quota", "the process may use less processor time than it has cores"},
    {"old_processor", "the processor has no AVX2"},
    {"memory_low", "little memory is free"},
    {"wrong_result", "a device computes wrongly"},
    {"trial_failed", "a device could not carry out a short run"},
    {"slow_device", "a device stays far below its ceiling"},
};

}  // namespace

std::span<const CheckInfo> all_checks() { return kChecks; }

void put_problems_first(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
}

std::vector<Finding> diagnose(const Surroundings& seen) {
  Diagnosis d(seen);
  check_driver(d);
  check_gpus(d);
  check_software(d);
  check_host(d);
  put_problems_first(d.findings);
  return std::move(d.findings);
}

std::vector<Finding> diagnose(const std::vector<Trial>& trials) {
  // Far below what any device reaches when it is left alone.
  constexpr double kSlow = 0.25;
  std::vector<Finding> findings;
  for (const Trial& trial : trials) {
    const std::string work = trial.device + ", " + trial.work;
    if (!trial.fault.empty() && trial.rate == 0)
      findings.push_back({"trial_failed",
                          Severity::problem,
                          trial.device + " could not carry out a short run.",
                          {work + ": " + trial.fault},
                          "LOCKSTEP_LOG=debug lockstep doctor"});
    else if (!trial.correct)
      findings.push_back({"wrong_result",
                          Severity::problem,
                          trial.device + " computes wrongly.",
                          {work + ": " + trial.fault},
                          "do not train on it; on a GPU: nvidia-smi -q -d ECC, and try another GPU"});
    else if (!trial.disturbed && trial.rate < kSlow * trial.ceiling)
      findings.push_back({"slow_device",
                          Severity::warning,
                          trial.device + " stays far below its ceiling.",
                          {fmt::format("{}: {:.0f} of {:.0f} {} ({})", work, trial.rate, trial.ceiling,
                                       trial.unit, trial.ceiling_is)},
                          "see what else runs on it (top, nvidia-smi), then run lockstep doctor again"});
  }
  return findings;
}

}  // namespace lockstep::doctor
