#include "doctor/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/environment.h"
#include "comm/tf_config.h"
#include "device/nvidia_visible.h"
#include "lockstep/base/error.h"

namespace lockstep::doctor {
namespace {

using nvidia::Gpu;
using nvidia::Library;

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

constexpr double kMiB = 1 << 20;
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string mebibytes(int64_t bytes) { return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiB); }

// What joins the workers of a run.
struct WorkerEngine {
  std::string_view plugin, title;
  std::string_view carries;            // what it is for
  std::string_view library, to_build;  // Debian's packages
};
constexpr WorkerEngine kWorkerEngines[] = {
    {"gloo", "Gloo", "joins workers over TCP, whoever starts them", "libgloo0", "libgloo-dev"},
    {"mpi", "MPI", "joins the workers that mpirun starts", "libopenmpi3", "libopenmpi-dev openmpi-bin"},
    {"nccl", "NCCL", "joins the GPUs of several workers", "libnccl2", "libnccl-dev"},
};
const WorkerEngine* worker_engine(std::string_view plugin) {
  for (const WorkerEngine& engine : kWorkerEngines)
    if (engine.plugin == plugin) return &engine;
  return nullptr;
}

// "GPU 0 (NVIDIA H200)"
std::string title(const Gpu& gpu) {
  return fmt::format("GPU {} ({})", gpu.number ? std::to_string(*gpu.number) : gpu.pci,
                     gpu.name.empty() ? "unknown" : gpu.name);
}

// What is looked for, and what the loader said.
std::vector<std::string> loading(const Library& library, const nvidia::Machine& machine) {
  std::vector<std::string> evidence;
  for (const LoadAttempt& failure : library.failures)
    evidence.push_back("loader: " + describe(std::span(&failure, 1)));
  if (!machine.searched.empty())
    evidence.push_back(fmt::format("searched: {}", fmt::join(machine.searched, ", ")));
  for (const std::string& file : library.elsewhere) evidence.push_back("not searched, but there: " + file);
  return evidence;
}

// The folder of a copy that has the needed name; empty: there is none.
std::string folder_with(const Library& library) {
  for (const std::string& file : library.elsewhere)
    if (file.ends_with("/" + library.file)) return file.substr(0, file.rfind('/'));
  return {};
}

std::string in_container(const nvidia::Machine& machine, std::string_view inside, std::string_view outside) {
  return std::string(machine.container.empty() ? outside : inside);
}

class Diagnosis {
 public:
  explicit Diagnosis(const Surroundings& seen) : seen_(seen), machine_(seen.nvidia) {
    for (const Gpu& gpu : machine_.gpus)
      if (gpu.visible_number) visible_.push_back(&gpu);
    std::sort(visible_.begin(), visible_.end(),
              [](const Gpu* a, const Gpu* b) { return *a->visible_number < *b->visible_number; });
    has_hardware_ = !machine_.gpus.empty() || !machine_.on_bus.empty() || !machine_.nodes.empty() ||
                    !machine_.module_version.empty();
  }

  std::vector<Finding> run() {
    driver();
    visibility();
    for (const Gpu& gpu : machine_.gpus) health(gpu);
    memory();
    links();
    libraries();
    plugins();
    variables();
    host();
    return std::move(findings_);
  }

 private:
  void add(Severity severity, std::string_view check, std::string cause, std::vector<std::string> evidence,
           std::string fix) {
    findings_.push_back(
        {std::string(check), severity, std::move(cause), std::move(evidence), std::move(fix)});
  }

  std::string cuda_needed() const {
    return nvidia::cuda_version_text(seen_.build && seen_.build->cuda ? seen_.build->cuda
                                                                      : nvidia::kCudaNeeded);
  }

  // ---- Driver -------------------------------------------------------------------------------------------

  std::vector<std::string> traces() const {
    std::vector<std::string> evidence;
    if (!machine_.on_bus.empty())
      evidence.push_back(fmt::format("on the PCI bus: {}", fmt::join(machine_.on_bus, ", ")));
    if (!machine_.nodes.empty())
      evidence.push_back(fmt::format("device nodes: {}", fmt::join(machine_.nodes, ", ")));
    if (!machine_.module_version.empty())
      evidence.push_back("kernel module of version " + machine_.module_version + " is loaded");
    if (!machine_.container.empty()) evidence.push_back("this is a container: " + machine_.container);
    return evidence;
  }

