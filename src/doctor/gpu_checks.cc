// The GPUs: which are visible, how each is, who holds their memory, and what lies between them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "device/nvidia_visible.h"
#include "doctor/diagnosis.h"

namespace lockstep::doctor {
namespace {

using nvidia::Gpu;

constexpr double kMiB = 1 << 20;

std::string mebibytes(int64_t bytes) { return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiB); }

void check_visibility(Diagnosis& d) {
  const std::string* value = d.seen.variable("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return;
  std::vector<std::string> uuids;
  std::vector<const Gpu*> numbered;
  for (const Gpu& gpu : d.machine.gpus)
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
  const size_t hidden = numbered.size() - d.visible.size();
  const std::string show_all =
      "unset CUDA_VISIBLE_DEVICES   # or name the ones you want: CUDA_VISIBLE_DEVICES=0";
  if (list.fault.find("empty") != std::string::npos)
    d.add(Severity::warning, "visible_devices_empty", "CUDA_VISIBLE_DEVICES is empty, which hides every GPU.",
          std::move(evidence), show_all);
  else if (!list.fault.empty() && list.gpus.empty() && value->find_first_not_of(" \t") != std::string::npos &&
           (*value)[value->find_first_not_of(" \t")] == '-')
    d.add(Severity::warning, "visible_devices_negative",
          fmt::format("CUDA_VISIBLE_DEVICES is {}, which hides every GPU.", *value), std::move(evidence),
          show_all);
  else if (!list.fault.empty())
    d.add(Severity::problem, "visible_devices_malformed",
          hidden == numbered.size()
              ? "CUDA_VISIBLE_DEVICES is not understood and hides every GPU."
              : "CUDA_VISIBLE_DEVICES is not understood to its end: what follows is hidden.",
          std::move(evidence), show_all);
  else if (hidden > 0)
    d.add(Severity::note, "visible_devices_hide",
          fmt::format("CUDA_VISIBLE_DEVICES hides {} of {} GPUs.", hidden, numbered.size()),
          std::move(evidence), show_all);
}

void check_health(Diagnosis& d, const Gpu& gpu) {
  const std::string who = title(gpu);
  if (!gpu.failures.empty())
    d.add(Severity::problem, "gpu_failing", who + " does not answer.", gpu.failures,
          "sudo dmesg | grep -i xid   # why; then  sudo nvidia-smi --gpu-reset  or restart the machine");
  const bool used = gpu.visible_number.has_value();
  if (used && gpu.capability > 0) {
    const bool runs = gpu.capability >= nvidia::kOldestCapability &&
                      (!d.seen.build || nvidia::runs_on(*d.seen.build, gpu.capability));
    if (!runs) {
      std::vector<std::string> evidence{
          fmt::format("its compute capability is {}.{}", gpu.capability / 10, gpu.capability % 10),
          fmt::format("CUDA {} serves {}.{} and newer", d.cuda_needed(), nvidia::kOldestCapability / 10,
                      nvidia::kOldestCapability % 10)};
      if (d.seen.build)
        evidence.push_back(
            fmt::format("this build has code for {}", fmt::join(d.seen.build->architectures, ", ")));
      d.add(Severity::problem, "chip_unsupported", "This build has no code for " + who + ".",
            std::move(evidence),
            gpu.capability < nvidia::kOldestCapability
                ? "use another GPU: CUDA has given this chip up"
                : fmt::format("cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES={}   # and build again",
                              gpu.capability));
    }
  }
  if (gpu.compute_mode == "prohibited" ||
      (gpu.compute_mode.starts_with("exclusive") && !gpu.processes.empty()))
    d.add(used ? Severity::problem : Severity::note, "compute_mode", who + " is set to refuse programs.",
          {"its compute mode is: " + gpu.compute_mode}, "sudo nvidia-smi -c DEFAULT");
  if (gpu.mig.value_or(false) && gpu.mig_devices.empty())
    d.add(Severity::problem, "mig_without_parts", who + " is split by MIG, but no part of it was made.",
          {"MIG is on, and there are no MIG devices"},
          "sudo nvidia-smi mig -cgi 0 -C   # one part, the whole GPU; or switch it off: sudo nvidia-smi -mig "
          "0");
  if (gpu.ecc_uncorrected.value_or(0) > 0)
    d.add(Severity::problem, "gpu_memory_errors", who + " had memory errors that could not be corrected.",
          {fmt::format("{} uncorrected, {} corrected since the driver was loaded", *gpu.ecc_uncorrected,
                       gpu.ecc_corrected.value_or(0))},
          "sudo nvidia-smi --gpu-reset   # where they come back: replace the GPU");
  if (!gpu.slowed_by.empty()) {
    std::vector<std::string> evidence{
        fmt::format("its clocks are held down by: {}", fmt::join(gpu.slowed_by, ", "))};
    if (gpu.celsius) evidence.push_back(fmt::format("it is at {:.0f} degrees", *gpu.celsius));
    if (gpu.watts && gpu.watts_limit)
      evidence.push_back(fmt::format("it draws {:.0f} W of {:.0f} W", *gpu.watts, *gpu.watts_limit));
    d.add(Severity::warning, "gpu_slowed", who + " runs slower than it could.", std::move(evidence),
          "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER   # then cool it, or raise the limit: sudo "
          "nvidia-smi -pl WATTS");
  }
  // The generation is lowered while a link is idle; the width is not.
  if (gpu.pcie_width && gpu.pcie_max_width && *gpu.pcie_width < *gpu.pcie_max_width)
    d.add(Severity::warning, "pcie_width", who + " has fewer PCIe lanes than it could.",
          {fmt::format("{} lanes of {}: copies to it take {:.1f} times as long", *gpu.pcie_width,
                       *gpu.pcie_max_width,
                       static_cast<double>(*gpu.pcie_max_width) / std::max(1, *gpu.pcie_width))},
          "put the GPU into a slot with all lanes, or look for a setting of the BIOS that shares them out");
  if (gpu.persistence == false)
    d.add(Severity::note, "persistence_off", who + " is set up anew by every program that starts.",
          {"persistence mode is off: the first program to start waits for it"}, "sudo nvidia-smi -pm 1");
}

void check_memory(Diagnosis& d) {
  // Below this a driver's own bookkeeping may be what is held.
  constexpr int64_t kWorthSaying = int64_t{1} << 30;
  std::vector<std::string> evidence;
  const Gpu* freest = nullptr;
  std::vector<std::string> holders;
  bool visible = false;
  for (const Gpu& gpu : d.machine.gpus) {
    if (!gpu.memory_used) continue;
    int64_t by_others = 0, by_us = 0;
    std::vector<std::string> lines;
    for (const nvidia::Process& process : gpu.processes) {
      const int64_t bytes = process.bytes.value_or(0);
      if (process.pid == d.seen.own_pid) {
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
  d.add(visible ? Severity::warning : Severity::note, "gpu_memory_held",
        "Other processes hold memory of the GPUs.", std::move(evidence),
        freest ? fmt::format("export CUDA_VISIBLE_DEVICES={}   # {} is free; or stop those processes",
                             freest->uuid, title(*freest))
        : holders.empty()
            ? "nvidia-smi   # on the host, which sees the processes of all containers"
            : fmt::format("kill {}   # if they are yours and no longer needed", fmt::join(holders, " ")));
}

void check_links(Diagnosis& d) {
  if (d.visible.size() < 2) return;
  std::vector<std::string> no_access, over_pcie, by_nvlink, inactive;
  bool has_nvlink = false;
  for (const Gpu* a : d.visible) {
    has_nvlink = has_nvlink || !a->links.empty();
    const auto off =
        std::count_if(a->links.begin(), a->links.end(), [](const auto& link) { return !link.active; });
    if (off > 0)
      inactive.push_back(
          fmt::format("{}: {} of its {} NVLinks are not active", title(*a), off, a->links.size()));
    for (const nvidia::Peer& peer : a->peers) {
      const auto b = std::find_if(d.visible.begin(), d.visible.end(),
                                  [&](const Gpu* g) { return g->uuid == peer.uuid; });
      if (b == d.visible.end() || *(*b)->visible_number < *a->visible_number) continue;
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
    d.add(Severity::warning, "nvlink_unused",
          over_pcie.empty() ? "Some NVLinks between the GPUs are down."
                            : "Some GPUs have NVLink, and yet talk over PCIe.",
          std::move(evidence),
          over_pcie.empty()
              ? "nvidia-smi nvlink --status   # which; with NVSwitch: sudo systemctl restart "
                "nvidia-fabricmanager"
              : "nvidia-smi topo -m   # then choose GPUs that NVLink joins, by CUDA_VISIBLE_DEVICES");
  }
  if (!no_access.empty())
    d.add(Severity::warning, "no_peer_access",
          "Some GPUs cannot read each other's memory: what they exchange goes through the host.",
          std::move(no_access),
          "nvidia-smi topo -p2p r   # then: switch IOMMU and ACS off in the BIOS, or choose GPUs below one "
          "PCIe switch");
  if (d.seen.host.shared_memory && *d.seen.host.shared_memory < (int64_t{1} << 30))
    d.add(Severity::warning, "shared_memory_small", "/dev/shm is too small for what several GPUs exchange.",
          {fmt::format("it has {}; NCCL wants 1 GiB", mebibytes(*d.seen.host.shared_memory))},
          in_container(d.machine, "docker run --shm-size=1g ...   # or --ipc=host",
                       "sudo mount -o remount,size=1G /dev/shm"));
}

}  // namespace

void check_gpus(Diagnosis& d) {
  check_visibility(d);
  for (const Gpu& gpu : d.machine.gpus) check_health(d, gpu);
  check_memory(d);
  check_links(d);
}

}  // namespace lockstep::doctor
