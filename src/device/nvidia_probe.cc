#include "device/nvidia_probe.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::nvidia {
namespace {

// ---- Libraries ------------------------------------------------------------------------------------------

std::vector<std::string> candidates(const Search& search, const std::string& file) {
  std::vector<std::string> paths;
  for (const std::string& folder : search.folders) paths.push_back(folder + "/" + file);
  if (search.system) paths.push_back(file);
  return paths;
}

std::optional<SharedLibrary> load(const Search& search, Library& library) {
  LoadResult result = load_library(candidates(search, library.file));
  library.failures = std::move(result.failures);
  if (!result.library) return std::nullopt;
  library.path = result.library->path();
  // Exit handlers of a vendor's library that is gone have been seen to crash.
  result.library->keep_loaded();
  return std::move(result.library);
}

// libcudnn.so.9 -> libcudnn.so*: also what a build for another version would need.
std::vector<std::string> files_elsewhere(const Search& search, const std::string& file) {
  const std::string pattern = file.substr(0, file.find(".so")) + ".so*";
  std::vector<std::string> found;
  for (const std::string& folder : search.elsewhere) {
    glob_t matches{};
    if (glob((folder + "/" + pattern).c_str(), 0, nullptr, &matches) == 0)
      for (size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
    globfree(&matches);
  }
  return found;
}

// Functions of a library by name. The types of the arguments are those of the C function.
class Calls {
 public:
  Calls(const SharedLibrary& library, int missing) : library_(library), missing_(missing) {}

  // What the function returned; `missing` where this version of the library has no such function.
  template <class... Args>
  int operator()(const char* name, Args... args) const {
    const auto function = library_.symbol<int(Args...)>(name);
    return function ? function.address(args...) : missing_;
  }

  template <class T, class... Args>
  std::optional<T> value(const char* name, Args... args) const {
    T result{};
    return (*this)(name, args..., &result) == 0 ? std::optional(result) : std::nullopt;
  }

  template <class... Args>
  std::string text(const char* name, Args... args) const {
    std::array<char, 256> buffer{};
    if ((*this)(name, args..., buffer.data(), static_cast<unsigned>(buffer.size())) != 0) return {};
    buffer.back() = '\0';
    return buffer.data();
  }

  const SharedLibrary& library() const { return library_; }

 private:
  const SharedLibrary& library_;
  int missing_;
};

// ---- NVML -----------------------------------------------------------------------------------------------

// Layouts and numbers of the public interface, version 2 and 3 functions.
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct NvmlPci {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
using NvmlDevice = void*;

constexpr int kNvmlNotSupported = 3, kNvmlNoPermission = 4, kNvmlInsufficientSize = 7, kNvmlNoFunction = 13;
constexpr unsigned kMaxLinks = 18;

std::string nvml_error(const Calls& nvml, int code) {
  const auto words = nvml.library().symbol<const char*(int)>("nvmlErrorString");
  return fmt::format("{} ({})", words ? words.address(code) : "error", code);
}

template <class Key>
struct Word {
  Key key;
  const char* text;
};

template <class Key, size_t n>
std::string word(const Word<Key> (&words)[n], Key key, const char* otherwise) {
  for (const Word<Key>& w : words)
    if (w.key == key) return w.text;
  return otherwise;
}

constexpr Word<unsigned long long> kSlowdowns[] = {
    {0x04, "power limit"},     {0x08, "hardware slowdown (heat or power)"}, {0x20, "heat (software)"},
    {0x40, "heat (hardware)"}, {0x80, "power brake of the machine"},
};
constexpr Word<int> kComputeModes[] = {
    {0, "default"}, {1, "exclusive thread"}, {2, "prohibited"}, {3, "exclusive process"}};
constexpr Word<int> kPeerStatuses[] = {{0, ""},
                                       {1, "the chipset does not support it"},
                                       {2, "the GPU does not support it"},
                                       {3, "the topology of the machine does not support it"},
                                       {4, "disabled by a setting of the driver"},
                                       {5, "not supported"}};
constexpr Word<int> kDistances[] = {{0, "the same board"},         {10, "one PCIe switch"},
                                    {20, "several PCIe switches"}, {30, "one PCIe host bridge"},
                                    {40, "the same NUMA node"},    {50, "between NUMA nodes"}};

std::vector<Process> processes(const Calls& nvml, NvmlDevice device) {
  std::vector<Process> found;
  for (const char* kind : {"Compute", "Graphics"}) {
    std::vector<NvmlProcess> list(64);
    auto count = static_cast<unsigned>(list.size());
    int code = kNvmlNoFunction;
    for (const char* version : {"_v3", "_v2"}) {
      const std::string name = fmt::format("nvmlDeviceGet{}RunningProcesses{}", kind, version);
      code = nvml(name.c_str(), device, &count, list.data());
      if (code == kNvmlInsufficientSize) {
        list.resize(count + 16u);  // others may start meanwhile
        count = static_cast<unsigned>(list.size());
        code = nvml(name.c_str(), device, &count, list.data());
      }
      if (code != kNvmlNoFunction) break;
    }
    if (code != 0) continue;
    list.resize(std::min<size_t>(count, list.size()));
    for (const NvmlProcess& p : list) {
      if (std::any_of(found.begin(), found.end(), [&](const Process& other) { return other.pid == p.pid; }))
        continue;
      Process process{.pid = p.pid, .name = nvml.text("nvmlSystemGetProcessName", p.pid), .bytes = {}};
      if (p.bytes != ~0ULL) process.bytes = static_cast<int64_t>(p.bytes);
      found.push_back(std::move(process));
    }
  }
  return found;
}

std::vector<NvLink> links(const Calls& nvml, NvmlDevice device) {
  std::vector<NvLink> found;
  for (unsigned i = 0; i < kMaxLinks; ++i) {
    const auto state = nvml.value<int>("nvmlDeviceGetNvLinkState", device, i);
    if (!state) continue;
    NvLink link{.index = static_cast<int>(i), .active = *state == 1, .peer = {}};
    if (link.active) {
      constexpr int kSwitch = 2;
      NvmlPci pci{};
      if (nvml.value<int>("nvmlDeviceGetNvLinkRemoteDeviceType", device, i) == kSwitch)
        link.peer = "switch";
      else if (nvml("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, i, &pci) == 0)
        link.peer = pci.bus_id;
    }
    found.push_back(std::move(link));
  }
  return found;
}

template <class To, class From>
std::optional<To> as(const std::optional<From>& value) {
  return value ? std::optional(static_cast<To>(*value)) : std::nullopt;
}

Gpu describe(const Calls& nvml, NvmlDevice device) {
  Gpu gpu;
  // What every GPU has: where it is not told, that is worth saying.
  const auto expect = [&](const char* name, int code) {
    if (code != 0 && code != kNvmlNotSupported && code != kNvmlNoPermission && code != kNvmlNoFunction)
      gpu.failures.push_back(fmt::format("{}: {}", name, nvml_error(nvml, code)));
    return code == 0;
  };
  std::array<char, 128> text{};
  if (expect("nvmlDeviceGetName",
             nvml("nvmlDeviceGetName", device, text.data(), static_cast<unsigned>(text.size()))))
    gpu.name = text.data();
  if (expect("nvmlDeviceGetUUID",
             nvml("nvmlDeviceGetUUID", device, text.data(), static_cast<unsigned>(text.size()))))
    gpu.uuid = text.data();
  NvmlPci pci{};
  if (expect("nvmlDeviceGetPciInfo_v3", nvml("nvmlDeviceGetPciInfo_v3", device, &pci))) gpu.pci = pci.bus_id;
  NvmlMemory memory{};
  if (expect("nvmlDeviceGetMemoryInfo", nvml("nvmlDeviceGetMemoryInfo", device, &memory))) {
    gpu.memory = static_cast<int64_t>(memory.total);
    gpu.memory_used = static_cast<int64_t>(memory.used);
  }
  int major = 0, minor = 0;
  if (nvml("nvmlDeviceGetCudaComputeCapability", device, &major, &minor) == 0)
    gpu.capability = major * 10 + minor;

  const auto number = [&](const char* name, auto... args) {
    return as<int>(nvml.value<unsigned>(name, device, args...));
  };
  gpu.pcie_generation = number("nvmlDeviceGetCurrPcieLinkGeneration");
  gpu.pcie_width = number("nvmlDeviceGetCurrPcieLinkWidth");
  gpu.pcie_max_generation = number("nvmlDeviceGetMaxPcieLinkGeneration");
  gpu.pcie_max_width = number("nvmlDeviceGetMaxPcieLinkWidth");
  constexpr int kMultiprocessorClock = 1, kMemoryClock = 2, kCore = 0;
  gpu.clock_mhz = number("nvmlDeviceGetMaxClockInfo", kMultiprocessorClock);
  gpu.memory_clock_mhz = number("nvmlDeviceGetMaxClockInfo", kMemoryClock);
  gpu.memory_bus_bits = number("nvmlDeviceGetMemoryBusWidth");
  gpu.celsius = as<double>(number("nvmlDeviceGetTemperature", kCore));
  const auto watts = [&](const char* name) -> std::optional<double> {
    const auto milliwatts = number(name);
    return milliwatts ? std::optional(*milliwatts / 1000.0) : std::nullopt;
  };
  gpu.watts = watts("nvmlDeviceGetPowerUsage");
  gpu.watts_limit = watts("nvmlDeviceGetEnforcedPowerLimit");
  if (const auto mode = nvml.value<int>("nvmlDeviceGetComputeMode", device))
    gpu.compute_mode = word(kComputeModes, *mode, "unknown");
  if (const auto mode = nvml.value<int>("nvmlDeviceGetPersistenceMode", device)) gpu.persistence = *mode == 1;
  const auto reasons =
      nvml.value<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", device).value_or(0);
  for (const auto& slowdown : kSlowdowns)
    if (reasons & slowdown.key) gpu.slowed_by.emplace_back(slowdown.text);
  constexpr int kCorrected = 0, kUncorrected = 1, kSinceLoaded = 0;
  const auto errors = [&](int kind) {
    return as<int64_t>(
        nvml.value<unsigned long long>("nvmlDeviceGetTotalEccErrors", device, kind, kSinceLoaded));
  };
  gpu.ecc_corrected = errors(kCorrected);
  gpu.ecc_uncorrected = errors(kUncorrected);

  unsigned current = 0, pending = 0;
  if (nvml("nvmlDeviceGetMigMode", device, &current, &pending) == 0) gpu.mig = current == 1;
  if (gpu.mig.value_or(false))
    for (unsigned i = 0; i < nvml.value<unsigned>("nvmlDeviceGetMaxMigDeviceCount", device).value_or(0); ++i)
      if (const auto part = nvml.value<NvmlDevice>("nvmlDeviceGetMigDeviceHandleByIndex", device, i))
        gpu.mig_devices.push_back(nvml.text("nvmlDeviceGetUUID", *part));
  gpu.processes = processes(nvml, device);
  gpu.links = links(nvml, device);
  return gpu;
}

std::vector<Peer> peers(const Calls& nvml, size_t self, const std::vector<NvmlDevice>& devices,
                        const std::vector<Gpu>& gpus) {
  constexpr int kRead = 0, kNvLink = 2;
  std::vector<Peer> found;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (i == self || devices[i] == nullptr || devices[self] == nullptr) continue;
    const auto status = nvml.value<int>("nvmlDeviceGetP2PStatus", devices[self], devices[i], kRead);
    if (!status) continue;
    Peer peer{.uuid = gpus[i].uuid, .access = *status == 0, .nvlink = false, .status = {}, .distance = {}};
    peer.status = word(kPeerStatuses, *status, "the driver does not say why");
    peer.nvlink = nvml.value<int>("nvmlDeviceGetP2PStatus", devices[self], devices[i], kNvLink) == 0;
    if (const auto level = nvml.value<int>("nvmlDeviceGetTopologyCommonAncestor", devices[self], devices[i]))
      peer.distance = word(kDistances, *level, "unknown");
    found.push_back(std::move(peer));
  }
  return found;
}

// ---- The CUDA driver ------------------------------------------------------------------------------------

constexpr int kCudaNotFound = 500;

std::string cuda_error(const Calls& cuda, int code) {
  const char *name = nullptr, *words = nullptr;
  cuda("cuGetErrorName", code, &name);
  cuda("cuGetErrorString", code, &words);
  return fmt::format("{} ({}){}{}", name ? name : "CUDA error", code, words ? ": " : "", words ? words : "");
}

struct CudaDevice {
  int handle;
  std::string uuid;
};

// In CUDA's order. Nothing where the driver cannot be used; `library` then says why.
std::optional<std::vector<CudaDevice>> enumerate(const Calls& cuda, const Announce& announce,
                                                 Library& library) {
  const auto failed = [&](const char* what, int code) {
    if (code == 0) return false;
    library.code = code;
    library.error = fmt::format("{}: {}", what, cuda_error(cuda, code));
    return true;
  };
  announce("cuInit");
  if (failed("cuInit", cuda("cuInit", 0u))) return std::nullopt;
  announce("cuDeviceGetCount");
  int count = 0;
  if (failed("cuDeviceGetCount", cuda("cuDeviceGetCount", &count))) return std::nullopt;
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    CudaDevice device{};
    if (failed("cuDeviceGet", cuda("cuDeviceGet", &device.handle, i))) return std::nullopt;
    std::array<unsigned char, 16> id{};
    if (cuda("cuDeviceGetUuid_v2", id.data(), device.handle) == 0 ||
        cuda("cuDeviceGetUuid", id.data(), device.handle) == 0) {
      device.uuid = "GPU-";
      for (size_t b = 0; b < id.size(); ++b)
        device.uuid += fmt::format("{}{:02x}", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", id[b]);
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

// The same device of CUDA and of NVML, which writes the UUID of a part of a GPU with another prefix.
bool same_uuid(std::string_view cuda, std::string_view nvml) {
  return cuda == nvml || (nvml.starts_with("MIG-") && cuda.substr(4) == nvml.substr(4));
}

bool names_gpu(std::string_view uuid, const Gpu& gpu) {
  return same_uuid(uuid, gpu.uuid) ||
         std::any_of(gpu.mig_devices.begin(), gpu.mig_devices.end(),
                     [&](const std::string& part) { return same_uuid(uuid, part); });
}

void complete(const Calls& cuda, int device, Gpu& gpu) {
  constexpr int kMultiprocessors = 16, kClock = 13, kMemoryClock = 36, kBusWidth = 37, kMajor = 75,
                kMinor = 76;
  const auto attribute = [&](int which) {
    int value = 0;
    return cuda("cuDeviceGetAttribute", &value, which, device) == 0 ? std::optional(value) : std::nullopt;
  };
  std::array<char, 128> text{};
  const auto size = static_cast<int>(text.size());
  if (gpu.name.empty() && cuda("cuDeviceGetName", text.data(), size, device) == 0) gpu.name = text.data();
  if (gpu.pci.empty() && cuda("cuDeviceGetPCIBusId", text.data(), size, device) == 0) gpu.pci = text.data();
  size_t memory = 0;
  if (gpu.memory == 0 && cuda("cuDeviceTotalMem_v2", &memory, device) == 0)
    gpu.memory = static_cast<int64_t>(memory);
  const auto major = attribute(kMajor), minor = attribute(kMinor);
  if (major && minor) gpu.capability = *major * 10 + *minor;
  gpu.multiprocessors = attribute(kMultiprocessors);
  const auto megahertz = [&](int which) -> std::optional<int> {
    const auto kilohertz = attribute(which);
    return kilohertz && *kilohertz > 0 ? std::optional(*kilohertz / 1000) : std::nullopt;
  };
  if (!gpu.clock_mhz) gpu.clock_mhz = megahertz(kClock);
  if (!gpu.memory_clock_mhz) gpu.memory_clock_mhz = megahertz(kMemoryClock);
  if (!gpu.memory_bus_bits) gpu.memory_bus_bits = attribute(kBusWidth);
}

// ---- Versions of libraries ------------------------------------------------------------------------------

std::string dotted(int code, int major_unit, int minor_unit) {
  return fmt::format("{}.{}.{}", code / major_unit, code % major_unit / minor_unit, code % minor_unit);
}

std::string cublas_text(int code) { return dotted(code, 10000, 100); }
std::string cudnn_text(int code) { return code < 10000 ? dotted(code, 1000, 100) : dotted(code, 10000, 100); }
std::string nccl_text(int code) { return code < 10000 ? dotted(code, 1000, 100) : dotted(code, 10000, 100); }

std::string runtime_version(const SharedLibrary& library) {
  const auto version = Calls(library, kCudaNotFound).value<int>("cudaRuntimeGetVersion");
  return version ? cuda_version_text(*version) : "";
}

std::string nvrtc_version(const SharedLibrary& library) {
  int major = 0, minor = 0;
  return Calls(library, kCudaNotFound)("nvrtcVersion", &major, &minor) == 0
             ? fmt::format("{}.{}", major, minor)
             : "";
}

std::string nccl_version(const SharedLibrary& library) {
  const auto version = Calls(library, kCudaNotFound).value<int>("ncclGetVersion");
  return version ? nccl_text(*version) : "";
}

std::string cublas_version(const SharedLibrary& library) {
  const auto version = library.symbol<size_t()>("cublasLtGetVersion");
  return version ? cublas_text(static_cast<int>(version.address())) : "";
}

std::string cudnn_version(const SharedLibrary& library) {
  const auto version = library.symbol<size_t()>("cudnnGetVersion");
  return version ? cudnn_text(static_cast<int>(version.address())) : "";
}

struct KnownLibrary {
  const char* title;
  const char* file;
  std::string (*version)(const SharedLibrary&);
};

constexpr KnownLibrary kLibraries[] = {
    {"CUDA runtime", "libcudart.so.13", runtime_version},
    {"cuBLASLt", "libcublasLt.so.13", cublas_version},
    {"NVRTC", "libnvrtc.so.13", nvrtc_version},
    {"cuDNN", "libcudnn.so.9", cudnn_version},
    {"NCCL", "libnccl.so.2", nccl_version},
};

}  // namespace

void ask_nvml(const Search& search, const Announce& announce, Machine& machine) {
  announce("loading " + machine.nvml.file);
  const auto library = load(search, machine.nvml);
  if (!library) {
    machine.nvml.elsewhere = files_elsewhere(search, machine.nvml.file);
    return;
  }
  const Calls nvml(*library, kNvmlNoFunction);
  announce("nvmlInit_v2");
  if (const int code = nvml("nvmlInit_v2"); code != 0) {
    machine.nvml.code = code;
    machine.nvml.error = "nvmlInit_v2: " + nvml_error(nvml, code);
    return;
  }
  machine.nvml.version = nvml.text("nvmlSystemGetNVMLVersion");
  machine.driver_version = nvml.text("nvmlSystemGetDriverVersion");
  machine.cuda_version = nvml.value<int>("nvmlSystemGetCudaDriverVersion_v2").value_or(0);
  const unsigned count = nvml.value<unsigned>("nvmlDeviceGetCount_v2").value_or(0);
  std::vector<NvmlDevice> devices;
  for (unsigned i = 0; i < count; ++i) {
    announce(fmt::format("asking NVML about GPU {}", i));
    NvmlDevice device = nullptr;
    Gpu gpu;
    if (const int code = nvml("nvmlDeviceGetHandleByIndex_v2", i, &device); code == 0)
      gpu = describe(nvml, device);
    else
      gpu.failures.push_back(fmt::format("nvmlDeviceGetHandleByIndex_v2({}): {}", i, nvml_error(nvml, code)));
    devices.push_back(device);
    machine.gpus.push_back(std::move(gpu));
  }
  announce("asking NVML about links between GPUs");
  for (size_t i = 0; i < devices.size(); ++i) machine.gpus[i].peers = peers(nvml, i, devices, machine.gpus);
  nvml("nvmlShutdown");
}

void ask_cuda(const Search& search, const Announce& announce, Machine& machine) {
  announce("loading " + machine.cuda.file);
  const auto library = load(search, machine.cuda);
  if (!library) {
    machine.cuda.elsewhere = files_elsewhere(search, machine.cuda.file);
    return;
  }
  const Calls cuda(*library, kCudaNotFound);
  // Before cuInit, which a driver that is too old for its own GPUs may refuse.
  if (const auto version = cuda.value<int>("cuDriverGetVersion")) {
    machine.cuda_version = *version;
    machine.cuda.version = cuda_version_text(*version);
  }
  const auto devices = enumerate(cuda, announce, machine.cuda);
  if (!devices) return;
  announce("asking CUDA about its devices");
  std::vector<Gpu> ordered;
  for (size_t i = 0; i < devices->size(); ++i) {
    const CudaDevice& device = (*devices)[i];
    const auto known = std::find_if(machine.gpus.begin(), machine.gpus.end(),
                                    [&](const Gpu& gpu) { return names_gpu(device.uuid, gpu); });
    Gpu gpu;
    if (known != machine.gpus.end()) {
      gpu = std::move(*known);
      machine.gpus.erase(known);
    } else {
      gpu.uuid = device.uuid;
    }
    gpu.number = static_cast<int>(i);
    complete(cuda, device.handle, gpu);
    ordered.push_back(std::move(gpu));
  }
  for (size_t i = 0; i < devices->size(); ++i)
    if (ordered[i].peers.empty())
      for (size_t j = 0; j < devices->size(); ++j) {
        int can = 0;
        if (i != j && cuda("cuDeviceCanAccessPeer", &can, (*devices)[i].handle, (*devices)[j].handle) == 0)
          ordered[i].peers.push_back({.uuid = ordered[j].uuid,
                                      .access = can == 1,
                                      .nvlink = false,
                                      .status = can == 1 ? "" : "the driver does not say why",
                                      .distance = {}});
      }
  std::move(machine.gpus.begin(), machine.gpus.end(), std::back_inserter(ordered));
  machine.gpus = std::move(ordered);
}

std::optional<std::vector<std::string>> ask_visible(const Search& search, const Announce& announce) {
  Library driver{.title = {}, .file = "libcuda.so.1"};
  const auto library = load(search, driver);
  if (!library) return std::nullopt;
  const auto devices = enumerate(Calls(*library, kCudaNotFound), announce, driver);
  constexpr int kNoDevice = 100;
  if (!devices && driver.code != kNoDevice) return std::nullopt;
  std::vector<std::string> uuids;
  if (devices)
    for (const CudaDevice& device : *devices) uuids.push_back(device.uuid);
  return uuids;
}

void ask_libraries(const Search& search, const Announce& announce, Machine& machine) {
  for (const KnownLibrary& known : kLibraries) {
    announce(std::string("loading ") + known.file);
    Library library{.title = known.title, .file = known.file};
    if (const auto loaded = load(search, library))
      library.version = known.version(*loaded);
    else
      library.elsewhere = files_elsewhere(search, library.file);
    machine.libraries.push_back(std::move(library));
  }
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string built_with(const Build& build, std::string_view title) {
  if (title == "CUDA runtime" || title == "NVRTC") return build.cuda ? cuda_version_text(build.cuda) : "";
  if (title == "cuBLASLt") return build.cublas ? cublas_text(build.cublas) : "";
  if (title == "cuDNN") return build.cudnn ? cudnn_text(build.cudnn) : "";
  if (title == "NCCL") return build.nccl ? nccl_text(build.nccl) : "";
  return {};
}

}  // namespace lockstep::nvidia