  void driver() {
    if (!machine_.mishap.empty()) {
      std::vector<std::string> evidence = traces();
      evidence.insert(evidence.begin(), "asking it " + machine_.mishap);
      add(Severity::problem, "driver_broken",
          "NVIDIA's driver " + std::string(machine_.mishap.starts_with("did") ? "hangs" : "crashes") + ".",
          std::move(evidence),
          "sudo dmesg | grep -iE 'nvrm|xid'   # says which GPU; then restart the machine");
      return;
    }
    if (machine_.cuda.path.empty()) return driver_is_missing();
    driver_versions();
    driver_start();
    if (machine_.nvml.path.empty()) {
      add(Severity::warning, "nvml_missing",
          "The driver's management library is missing: who holds memory, clocks, heat and links are not "
          "known.",
          loading(machine_.nvml, machine_),
          in_container(machine_, "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
                       "install the driver's package with libnvidia-ml.so.1 (Debian: libnvidia-ml1)"));
    }
  }

  void driver_is_missing() {
    if (!has_hardware_) {
      add(Severity::note, "no_gpu", "There is no NVIDIA GPU here: training runs on the CPU.",
          {"nothing of NVIDIA on the PCI bus, no device nodes, no driver"}, "");
      return;
    }
    std::vector<std::string> evidence = traces();
    for (std::string& line : loading(machine_.cuda, machine_)) evidence.push_back(std::move(line));
    const std::string folder = folder_with(machine_.cuda);
    add(Severity::problem, "driver_missing",
        "There is an NVIDIA GPU, but its driver's library libcuda.so.1 is not found.", std::move(evidence),
        !folder.empty()
            ? "export LD_LIBRARY_PATH=" + folder + ":$LD_LIBRARY_PATH"
            : in_container(machine_,
                           "docker run --gpus all ...   # with the NVIDIA container toolkit on the host",
                           "install NVIDIA's driver (Debian: apt install nvidia-driver; Ubuntu: "
                           "ubuntu-drivers install), then restart"));
  }

  void driver_versions() {
    const int needed = seen_.build && seen_.build->cuda ? seen_.build->cuda : nvidia::kCudaNeeded;
    if (machine_.cuda_version == 0 || machine_.cuda_version / 1000 >= needed / 1000) return;
    // Within a major version any driver serves any CUDA runtime.
    static constexpr std::pair<int, const char*> kOldest[] = {{13, "580.65"}, {12, "525.60"}, {11, "450.80"}};
    std::string oldest = "a newer one";
    for (const auto& [major, version] : kOldest)
      if (needed / 1000 == major) oldest = std::string(version) + " or newer";
    add(Severity::problem, "driver_too_old",
        fmt::format("NVIDIA's driver is too old for CUDA {}.", nvidia::cuda_version_text(needed)),
        {fmt::format("driver {} supports CUDA up to {}; this build of Lockstep needs {}",
                     machine_.driver_version.empty() ? machine_.module_version : machine_.driver_version,
                     nvidia::cuda_version_text(machine_.cuda_version), nvidia::cuda_version_text(needed))},
        fmt::format("install driver {}{}", oldest,
                    in_container(machine_, ": on the host, a container cannot bring its own", "")));
  }

