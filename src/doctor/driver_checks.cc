// Whether the driver of the GPUs is there, starts, and is new enough.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "doctor/diagnosis.h"

namespace lockstep::doctor {
namespace {

using nvidia::Library;

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::vector<std::string> traces(const nvidia::Machine& machine) {
  std::vector<std::string> evidence;
  if (!machine.on_bus.empty())
    evidence.push_back(fmt::format("on the PCI bus: {}", fmt::join(machine.on_bus, ", ")));
  if (!machine.nodes.empty())
    evidence.push_back(fmt::format("device nodes: {}", fmt::join(machine.nodes, ", ")));
  if (!machine.module_version.empty())
    evidence.push_back("kernel module of version " + machine.module_version + " is loaded");
  if (!machine.container.empty()) evidence.push_back("this is a container: " + machine.container);
  return evidence;
}

void driver_is_missing(Diagnosis& d) {
  if (!d.has_hardware) {
    d.add(Severity::note, "no_gpu", "There is no NVIDIA GPU here: training runs on the CPU.",
          {"nothing of NVIDIA on the PCI bus, no device nodes, no driver"}, "");
    return;
  }
  std::vector<std::string> evidence = traces(d.machine);
  for (std::string& line : loading(d.machine.cuda, d.machine)) evidence.push_back(std::move(line));
  const std::string folder = folder_with(d.machine.cuda);
  d.add(Severity::problem, "driver_missing",
        "There is an NVIDIA GPU, but its driver's library libcuda.so.1 is not found.", std::move(evidence),
        !folder.empty()
            ? "export LD_LIBRARY_PATH=" + folder + ":$LD_LIBRARY_PATH"
            : in_container(d.machine,
                           "docker run --gpus all ...   # with the NVIDIA container toolkit on the host",
                           "install NVIDIA's driver (Debian: apt install nvidia-driver; Ubuntu: "
                           "ubuntu-drivers install), then restart"));
}

void driver_versions(Diagnosis& d) {
  const int needed = d.cuda();
  if (d.machine.cuda_version == 0 || d.machine.cuda_version / 1000 >= needed / 1000) return;
  // Within a major version any driver serves any CUDA runtime.
  static constexpr std::pair<int, const char*> kOldest[] = {{13, "580.65"}, {12, "525.60"}, {11, "450.80"}};
  std::string oldest = "a newer one";
  for (const auto& [major, version] : kOldest)
    if (needed / 1000 == major) oldest = std::string(version) + " or newer";
  d.add(Severity::problem, "driver_too_old",
        fmt::format("NVIDIA's driver is too old for CUDA {}.", nvidia::cuda_version_text(needed)),
        {fmt::format("driver {} supports CUDA up to {}; this build of Lockstep needs {}",
                     d.machine.driver_version.empty() ? d.machine.module_version : d.machine.driver_version,
                     nvidia::cuda_version_text(d.machine.cuda_version), nvidia::cuda_version_text(needed))},
        fmt::format("install driver {}{}", oldest,
                    in_container(d.machine, ": on the host, a container cannot bring its own", "")));
}

void driver_start(Diagnosis& d) {
  const Library& cuda = d.machine.cuda;
  const bool nodes = std::any_of(d.machine.nodes.begin(), d.machine.nodes.end(), [](const std::string& node) {
    return node == "/dev/dxg" || (node.starts_with("/dev/nvidia") && std::isdigit(node.back()));
  });
  if (!cuda.error.empty() && (cuda.code == kNoDevice || !nodes)) {
    // The driver finds nothing. Is there anything to find?
    if (d.machine.gpus.empty() && d.machine.on_bus.empty() && d.machine.module_version.empty() && !nodes &&
        d.machine.container.empty()) {
      d.add(Severity::note, "no_gpu",
            "A driver is installed, but there is no NVIDIA GPU: training runs on the CPU.",
            {cuda.error, "library: " + cuda.path}, "");
      return;
    }
    if (!nodes) {
      std::vector<std::string> evidence{cuda.error, "there is no /dev/nvidia0"};
      for (std::string& line : traces(d.machine)) evidence.push_back(std::move(line));
      // A container may hide what the machine has: without a trace of a GPU, it may have none.
      const bool sure =
          !d.machine.on_bus.empty() || !d.machine.module_version.empty() || !d.machine.gpus.empty();
      d.add(sure ? Severity::problem : Severity::warning, "device_nodes_missing",
            "The driver is there, but the GPUs' device nodes are not.", std::move(evidence),
            in_container(d.machine,
                         "docker run --gpus all ...   # or --device /dev/nvidia0 --device /dev/nvidiactl "
                         "--device /dev/nvidia-uvm",
                         "sudo nvidia-modprobe -u -c 0   # makes them; and see that the kernel module is "
                         "loaded: lsmod | grep nvidia"));
      return;
    }
  }
  const bool mismatch = d.machine.nvml.code == 18 || cuda.code == 803;
  if (cuda.error.empty() && d.machine.nvml.error.empty()) return;
  std::vector<std::string> evidence;
  for (const Library* library : {&cuda, &d.machine.nvml})
    if (!library->error.empty()) evidence.push_back(library->error + " [" + library->path + "]");
  for (std::string& line : traces(d.machine)) evidence.push_back(std::move(line));
  static constexpr std::pair<int, const char*> kFixes[] = {
      {34, "this libcuda.so.1 is a stub to link against: take its folder out of LD_LIBRARY_PATH"},
      {46, "another process has the GPU to itself: wait for it, or  sudo nvidia-smi -c DEFAULT"},
      {802, "sudo systemctl restart nvidia-fabricmanager   # GPUs joined by NVSwitch wait for it"},
      {804, "take CUDA's folder compat out of LD_LIBRARY_PATH: this chip cannot use it"},
      {999, "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm   # often after suspend; else restart"},
  };
  std::string fix = "nvidia-smi   # what does it say? then restart the machine";
  for (const auto& [code, words] : kFixes)
    if (cuda.code == code) fix = words;
  if (mismatch) fix = "restart the machine: the driver was updated while its old kernel module stayed loaded";
  if (d.machine.nvml.code == 9) fix = "sudo modprobe nvidia   # the kernel module is not loaded";
  // Where CUDA starts, training works.
  d.add(cuda.error.empty() ? Severity::warning : Severity::problem, "driver_broken",
        mismatch
            ? "NVIDIA's driver does not start: its library and its kernel module are of different versions."
        : cuda.error.empty() ? "The driver's management library does not start."
                             : "NVIDIA's driver is there, but does not start.",
        std::move(evidence), std::move(fix));
}

}  // namespace

void check_driver(Diagnosis& d) {
  if (!d.machine.mishap.empty()) {
    std::vector<std::string> evidence = traces(d.machine);
    evidence.insert(evidence.begin(), "asking it " + d.machine.mishap);
    d.add(Severity::problem, "driver_broken",
          "NVIDIA's driver " + std::string(d.machine.mishap.starts_with("did") ? "hangs" : "crashes") + ".",
          std::move(evidence),
          "sudo dmesg | grep -iE 'nvrm|xid'   # says which GPU; then restart the machine");
    return;
  }
  if (d.machine.cuda.path.empty()) return driver_is_missing(d);
  driver_versions(d);
  driver_start(d);
  if (d.machine.nvml.path.empty()) {
    d.add(Severity::warning, "nvml_missing",
          "The driver's management library is missing: who holds memory, clocks, heat and links are not "
          "known.",
          loading(d.machine.nvml, d.machine),
          in_container(d.machine, "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
                       "install the driver's package with libnvidia-ml.so.1 (Debian: libnvidia-ml1)"));
  }
}

}  // namespace lockstep::doctor
