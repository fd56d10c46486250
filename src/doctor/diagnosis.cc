#include "doctor/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep::doctor {

using nvidia::Gpu;
using nvidia::Library;

Diagnosis::Diagnosis(const Surroundings& what) : seen(what), machine(what.nvidia) {
  for (const Gpu& gpu : machine.gpus)
    if (gpu.visible_number) visible.push_back(&gpu);
  std::sort(visible.begin(), visible.end(),
            [](const Gpu* a, const Gpu* b) { return *a->visible_number < *b->visible_number; });
  has_hardware = !machine.gpus.empty() || !machine.on_bus.empty() || !machine.nodes.empty() ||
                 !machine.module_version.empty();
}

void Diagnosis::add(Severity severity, std::string_view check, std::string cause,
                    std::vector<std::string> evidence, std::string fix) {
  findings.push_back({std::string(check), severity, std::move(cause), std::move(evidence), std::move(fix)});
}

int Diagnosis::cuda() const {
  return seen.build && seen.build->cuda ? seen.build->cuda : nvidia::kCudaNeeded;
}

std::string Diagnosis::cuda_needed() const { return nvidia::cuda_version_text(cuda()); }

std::string title(const Gpu& gpu) {
  return fmt::format("GPU {} ({})", gpu.number ? std::to_string(*gpu.number) : gpu.pci,
                     gpu.name.empty() ? "unknown" : gpu.name);
}

std::vector<std::string> loading(const Library& library, const nvidia::Machine& machine) {
  std::vector<std::string> evidence;
  for (const LoadAttempt& failure : library.failures)
    evidence.push_back("loader: " + describe(std::span(&failure, 1)));
  if (!machine.searched.empty())
    evidence.push_back(fmt::format("searched: {}", fmt::join(machine.searched, ", ")));
  for (const std::string& file : library.elsewhere) evidence.push_back("not searched, but there: " + file);
  return evidence;
}

std::string folder_with(const Library& library) {
  for (const std::string& file : library.elsewhere)
    if (file.ends_with("/" + library.file)) return file.substr(0, file.rfind('/'));
  return {};
}

std::string in_container(const nvidia::Machine& machine, std::string_view inside, std::string_view outside) {
  return std::string(machine.container.empty() ? outside : inside);
}

}  // namespace lockstep::doctor