  void driver_start() {
    const Library& cuda = machine_.cuda;
    const bool nodes = std::any_of(machine_.nodes.begin(), machine_.nodes.end(), [](const std::string& node) {
      return node == "/dev/dxg" || (node.starts_with("/dev/nvidia") && std::isdigit(node.back()));
    });
    if (!cuda.error.empty() && (cuda.code == kNoDevice || !nodes)) {
      // The driver finds nothing. Is there anything to find?
      if (machine_.gpus.empty() && machine_.on_bus.empty() && machine_.module_version.empty() && !nodes &&
          machine_.container.empty()) {
        add(Severity::note, "no_gpu",
            "A driver is installed, but there is no NVIDIA GPU: training runs on the CPU.",
            {cuda.error, "library: " + cuda.path}, "");
        return;
      }
      if (!nodes) {
        std::vector<std::string> evidence{cuda.error, "there is no /dev/nvidia0"};
        for (std::string& line : traces()) evidence.push_back(std::move(line));
        // A container may hide what the machine has: without a trace of a GPU, it may have none.
        const bool sure =
            !machine_.on_bus.empty() || !machine_.module_version.empty() || !machine_.gpus.empty();
        add(sure ? Severity::problem : Severity::warning, "device_nodes_missing",
            "The driver is there, but the GPUs' device nodes are not.", std::move(evidence),
            in_container(machine_,
                         "docker run --gpus all ...   # or --device /dev/nvidia0 --device /dev/nvidiactl "
                         "--device /dev/nvidia-uvm",
                         "sudo nvidia-modprobe -u -c 0   # makes them; and see that the kernel module is "
                         "loaded: lsmod | grep nvidia"));
        return;
      }
    }
    const bool mismatch = machine_.nvml.code == 18 || cuda.code == 803;
    if (cuda.error.empty() && machine_.nvml.error.empty()) return;
    std::vector<std::string> evidence;
    for (const Library* library : {&cuda, &machine_.nvml})
      if (!library->error.empty()) evidence.push_back(library->error + " [" + library->path + "]");
    for (std::string& line : traces()) evidence.push_back(std::move(line));
    static constexpr std::pair<int, const char*> kFixes[] = {
        {34, "this libcuda.so.1 is a stub to link against: take its folder out of LD_LIBRARY_PATH"},
        {46, "another process has the GPU to itself: wait for it, or  sudo nvidia-smi -c DEFAULT"},
        {802, "sudo systemctl restart nvidia-fabricmanager   # GPUs joined by NVSwitch wait for it"},
        {804, "take CUDA's folder compat out of LD_LIBRARY_PATH: this chip cannot use it"},
        {999,
         "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm   # often after suspend; else restart"},
    };
    std::string fix = "nvidia-smi   # what does it say? then restart the machine";
    for (const auto& [code, words] : kFixes)
      if (cuda.code == code) fix = words;
    if (mismatch)
      fix = "restart the machine: the driver was updated while its old kernel module stayed loaded";
    if (machine_.nvml.code == 9) fix = "sudo modprobe nvidia   # the kernel module is not loaded";
    // Where CUDA starts, training works.
    add(cuda.error.empty() ? Severity::warning : Severity::problem, "driver_broken",
        mismatch
            ? "NVIDIA's driver does not start: its library and its kernel module are of different versions."
        : cuda.error.empty() ? "The driver's management library does not start."
                             : "NVIDIA's driver is there, but does not start.",
        std::move(evidence), std::move(fix));
  }

  // ---- CUDA_VISIBLE_DEVICES -----------------------------------------------------------------------------

