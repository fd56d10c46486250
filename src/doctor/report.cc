#include "doctor/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "device/backend_facts.h"
#include "device/nvidia_json.h"
#include "doctor/checks.h"

namespace lockstep::doctor {
namespace {

using nvidia::Gpu;
using nvidia::Library;

// Variables of others that change what Lockstep does, or how fast.
constexpr std::string_view kForeignVariables[] = {
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
};

Section machine(const Host& host, const std::string& container) {
  Section section{
      "Machine",
      {{"system", host.system + (container.empty() ? "" : ", in a container: " + container)},
       {"CPU", host.cpu},
       {"instruction sets", host.instruction_sets},
       {"cores", fmt::format("{} in the machine, {} for this process", host.cores, host.usable_cores)},
       {"memory",
        fmt::format("{} in all, {} free", gibibytes(host.memory), gibibytes(host.memory_available))}}};
  if (host.core_quota)
    section.facts.emplace_back("processor time",
                               fmt::format("that of {:.1f} cores is granted", *host.core_quota));
  if (host.memory_limit) section.facts.emplace_back("memory limit", gibibytes(*host.memory_limit));
  return section;
}

std::string whereabouts(const Library& library) {
  if (!library.error.empty()) return library.path + ", does not start: " + library.error;
  if (!library.path.empty()) return (library.version.empty() ? "" : library.version + ", ") + library.path;
  return "not found" + (library.failures.empty() ? "" : ": " + describe(library.failures));
}

std::string gpu_line(const Gpu& gpu) {
  std::vector<std::string> parts{gpu.name.empty() ? "unknown" : gpu.name};
  if (gpu.memory > 0)
    parts.push_back(gibibytes(gpu.memory) +
                    (gpu.memory_used ? ", " + gibibytes(*gpu.memory_used) + " in use" : ""));
  if (gpu.capability > 0)
    parts.push_back(fmt::format("compute capability {}.{}", gpu.capability / 10, gpu.capability % 10));
  if (gpu.multiprocessors) parts.push_back(fmt::format("{} multiprocessors", *gpu.multiprocessors));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string state_line(const Gpu& gpu) {
  std::vector<std::string> parts;
  if (gpu.celsius) parts.push_back(fmt::format("{:.0f} degrees", *gpu.celsius));
  if (gpu.watts)
    parts.push_back(fmt::format("{:.0f} W", *gpu.watts) +
                    (gpu.watts_limit ? fmt::format(" of {:.0f} W", *gpu.watts_limit) : ""));
  if (gpu.pcie_generation && gpu.pcie_width) {
    std::string link = fmt::format("PCIe {} x{} now", *gpu.pcie_generation, *gpu.pcie_width);
    if (gpu.pcie_max_generation && gpu.pcie_max_width)
      link += fmt::format(", {} x{} at most", *gpu.pcie_max_generation, *gpu.pcie_max_width);
    parts.push_back(std::move(link));
  }
  if (!gpu.links.empty())
    parts.push_back(
        fmt::format("{} of {} NVLinks active",
                    std::count_if(gpu.links.begin(), gpu.links.end(), [](const auto& l) { return l.active; }),
                    gpu.links.size()));
  if (gpu.mig.value_or(false)) parts.push_back(fmt::format("split by MIG into {}", gpu.mig_devices.size()));
  if (!gpu.slowed_by.empty()) parts.push_back(fmt::format("slowed by {}", fmt::join(gpu.slowed_by, ", ")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string label(const Gpu& gpu) { return "GPU " + (gpu.number ? std::to_string(*gpu.number) : gpu.pci); }

Section gpus(const nvidia::Machine& machine) {
  Section section{"GPUs", {}};
  Library driver = machine.cuda;
  driver.version.clear();  // CUDA's, which stands at the end
  const std::string version =
      machine.driver_version.empty() ? machine.module_version : machine.driver_version;
  section.facts.emplace_back(
      "NVIDIA driver",
      (version.empty() ? "" : version + ", ") + whereabouts(driver) +
          (machine.cuda_version > 0 ? ", for CUDA up to " + nvidia::cuda_version_text(machine.cuda_version)
                                    : ""));
  section.facts.emplace_back("NVML", whereabouts(machine.nvml));
  if (!machine.mishap.empty()) section.facts.emplace_back("asking them", machine.mishap);
  for (const Gpu& gpu : machine.gpus) {
    section.facts.emplace_back(label(gpu), gpu_line(gpu));
    section.facts.emplace_back(
        "", fmt::format("{}, {}, {}", gpu.uuid.empty() ? "UUID not told" : gpu.uuid, gpu.pci,
                        gpu.visible_number ? fmt::format("visible as number {}", *gpu.visible_number)
                        : machine.visible  ? "hidden from this process"
                                           : "not usable"));
    if (std::string state = state_line(gpu); !state.empty()) section.facts.emplace_back("", std::move(state));
    for (const nvidia::Process& process : gpu.processes)
      section.facts.emplace_back(
          "", fmt::format("pid {} {} holds {}", process.pid, process.name,
                          process.bytes ? gibibytes(*process.bytes) : "an amount that is not told"));
  }
  if (machine.gpus.empty()) section.facts.emplace_back("GPUs", "none");
  return section;
}

Section libraries(const Surroundings& seen) {
  Section section{"Libraries", {}};
  for (const Library& library : seen.nvidia.libraries) {
    std::string text = whereabouts(library);
    if (const std::string built = seen.build ? nvidia::built_with(*seen.build, library.title) : "";
        !built.empty())
      text += ", built with " + built;
    section.facts.emplace_back(library.title, std::move(text));
  }
  return section;
}

// Every pair of GPUs once.
Section links(const nvidia::Machine& machine) {
  Section section{"Links", {}};
  for (size_t i = 0; i < machine.gpus.size(); ++i)
    for (const nvidia::Peer& peer : machine.gpus[i].peers)
      for (size_t j = i + 1; j < machine.gpus.size(); ++j)
        if (machine.gpus[j].uuid == peer.uuid)
          section.facts.emplace_back(
              label(machine.gpus[i]) + " - " + label(machine.gpus[j]),
              fmt::format("{}{}, {}", peer.nvlink ? "NVLink" : "PCIe",
                          peer.distance.empty() ? "" : ", " + peer.distance,
                          peer.access ? "read each other's memory"
                                      : "no access to each other's memory: " + peer.status));
  return section;
}

Section plugins(const std::vector<PluginStatus>& statuses) {
  Section section{"Plugins", {}};
  for (const PluginStatus& status : statuses)
    section.facts.emplace_back(status.name,
                               status.loaded ? "loaded from " + status.path : "not loaded: " + status.reason);
  return section;
}

bool is_of_interest(const std::string& name) {
  return std::find(std::begin(kForeignVariables), std::end(kForeignVariables), name) !=
             std::end(kForeignVariables) ||
         name.starts_with("NCCL_") || name.starts_with("LOCKSTEP_") ||
         std::any_of(env::variables().begin(), env::variables().end(),
                     [&](const env::Variable& variable) { return variable.name == name; });
}

// Reports are shown around.
std::string without_secret(const std::string& name, const std::string& value) {
  return name == "LOCKSTEP_SECRET" && !value.empty() ? "(set)" : value;
}

Section environment(const Surroundings& seen) {
  Section section{"Environment", {}};
  for (const auto& [name, value] : seen.environment)
    if (is_of_interest(name))
      section.facts.emplace_back(name, value.empty() ? "(empty)" : without_secret(name, value));
  return section;
}

Json json_of(const Finding& finding) {
  Json evidence = Json::list();
  for (const std::string& line : finding.evidence) evidence.push_back(line);
  return Json::object({{"check", finding.check},
                       {"severity", name(finding.severity)},
                       {"cause", finding.cause},
                       {"evidence", std::move(evidence)},
                       {"fix", finding.fix}});
}

Json json_of(const Trial& trial) {
  return Json::object({{"device", trial.device},
                       {"work", trial.work},
                       {"correct", trial.correct},
                       {"fault", trial.fault},
                       {"rate", trial.rate},
                       {"ceiling", trial.ceiling},
                       {"disturbed", trial.disturbed},
                       {"unit", trial.unit},
                       {"ceiling_is", trial.ceiling_is}});
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json list_of(const std::vector<std::string>& texts) {
  Json list = Json::list();
  for (const std::string& text : texts) list.push_back(text);
  return list;
}

std::string plural(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string_view name(Severity severity) {
  switch (severity) {
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::problem: return "problem";
  }
  return "unknown";
}

std::vector<Section> sections_of(const Surroundings& seen) {
  std::vector<Section> sections{machine(seen.host, seen.nvidia.container), gpus(seen.nvidia)};
  // Without a GPU, its libraries are missing as a rule: that is no news.
  const bool any = std::any_of(seen.nvidia.libraries.begin(), seen.nvidia.libraries.end(),
                               [](const Library& library) { return !library.path.empty(); });
  if (any || !seen.nvidia.gpus.empty()) sections.push_back(libraries(seen));
  if (Section between = links(seen.nvidia); !between.facts.empty()) sections.push_back(std::move(between));
  sections.push_back(plugins(seen.plugins));
  for (const BackendFacts& backend : describe_backends())
    sections.push_back({"Backend " + backend.name, backend.facts});
  Section devices{"Devices", {}};
  for (const std::string& device : seen.devices) devices.facts.emplace_back(device, "");
  sections.push_back(std::move(devices));
  if (Section variables = environment(seen); !variables.facts.empty())
    sections.push_back(std::move(variables));
  return sections;
}

Json facts_of(const Surroundings& seen) {
  const Host& host = seen.host;
  Json facts = Json::object();
  facts.set("machine", Json::object({{"system", host.system},
                                     {"cpu", host.cpu},
                                     {"instruction_sets", host.instruction_sets},
                                     {"cores", host.cores},
                                     {"usable_cores", host.usable_cores},
                                     {"core_quota", or_null(host.core_quota)},
                                     {"memory", host.memory},
                                     {"memory_available", host.memory_available},
                                     {"memory_limit", or_null(host.memory_limit)},
                                     {"shared_memory", or_null(host.shared_memory)}}));
  facts.set("nvidia",
            Json::parse(
                nlohmann::json(seen.nvidia).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  if (seen.build) {
    Json versions = Json::object();
    for (const Library& library : seen.nvidia.libraries)
      versions.set(library.title, nvidia::built_with(*seen.build, library.title));
    Json chips = Json::list();
    for (const int chip : seen.build->architectures) chips.push_back(chip);
    facts.set("built_for",
              Json::object({{"versions", std::move(versions)}, {"architectures", std::move(chips)}}));
  } else {
    facts.set("built_for", nullptr);
  }
  Json all_plugins = Json::list();
  for (const PluginStatus& status : seen.plugins)
    all_plugins.push_back(Json::object({{"name", status.name},
                                        {"kind", name(status.kind)},
                                        {"loaded", status.loaded},
                                        {"path", status.path},
                                        {"reason", status.reason},
                                        {"searched", list_of(status.searched)}}));
  facts.set("plugins", std::move(all_plugins));
  Json backends = Json::object();
  for (const BackendFacts& backend : describe_backends())
    for (const auto& [key, value] : backend.facts) backends[backend.name].set(key, value);
  facts.set("backends", std::move(backends));
  facts.set("devices", list_of(seen.devices));
  Json variables = Json::object();
  for (const auto& [key, value] : seen.environment)
    if (is_of_interest(key)) variables.set(key, without_secret(key, value));
  facts.set("environment", std::move(variables));
  return facts;
}

Report report_on(const Surroundings& seen) {
  return {.sections = sections_of(seen), .trials = {}, .findings = diagnose(seen), .facts = facts_of(seen)};
}

bool Report::healthy() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.severity == Severity::problem; });
}

std::string Report::to_text() const {
  size_t width = 0;
  for (const Section& section : sections)
    for (const auto& [key, value] : section.facts)
      if (!value.empty()) width = std::max(width, key.size());
  std::string text;
  for (const Section& section : sections) {
    text += section.title + "\n";
    for (const auto& [key, value] : section.facts)
      text += value.empty() ? fmt::format("  {}\n", key) : fmt::format("  {:<{}}  {}\n", key, width, value);
  }
  if (!trials.empty()) text += "Runs\n";
  for (const Trial& trial : trials) {
    text += fmt::format("  {:<{}}  {}: ", trial.device, width, trial.work);
    if (!trial.correct)
      text += trial.fault + "\n";
    else if (trial.disturbed)
      text += fmt::format("right, {:.0f} {} while other processes had the cores\n", trial.rate, trial.unit);
    else if (trial.ceiling > 0)
      text += fmt::format("right, {:.0f} {}, {:.0f}% of {:.0f} ({})\n", trial.rate, trial.unit,
                          100 * trial.rate / trial.ceiling, trial.ceiling, trial.ceiling_is);
    else
      text += fmt::format("right, {:.0f} {}\n", trial.rate, trial.unit);
  }
  for (const Finding& finding : findings) {
    text += fmt::format("\n{}: {}  [{}]\n", name(finding.severity), finding.cause, finding.check);
    for (const std::string& line : finding.evidence) text += "  " + line + "\n";
    if (!finding.fix.empty()) text += "  fix: " + finding.fix + "\n";
  }
  const auto count = [&](Severity severity) {
    return static_cast<size_t>(std::count_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.severity == severity;
    }));
  };
  const size_t problems = count(Severity::problem), warnings = count(Severity::warning);
  text += "\n";
  text += problems == 0 && warnings == 0
              ? "No problems found.\n"
              : plural(problems, "problem") + ", " + plural(warnings, "warning") + "\n";
  return text;
}

std::string Report::to_json() const {
  Json json = Json::object({{"schema", 1}, {"healthy", healthy()}});
  Json list = Json::list();
  for (const Finding& finding : findings) list.push_back(json_of(finding));
  json.set("findings", std::move(list));
  list = Json::list();
  for (const Trial& trial : trials) list.push_back(json_of(trial));
  json.set("trials", std::move(list));
  for (const auto& [key, value] : facts.members()) json.set(key, value);
  return json.dump(2);
}

}  // namespace lockstep::doctor
