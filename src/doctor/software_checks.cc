// The libraries and plugins that GPUs and runs of several workers need.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "doctor/diagnosis.h"

namespace lockstep::doctor {
namespace {

using nvidia::Library;

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

void check_libraries(Diagnosis& d) {
  if (d.machine.gpus.empty() || !d.machine.mishap.empty()) return;
  for (const Library& library : d.machine.libraries) {
    const bool nccl = library.title == "NCCL";
    if (library.path.empty()) {
      if (nccl && d.visible.size() < 2) continue;
      const std::string folder = folder_with(library);
      d.add(Severity::problem, nccl ? "nccl_missing" : "library_missing",
            nccl ? "NCCL is not found: GPUs cannot sum their gradients."
                 : fmt::format("{} ({}) is not found.", library.title, library.file),
            loading(library, d.machine),
            !folder.empty()
                ? "export LD_LIBRARY_PATH=" + folder + ":$LD_LIBRARY_PATH"
                : fmt::format("install {} for CUDA {} (from NVIDIA's package source: apt install {})",
                              library.title, d.cuda_needed(),
                              nccl                       ? "libnccl2"
                              : library.title == "cuDNN" ? "libcudnn9-cuda-13"
                                                         : "cuda-libraries-13-0"));
      continue;
    }
    const std::string built = d.seen.build ? nvidia::built_with(*d.seen.build, library.title) : "";
    if (built.empty() || library.version.empty() || built == library.version) continue;
    const auto major = [](const std::string& version) { return version.substr(0, version.find('.')); };
    const bool other = major(built) != major(library.version);
    d.add(other ? Severity::problem : Severity::note, "library_version",
          fmt::format("{} is of version {}, and Lockstep was built with {}.", library.title, library.version,
                      built),
          {"found: " + library.path},
          other ? fmt::format("install {} {}, or build Lockstep against {}", library.title, built,
                              library.version)
                : "");
  }
}

// Whether a launcher has started this process as one of several that the engine is to join.
bool needs(const Diagnosis& d, const WorkerEngine& engine) {
  const auto several = [&](const char* name) {
    const std::string* const value = d.seen.variable(name);
    return value && std::atoi(value->c_str()) > 1;
  };
  const bool mpirun = several("OMPI_COMM_WORLD_SIZE") || several("PMI_SIZE");
  const bool others = several("WORLD_SIZE") || several("LOCKSTEP_WORKERS") ||
                      several("SLURM_STEP_NUM_TASKS") || d.seen.variable("TF_CONFIG");
  if (engine.plugin == "nccl") return !d.visible.empty() && (mpirun || others);
  return engine.plugin == "mpi" ? mpirun : !mpirun && others;
}

void check_plugins(Diagnosis& d) {
  for (const PluginStatus& plugin : d.seen.plugins) {
    if (plugin.loaded) continue;
    const bool absent = plugin.reason.find(" not found in ") != std::string::npos;
    const bool cuda = plugin.name == "cuda";
    const WorkerEngine* const engine = worker_engine(plugin.name);
    if (!absent) {
      const bool needed = cuda ? !d.machine.gpus.empty() : engine && needs(d, *engine);
      std::string install = "install the library that is named, or add its folder to LD_LIBRARY_PATH";
      if (engine)
        install =
            fmt::format("apt install {}   # or add the library's folder to LD_LIBRARY_PATH", engine->library);
      d.add(needed ? Severity::problem : Severity::warning, "plugin_refused",
            fmt::format("The plugin {} is there, but cannot be loaded.", plugin.name), {plugin.reason},
            plugin.reason.find("cannot open shared object file") != std::string::npos
                ? std::move(install)
                : "build the library and its plugins together, and install both");
    } else if (engine && (engine->plugin != "nccl" || d.has_hardware)) {
      d.add(needs(d, *engine) ? Severity::problem : Severity::note, "engine_missing",
            fmt::format("This Lockstep has no plugin for {}, which {}.", engine->title, engine->carries),
            {plugin.reason},
            fmt::format("apt install {} && cmake --build build/release --target lockstep_engines   # or name "
                        "the plugin's folder in LOCKSTEP_PLUGIN_PATH",
                        engine->to_build));
    }
    if (absent && cuda && d.has_hardware)
      d.add(Severity::problem, "built_without_cuda",
            "There is a GPU, but this Lockstep was built without CUDA.", {plugin.reason},
            "cmake --preset cuda && cmake --build build/cuda   # or name the plugin's folder in "
            "LOCKSTEP_PLUGIN_PATH");
  }
  if (!d.seen.devices_fault.empty()) {
    d.add(Severity::problem, "devices_failed", "The devices cannot be listed.", {d.seen.devices_fault}, "");
    return;
  }
  const bool problem = std::any_of(d.findings.begin(), d.findings.end(),
                                   [](const Finding& f) { return f.severity == Severity::problem; });
  const auto gpus = std::count_if(d.seen.devices.begin(), d.seen.devices.end(),
                                  [](const std::string& d) { return d.find(":GPU:") != std::string::npos; });
  if (!problem && static_cast<size_t>(gpus) < d.visible.size())
    d.add(Severity::problem, "gpus_unused",
          fmt::format("CUDA shows {} GPU{}, and Lockstep uses {}.", d.visible.size(),
                      d.visible.size() == 1 ? "" : "s", gpus),
          {fmt::format("devices: {}", fmt::join(d.seen.devices, ", "))},
          "LOCKSTEP_LOG=debug lockstep doctor   # says what the CUDA plugin did");
}

}  // namespace

void check_software(Diagnosis& d) {
  check_libraries(d);
  check_plugins(d);
}

}  // namespace lockstep::doctor