  void visibility() {
    const std::string* value = seen_.variable("CUDA_VISIBLE_DEVICES");
    if (value == nullptr) return;
    std::vector<std::string> uuids;
    std::vector<const Gpu*> numbered;
    for (const Gpu& gpu : machine_.gpus)
      if (gpu.number) {
        uuids.push_back(gpu.uuid);
        numbered.push_back(&gpu);
      }
    if (uuids.empty()) return;
    if (value->starts_with("MIG-"))
      return;  // Which part of a GPU is meant is the driver's to say: the section on GPUs shows it.
    const nvidia::VisibleList list = nvidia::visible_by_rule(*value, uuids);
    std::vector<std::string> evidence{fmt::format("CUDA_VISIBLE_DEVICES=\"{}\"", *value)};
    if (!list.fault.empty()) evidence.push_back(list.fault);
    for (const Gpu* gpu : numbered)
      evidence.push_back(
          title(*gpu) + ", " + gpu->uuid + ": " +
          (gpu->visible_number ? fmt::format("visible as number {}", *gpu->visible_number) : "hidden"));
    const size_t hidden = numbered.size() - visible_.size();
    const std::string show_all =
        "unset CUDA_VISIBLE_DEVICES   # or name the ones you want: CUDA_VISIBLE_DEVICES=0";
    if (list.fault.find("empty") != std::string::npos)
      add(Severity::warning, "visible_devices_empty", "CUDA_VISIBLE_DEVICES is empty, which hides every GPU.",
          std::move(evidence), show_all);
    else if (!list.fault.empty() && list.gpus.empty() &&
             value->find_first_not_of(" \t") != std::string::npos &&
             (*value)[value->find_first_not_of(" \t")] == '-')
      add(Severity::warning, "visible_devices_negative",
          fmt::format("CUDA_VISIBLE_DEVICES is {}, which hides every GPU.", *value), std::move(evidence),
          show_all);
    else if (!list.fault.empty())
      add(Severity::problem, "visible_devices_malformed",
          hidden == numbered.size()
              ? "CUDA_VISIBLE_DEVICES is not understood and hides every GPU."
              : "CUDA_VISIBLE_DEVICES is not understood to its end: what follows is hidden.",
          std::move(evidence), show_all);
    else if (hidden > 0)
      add(Severity::note, "visible_devices_hide",
          fmt::format("CUDA_VISIBLE_DEVICES hides {} of {} GPUs.", hidden, numbered.size()),
          std::move(evidence), show_all);
  }

  // ---- One GPU ------------------------------------------------------------------------------------------

  void health(const Gpu& gpu) {
    const std::string who = title(gpu);
    if (!gpu.failures.empty())
      add(Severity::problem, "gpu_failing", who + " does not answer.", gpu.failures,
          "sudo dmesg | grep -i xid   # why; then  sudo nvidia-smi --gpu-reset  or restart the machine");
    const bool used = gpu.visible_number.has_value();
    if (used && gpu.capability > 0) {
      const bool runs = gpu.capability >= nvidia::kOldestCapability &&
                        (!seen_.build || nvidia::runs_on(*seen_.build, gpu.capability));
      if (!runs) {
        std::vector<std::string> evidence{
            fmt::format("its compute capability is {}.{}", gpu.capability / 10, gpu.capability % 10),
            fmt::format("CUDA {} serves {}.{} and newer", cuda_needed(), nvidia::kOldestCapability / 10,
                        nvidia::kOldestCapability % 10)};
        if (seen_.build)
          evidence.push_back(
              fmt::format("this build has code for {}", fmt::join(seen_.build->architectures, ", ")));
        add(Severity::problem, "chip_unsupported", "This build has no code for " + who + ".",
            std::move(evidence),
            gpu.capability < nvidia::kOldestCapability
                ? "use another GPU: CUDA has given this chip up"
                : fmt::format("cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES={}   # and build again",
                              gpu.capability));
      }
    }
    if (gpu.compute_mode == "prohibited" ||
        (gpu.compute_mode.starts_with("exclusive") && !gpu.processes.empty()))
      add(used ? Severity::problem : Severity::note, "compute_mode", who + " is set to refuse programs.",
          {"its compute mode is: " + gpu.compute_mode}, "sudo nvidia-smi -c DEFAULT");
    if (gpu.mig.value_or(false) && gpu.mig_devices.empty())
      add(Severity::problem, "mig_without_parts", who + " is split by MIG, but no part of it was made.",
          {"MIG is on, and there are no MIG devices"},
          "sudo nvidia-smi mig -cgi 0 -C   # one part, the whole GPU; or switch it off: sudo nvidia-smi -mig "
          "0");
    if (gpu.ecc_uncorrected.value_or(0) > 0)
      add(Severity::problem, "gpu_memory_errors", who + " had memory errors that could not be corrected.",
          {fmt::format("{} uncorrected, {} corrected since the driver was loaded", *gpu.ecc_uncorrected,
                       gpu.ecc_corrected.value_or(0))},
          "sudo nvidia-smi --gpu-reset   # where they come back: replace the GPU");
    if (!gpu.slowed_by.empty()) {
      std::vector<std::string> evidence{
          fmt::format("its clocks are held down by: {}", fmt::join(gpu.slowed_by, ", "))};
      if (gpu.celsius) evidence.push_back(fmt::format("it is at {:.0f} degrees", *gpu.celsius));
      if (gpu.watts && gpu.watts_limit)
        evidence.push_back(fmt::format("it draws {:.0f} W of {:.0f} W", *gpu.watts, *gpu.watts_limit));
      add(Severity::warning, "gpu_slowed", who + " runs slower than it could.", std::move(evidence),
          "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER   # then cool it, or raise the limit: sudo "
          "nvidia-smi -pl WATTS");
    }
    // The generation is lowered while a link is idle; the width is not.
    if (gpu.pcie_width && gpu.pcie_max_width && *gpu.pcie_width < *gpu.pcie_max_width)
      add(Severity::warning, "pcie_width", who + " has fewer PCIe lanes than it could.",
          {fmt::format("{} lanes of {}: copies to it take {:.1f} times as long", *gpu.pcie_width,
                       *gpu.pcie_max_width,
                       static_cast<double>(*gpu.pcie_max_width) / std::max(1, *gpu.pcie_width))},
          "put the GPU into a slot with all lanes, or look for a setting of the BIOS that shares them out");
    if (gpu.persistence == false)
      add(Severity::note, "persistence_off", who + " is set up anew by every program that starts.",
          {"persistence mode is off: the first program to start waits for it"}, "sudo nvidia-smi -pm 1");
  }

