#include "device/nvidia_driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/child_process.h"
#include "base/environment.h"
#include "device/nvidia_json.h"
#include "device/nvidia_probe.h"

namespace lockstep::nvidia {
namespace {

namespace fs = std::filesystem;

const Build*& build_slot() {
  static const Build* build = nullptr;
  return build;
}

// ---- Files ----------------------------------------------------------------------------------------------

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  if (std::ifstream file(path); file) text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && (all.back() == '\n' || all.back() == '\0')) all.pop_back();
  return all;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

constexpr std::string_view kDigits = "0123456789";

// nvidia0, nvidia1, ..., nvidiactl, nvidia-uvm, dxg (of WSL).
bool is_device_node(std::string_view name) {
  if (name == "dxg" || name == "nvidiactl" || name == "nvidia-uvm") return true;
  constexpr std::string_view kNumbered = "nvidia";
  return name.starts_with(kNumbered) && name.size() > kNumbered.size() &&
         name.find_first_not_of(kDigits, kNumbered.size()) == std::string_view::npos;
}

std::vector<std::string> device_nodes(const std::string& root) {
  std::vector<std::string> found;
  for (const fs::path& path : entries(root + "/dev"))
    if (is_device_node(path.filename().string())) found.push_back("/dev/" + path.filename().string());
  return found;
}

std::vector<std::string> on_bus(const std::string& root) {
  std::vector<std::string> found;
  for (const fs::path& device : entries(root + "/sys/bus/pci/devices")) {
    const std::string kind = text_of(device / "class");
    const bool computes = kind.starts_with("0x0300") || kind.starts_with("0x0302");
    if (computes && text_of(device / "vendor") == "0x10de") found.push_back(device.filename().string());
  }
  return found;
}

std::string module_version(const std::string& root) {
  if (std::string version = text_of(root + "/sys/module/nvidia/version"); !version.empty()) return version;
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ...": the number behind the title.
  const std::string text = text_of(root + "/proc/driver/nvidia/version");
  const size_t title = text.find("Kernel Module");
  const size_t begin = title == std::string::npos ? title : text.find_first_of(kDigits, title);
  if (begin == std::string::npos) return "";
  const std::string number = text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
  return number.find('.') == std::string::npos ? "" : number.substr(0, number.find_last_of(kDigits) + 1);
}

std::string container(const std::string& root) {
  const auto there = [&](const char* path) {
    std::error_code error;
    return fs::exists(root + path, error);
  };
  if (there("/var/run/secrets/kubernetes.io")) return "kubernetes";
  if (there("/.dockerenv")) return "docker";
  if (there("/run/.containerenv")) return "podman";
  if (std::string kind = text_of(root + "/run/systemd/container"); !kind.empty()) return kind;
  const std::string groups = text_of(root + "/proc/1/cgroup");
  for (const char* kind : {"kubepods", "docker", "containerd", "lxc"})
    if (groups.find(kind) != std::string::npos) return kind;
  return {};
}

// ---- The child's report ---------------------------------------------------------------------------------

// A line is a step that begins ("@cuInit") or all that is known so far, as JSON.
std::string step_line(std::string_view step) { return "@" + std::string(step) + "\n"; }

template <class T>
std::string fact_line(const T& facts) {
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Reads what a child wrote and returns the step that it had begun last.
template <class T>
std::string read_report(const std::string& output, T& facts) {
  std::istringstream lines(output);
  std::string step;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('@'))
      step = line.substr(1);
    else if (const auto json = nlohmann::json::parse(line, nullptr, false); !json.is_discarded())
      facts = json.get<T>();
  }
  return step;
}

// This process has called cuInit: a child of it could not.
bool cuda_is_initialised() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  constexpr int kNotInitialised = 3;
  int count = 0;
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const bool initialised = get_count != nullptr && get_count(&count) != kNotInitialised;
  dlclose(driver);
  return initialised;
}

Machine ask_here(const Search& search) {
  const auto ignore = [](std::string_view) {};
  Machine machine;
  ask_nvml(search, ignore, machine);
  ask_cuda(search, ignore, machine);
  ask_libraries(search, ignore, machine);
  machine.visible = ask_visible(search, ignore);
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr)
    for (Gpu& gpu : machine.gpus) gpu.number.reset();  // CUDA counts the visible ones
  return machine;
}

