#include "lockstep/doctor/doctor.h"

#include <fmt/format.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/environment.h"
#include "device/backend_facts.h"
#include "device/cpu_device.h"
#include "device/plugin.h"
#include "lockstep/device/device.h"

namespace lockstep::doctor {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
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

std::string gibibytes(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

Section machine() {
  struct sysinfo memory {};
  sysinfo(&memory);
  const double unit = memory.mem_unit;
  return {
      "Machine",
      {{"CPU", cpu_model()},
       {"instruction sets", instruction_sets()},
       {"cores", fmt::format("{} in the machine, {} for this process", std::thread::hardware_concurrency(),
                             available_cores())},
       {"memory", fmt::format("{} in all, {} free", gibibytes(static_cast<double>(memory.totalram) * unit),
                              gibibytes(static_cast<double>(memory.freeram) * unit))}}};
}

Section devices() {
  Section section{"Devices", {}};
  for (const Device* device : logical_devices())
    section.facts.emplace_back(
        device->name(), fmt::format("{} thread{}", device->threads(), device->threads() == 1 ? "" : "s"));
  return section;
}

Section plugins() {
  Section section{"Plugins", {}};
  for (const PluginStatus& status : plugin_statuses())
    section.facts.emplace_back(status.name,
                               status.loaded ? "loaded from " + status.path : "not loaded: " + status.reason);
  return section;
}

Section environment(std::vector<std::string>& problems) {
  Section section{"Environment", {}};
  for (const env::Variable& variable : env::variables()) {
    const char* value = std::getenv(std::string(variable.name).c_str());
    section.facts.emplace_back(variable.name, value ? value : fmt::format("not set ({})", variable.fallback));
  }
  for (const env::Unknown& unknown : env::unknown_variables())
    problems.push_back(unknown.nearest.empty()
                           ? fmt::format("{} is set but Lockstep knows no such variable", unknown.name)
                           : fmt::format("{} is set but Lockstep knows no such variable; did you mean {}?",
                                         unknown.name, unknown.nearest));
  return section;
}

}  // namespace

Report examine() {
  Report report;
  report.sections.push_back(machine());
  report.sections.push_back(devices());
  for (const BackendFacts& backend : describe_backends())
    report.sections.push_back({"Backend " + backend.name, backend.facts});
  report.sections.push_back(plugins());
  report.sections.push_back(environment(report.problems));
  return report;
}

std::string Report::to_text() const {
  size_t width = 0;
  for (const Section& section : sections)
    for (const auto& [name, value] : section.facts) width = std::max(width, name.size());
  std::string text;
  for (const Section& section : sections) {
    text += section.title + "\n";
    for (const auto& [name, value] : section.facts) text += fmt::format("  {:<{}}  {}\n", name, width, value);
  }
  if (problems.empty()) return text + "No problems found.\n";
  text += fmt::format("{} problem{}\n", problems.size(), problems.size() == 1 ? "" : "s");
  for (const std::string& problem : problems) text += "  " + problem + "\n";
  return text;
}

std::string Report::to_json() const {
  nlohmann::ordered_json json;
  for (const Section& section : sections)
    for (const auto& [name, value] : section.facts) json["sections"][section.title][name] = value;
  json["problems"] = problems;
  return json.dump();
}

}  // namespace lockstep::doctor