  void memory() {
    // Below this a driver's own bookkeeping may be what is held.
    constexpr int64_t kWorthSaying = int64_t{1} << 30;
    std::vector<std::string> evidence;
    const Gpu* freest = nullptr;
    std::vector<std::string> holders;
    bool visible = false;
    for (const Gpu& gpu : machine_.gpus) {
      if (!gpu.memory_used) continue;
      int64_t by_others = 0, by_us = 0;
      std::vector<std::string> lines;
      for (const nvidia::Process& process : gpu.processes) {
        const int64_t bytes = process.bytes.value_or(0);
        if (process.pid == seen_.own_pid) {
          by_us += bytes;
          continue;
        }
        by_others += bytes;
        lines.push_back(fmt::format("{}: pid {} ({}) holds {}", title(gpu), process.pid,
                                    process.name.empty() ? "name not told" : process.name,
                                    process.bytes ? mebibytes(bytes) : "an amount that is not told"));
        holders.push_back(std::to_string(process.pid));
      }
      if (const int64_t unnamed = *gpu.memory_used - by_us - by_others;
          lines.empty() && unnamed > kWorthSaying) {
        lines.push_back(fmt::format("{}: {} are held by processes that cannot be seen from here", title(gpu),
                                    mebibytes(unnamed)));
        by_others += unnamed;
      }
      if (by_others < kWorthSaying && by_others * 20 < gpu.memory) lines.clear();
      if (!lines.empty()) {
        lines.push_back(fmt::format("{}: {} of {} are free", title(gpu),
                                    gibibytes(gpu.memory - *gpu.memory_used), gibibytes(gpu.memory)));
        visible = visible || gpu.visible_number.has_value();
      } else if (gpu.number &&
                 (!freest || gpu.memory - *gpu.memory_used > freest->memory - *freest->memory_used)) {
        freest = &gpu;
      }
      std::move(lines.begin(), lines.end(), std::back_inserter(evidence));
    }
    if (evidence.empty()) return;
    add(visible ? Severity::warning : Severity::note, "gpu_memory_held",
        "Other processes hold memory of the GPUs.", std::move(evidence),
        freest ? fmt::format("export CUDA_VISIBLE_DEVICES={}   # {} is free; or stop those processes",
                             freest->uuid, title(*freest))
        : holders.empty()
            ? "nvidia-smi   # on the host, which sees the processes of all containers"
            : fmt::format("kill {}   # if they are yours and no longer needed", fmt::join(holders, " ")));
  }

  // ---- Between GPUs -------------------------------------------------------------------------------------