Machine ask_in_child(const Search& search) {
  const bool restricted = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  Machine machine;
  const ChildResult all = run_in_child(
      [&](const auto& write) {
        unsetenv("CUDA_VISIBLE_DEVICES");
        const auto announce = [&](std::string_view step) { write(step_line(step)); };
        Machine found;
        ask_nvml(search, announce, found);
        write(fact_line(found));
        ask_libraries(search, announce, found);
        write(fact_line(found));
        ask_cuda(search, announce, found);
        write(fact_line(found));
      },
      search.timeout_s);
  const std::string step = read_report(all.output, machine);
  if (!all.finished) {
    machine.mishap = all.mishap + (step.empty() ? "" : " in " + step);
    return machine;
  }
  if (!restricted) {
    if (machine.cuda.error.empty() && !machine.cuda.path.empty()) {
      machine.visible.emplace();
      for (const Gpu& gpu : machine.gpus)
        if (gpu.number) machine.visible->push_back(gpu.uuid);
    }
    return machine;
  }
  const ChildResult shown = run_in_child(
      [&](const auto& write) {
        const auto announce = [&](std::string_view next) { write(step_line(next)); };
        write(fact_line(ask_visible(search, announce)));
      },
      search.timeout_s);
  const std::string last = read_report(shown.output, machine.visible);
  if (!shown.finished) machine.mishap = shown.mishap + (last.empty() ? "" : " in " + last);
  return machine;
}

void number_visible(Machine& machine) {
  if (!machine.visible) return;
  for (size_t i = 0; i < machine.visible->size(); ++i)
    for (Gpu& gpu : machine.gpus) {
      const std::string& uuid = (*machine.visible)[i];
      const bool part =
          std::any_of(gpu.mig_devices.begin(), gpu.mig_devices.end(), [&](const std::string& m) {
            return m.size() > 4 && uuid.size() > 4 && m.substr(4) == uuid.substr(4);
          });
      if ((gpu.uuid == uuid || part) && !gpu.visible_number) gpu.visible_number = static_cast<int>(i);
    }
}

}  // namespace

std::vector<std::string> Search::well_known_folders() {
  std::vector<std::string> folders{"/usr/local/cuda*/lib64",
                                   "/usr/local/cuda*/lib",
                                   "/opt/cuda/lib64",
                                   "/usr/lib/x86_64-linux-gnu",
                                   "/usr/lib/x86_64-linux-gnu/nvidia/current",
                                   "/usr/lib64",
                                   "/usr/lib/wsl/lib"};
  if (const auto conda = env::read_string("CONDA_PREFIX")) folders.push_back(*conda + "/lib");
  if (const auto python = env::read_string("VIRTUAL_ENV"))
    folders.push_back(*python + "/lib/python3*/site-packages/nvidia/*/lib");
  return folders;
}

Machine discover(const Search& search) {
  Machine machine = search.system && cuda_is_initialised() ? ask_here(search) : ask_in_child(search);
  machine.searched = search.folders;
  if (search.system)
    for (std::string& folder : loader_folders()) machine.searched.push_back(std::move(folder));
  machine.nodes = device_nodes(search.root);
  machine.on_bus = on_bus(search.root);
  machine.module_version = module_version(search.root);
  machine.container = container(search.root);
  number_visible(machine);
  return machine;
}

std::string other_processes(const std::string& uuid, const Search& search) {
  Machine machine;
  ask_nvml(
      search, [](std::string_view) {}, machine);
  std::string text;
  for (const Gpu& gpu : machine.gpus)
    for (const Process& process : gpu.processes) {
      if (gpu.uuid != uuid || process.pid == getpid()) continue;
      if (!text.empty()) text += ", ";
      const std::string name = fs::path(process.name).filename().string();
      text += (name.empty() ? "process" : name) + " (" + std::to_string(process.pid) + ")";
      if (process.bytes) text += " with " + std::to_string(*process.bytes >> 20) + " MiB";
    }
  return text;
}

RegisterBuild::RegisterBuild(const Build& build) { build_slot() = new Build(build); }

const Build* registered_build() { return build_slot(); }

bool runs_on(const Build& build, int capability) {
  return std::any_of(build.architectures.begin(), build.architectures.end(),
                     [&](int a) { return a / 10 == capability / 10 && a <= capability; }) ||
         std::any_of(build.ptx_architectures.begin(), build.ptx_architectures.end(),
                     [&](int a) { return a <= capability; });
}

}  // namespace lockstep::nvidia