  void links() {
    if (visible_.size() < 2) return;
    std::vector<std::string> no_access, over_pcie, by_nvlink, inactive;
    bool has_nvlink = false;
    for (const Gpu* a : visible_) {
      has_nvlink = has_nvlink || !a->links.empty();
      const auto off =
          std::count_if(a->links.begin(), a->links.end(), [](const auto& link) { return !link.active; });
      if (off > 0)
        inactive.push_back(
            fmt::format("{}: {} of its {} NVLinks are not active", title(*a), off, a->links.size()));
      for (const nvidia::Peer& peer : a->peers) {
        const auto b = std::find_if(visible_.begin(), visible_.end(),
                                    [&](const Gpu* g) { return g->uuid == peer.uuid; });
        if (b == visible_.end() || *(*b)->visible_number < *a->visible_number) continue;
        const std::string pair = fmt::format("{} - {}", title(*a), title(**b));
        const std::string way = peer.distance.empty() ? "" : " (" + peer.distance + ")";
        if (peer.nvlink) {
          has_nvlink = true;
          by_nvlink.push_back(pair);
        } else {
          over_pcie.push_back(pair + ": PCIe" + way);
        }
        if (!peer.access) no_access.push_back(fmt::format("{}: {}{}", pair, peer.status, way));
      }
    }
    if (has_nvlink && (!over_pcie.empty() || !inactive.empty())) {
      std::vector<std::string> evidence = inactive;
      evidence.insert(evidence.end(), over_pcie.begin(), over_pcie.end());
      for (const std::string& pair : by_nvlink) evidence.push_back(pair + ": NVLink");
      add(Severity::warning, "nvlink_unused",
          over_pcie.empty() ? "Some NVLinks between the GPUs are down."
                            : "Some GPUs have NVLink, and yet talk over PCIe.",
          std::move(evidence),
          over_pcie.empty()
              ? "nvidia-smi nvlink --status   # which; with NVSwitch: sudo systemctl restart "
                "nvidia-fabricmanager"
              : "nvidia-smi topo -m   # then choose GPUs that NVLink joins, by CUDA_VISIBLE_DEVICES");
    }
    if (!no_access.empty())
      add(Severity::warning, "no_peer_access",
          "Some GPUs cannot read each other's memory: what they exchange goes through the host.",
          std::move(no_access),
          "nvidia-smi topo -p2p r   # then: switch IOMMU and ACS off in the BIOS, or choose GPUs below one "
          "PCIe switch");
    if (seen_.host.shared_memory && *seen_.host.shared_memory < (int64_t{1} << 30))
      add(Severity::warning, "shared_memory_small", "/dev/shm is too small for what several GPUs exchange.",
          {fmt::format("it has {}; NCCL wants 1 GiB", mebibytes(*seen_.host.shared_memory))},
          in_container(machine_, "docker run --shm-size=1g ...   # or --ipc=host",
                       "sudo mount -o remount,size=1G /dev/shm"));
  }

  // ---- Libraries and plugins ----------------------------------------------------------------------------

  void libraries() {
    if (machine_.gpus.empty() || !machine_.mishap.empty()) return;
    for (const Library& library : machine_.libraries) {
      const bool nccl = library.title == "NCCL";
      if (library.path.empty()) {
        if (nccl && visible_.size() < 2) continue;
        const std::string folder = folder_with(library);
        add(Severity::problem, nccl ? "nccl_missing" : "library_missing",
            nccl ? "NCCL is not found: GPUs cannot sum their gradients."
                 : fmt::format("{} ({}) is not found.", library.title, library.file),
            loading(library, machine_),
            !folder.empty()
                ? "export LD_LIBRARY_PATH=" + folder + ":$LD_LIBRARY_PATH"
                : fmt::format("install {} for CUDA {} (from NVIDIA's package source: apt install {})",
                              library.title, cuda_needed(),
                              nccl                       ? "libnccl2"
                              : library.title == "cuDNN" ? "libcudnn9-cuda-13"
                                                         : "cuda-libraries-13-0"));
        continue;
      }
      const std::string built = seen_.build ? nvidia::built_with(*seen_.build, library.title) : "";
      if (built.empty() || library.version.empty() || built == library.version) continue;
      const auto major = [](const std::string& version) { return version.substr(0, version.find('.')); };
      const bool other = major(built) != major(library.version);
      add(other ? Severity::problem : Severity::note, "library_version",
          fmt::format("{} is of version {}, and Lockstep was built with {}.", library.title, library.version,
                      built),
          {"found: " + library.path},
          other ? fmt::format("install {} {}, or build Lockstep against {}", library.title, built,
                              library.version)
                : "");
    }
  }

  // Whether a launcher has started this process as one of several that the engine is to join.
  bool needs(const WorkerEngine& engine) const {
    const auto several = [&](const char* name) {
      const std::string* const value = seen_.variable(name);
      return value && std::atoi(value->c_str()) > 1;
    };
    const bool mpirun = several("OMPI_COMM_WORLD_SIZE") || several("PMI_SIZE");
    const bool others = several("WORLD_SIZE") || several("LOCKSTEP_WORKERS") ||
                        several("SLURM_STEP_NUM_TASKS") || seen_.variable("TF_CONFIG");
    if (engine.plugin == "nccl") return !visible_.empty() && (mpirun || others);
    return engine.plugin == "mpi" ? mpirun : !mpirun && others;
  }

  void plugins() {
    for (const PluginStatus& plugin : seen_.plugins) {
      if (plugin.loaded) continue;
      const bool absent = plugin.reason.find(" not found in ") != std::string::npos;
      const bool cuda = plugin.name == "cuda";
      const WorkerEngine* const engine = worker_engine(plugin.name);
      if (!absent) {
        const bool needed = cuda ? !machine_.gpus.empty() : engine && needs(*engine);
        std::string install = "install the library that is named, or add its folder to LD_LIBRARY_PATH";
        if (engine)
          install = fmt::format("apt install {}   # or add the library's folder to LD_LIBRARY_PATH",
                                engine->library);
        add(needed ? Severity::problem : Severity::warning, "plugin_refused",
            fmt::format("The plugin {} is there, but cannot be loaded.", plugin.name), {plugin.reason},
            plugin.reason.find("cannot open shared object file") != std::string::npos
                ? std::move(install)
                : "build the library and its plugins together, and install both");
      } else if (engine && (engine->plugin != "nccl" || has_hardware_)) {
        add(needs(*engine) ? Severity::problem : Severity::note, "engine_missing",
            fmt::format("This Lockstep has no plugin for {}, which {}.", engine->title, engine->carries),
            {plugin.reason},
            fmt::format("apt install {} && cmake --build build/release --target lockstep_engines   # or name "
                        "the plugin's folder in LOCKSTEP_PLUGIN_PATH",
                        engine->to_build));
      }
      if (absent && cuda && has_hardware_)
        add(Severity::problem, "built_without_cuda",
            "There is a GPU, but this Lockstep was built without CUDA.", {plugin.reason},
            "cmake --preset cuda && cmake --build build/cuda   # or name the plugin's folder in "
            "LOCKSTEP_PLUGIN_PATH");
    }
    if (!seen_.devices_fault.empty()) {
      add(Severity::problem, "devices_failed", "The devices cannot be listed.", {seen_.devices_fault}, "");
      return;
    }
    const bool problem = std::any_of(findings_.begin(), findings_.end(),
                                     [](const Finding& f) { return f.severity == Severity::problem; });
    const auto gpus = std::count_if(seen_.devices.begin(), seen_.devices.end(), [](const std::string& d) {
      return d.find(":GPU:") != std::string::npos;
    });
    if (!problem && static_cast<size_t>(gpus) < visible_.size())
      add(Severity::problem, "gpus_unused",
          fmt::format("CUDA shows {} GPU{}, and Lockstep uses {}.", visible_.size(),
                      visible_.size() == 1 ? "" : "s", gpus),
          {fmt::format("devices: {}", fmt::join(seen_.devices, ", "))},
          "LOCKSTEP_LOG=debug lockstep doctor   # says what the CUDA plugin did");
  }

  // ---- Environment and host -----------------------------------------------------------------------------

  void variables() {
    for (const env::Unknown& unknown : seen_.unknown_variables)
      add(Severity::problem, "unknown_variable",
          fmt::format("{} is set, but Lockstep knows no such variable.", unknown.name), {},
          unknown.nearest.empty() ? "unset " + unknown.name
                                  : fmt::format("did you mean {}?   export {}=... && unset {}",
                                                unknown.nearest, unknown.nearest, unknown.name));
    for (const env::Variable& variable : env::variables()) {
      const std::string* value = seen_.variable(std::string(variable.name));
      if (value == nullptr || value->empty() || variable.values.find('|') == std::string_view::npos) continue;
      std::vector<std::string_view> allowed;
      for (std::string_view rest = variable.values; !rest.empty();) {
        const size_t bar = std::min(rest.find('|'), rest.size());
        allowed.push_back(rest.substr(0, bar));
        rest.remove_prefix(std::min(bar + 1, rest.size()));
      }
      try {
        if (allowed.size() == 2)  // "0|1", "true|false"
          env::parse_bool(variable.name, *value);
        else
          env::parse_choice(variable.name, *value, allowed);
      } catch (const Error& error) {
        add(Severity::problem, "invalid_variable",
            fmt::format("{} has a value that is not allowed.", variable.name), {error.message()},
            fmt::format("unset {}   # or one of {}", variable.name, variable.values));
      }
    }
    if (const std::string* policy = seen_.variable("OMP_WAIT_POLICY");
        policy != nullptr && (*policy == "passive" || *policy == "PASSIVE"))
      add(Severity::warning, "wait_policy",
          "Threads sleep between kernels, which makes small steps several times slower.",
          {"OMP_WAIT_POLICY=" + *policy}, "unset OMP_WAIT_POLICY");
    if (const std::string* blocking = seen_.variable("CUDA_LAUNCH_BLOCKING");
        blocking != nullptr && *blocking == "1" && !visible_.empty())
      add(Severity::warning, "launch_blocking", "Every kernel on a GPU waits for the one before to end.",
          {"CUDA_LAUNCH_BLOCKING=1"}, "unset CUDA_LAUNCH_BLOCKING   # it is for finding faults");
    if (const std::string* config = seen_.variable("TF_CONFIG"))
      if (std::vector<std::string> faults = comm::tf_config_faults(*config); !faults.empty())
        add(Severity::problem, "tf_config", "TF_CONFIG does not describe a run on several machines.",
            std::move(faults),
            R"(export TF_CONFIG='{"cluster": {"worker": ["host0:12345", "host1:12345"]}, "task": {"type": "worker", "index": 0}}')");
  }

  void host() {
    const Host& h = seen_.host;
    if (h.core_quota && *h.core_quota < h.usable_cores - 0.01)
      add(Severity::warning, "cpu_quota",
          "The process may use less processor time than its cores have: its threads are stopped again and "
          "again.",
          {fmt::format("{:.1f} cores' time is granted, threads run on {}", *h.core_quota, h.usable_cores)},
          fmt::format(
              "taskset -c 0-{} ...   # or tf::config::threading::set_intra_op_parallelism_threads({})",
              std::max(1, static_cast<int>(*h.core_quota)) - 1,
              std::max(1, static_cast<int>(*h.core_quota))));
    if (!h.avx2)
      add(Severity::note, "old_processor",
          "The processor has no AVX2: kernels run at a fraction of what newer ones do.", {h.cpu}, "");
    const int64_t limit = h.memory_limit ? std::min(*h.memory_limit, h.memory) : h.memory;
    if (limit > 0 && h.memory_available < limit / 20)
      add(Severity::warning, "memory_low", "Little memory is free.",
          {fmt::format("{} of {}", gibibytes(h.memory_available), gibibytes(limit))},
          "ps aux --sort=-rss | head   # who holds it");
  }

  const Surroundings& seen_;
  const nvidia::Machine& machine_;
  std::vector<const Gpu*> visible_;
  bool has_hardware_ = false;
  std::vector<Finding> findings_;
};

}  // namespace

std::span<const CheckInfo> all_checks() { return kChecks; }

void put_problems_first(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
}

std::vector<Finding> diagnose(const Surroundings& seen) {
  std::vector<Finding> findings = Diagnosis(seen).run();
  put_problems_first(findings);
  return findings;
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
