// A stand-in for NVIDIA's driver (libcuda), NVML and the version functions of its libraries, in one object: tests copy
// it under the names they want to be found. What it answers stands in the JSON file that FAKE_NVIDIA names:
//
//   {"driver_version": "580.65.06", "cuda_version": 13000,
//    "returns": {"cuInit": 999},         // calls that fail, and with what
//    "hangs": "cuInit", "crashes": "nvmlInit_v2",
//    "visible": {"1": [1], "-1": []},    // value of CUDA_VISIBLE_DEVICES -> GPUs; any other value shows all
//    "cuda_order": [1, 0],               // CUDA's order, where it is not NVML's
//    "no_peer_access": 3, "nvlink": true,
//    "versions": {"cudart": 13000, "cublas": 130000, "nvrtc": 13000, "cudnn": 91400, "nccl": 22803},
//    "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-...", "pci": "00000000:01:00.0", "memory": 1, "used": 0,
//              "capability": 90, "processes": [{"pid": 1, "name": "x", "bytes": 1}],
//              "links": [{"active": 1, "peer": "switch"}], "values": {"nvmlDeviceGetCurrPcieLinkWidth": 8}}]}
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

const json& script() {
  static const json* parsed = [] {
    const char* path = std::getenv("FAKE_NVIDIA");
    std::ifstream file(path ? path : "");
    return new json(file ? json::parse(file) : json::object());
  }();
  return *parsed;
}

json at(const json& object, const char* name, json otherwise) {
  return object.value(name, std::move(otherwise));
}

// What the script says about a call: its failure, or that it never comes back.
int scripted(const char* name) {
  if (at(script(), "hangs", "") == name)
    while (true) pause();
  if (at(script(), "crashes", "") == name) {
    std::signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  return at(at(script(), "returns", json::object()), name, 0);
}

std::vector<json> gpus() { return at(script(), "gpus", json::array()); }

std::vector<size_t> cuda_gpus() {
  std::vector<size_t> all(gpus().size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  if (script().contains("cuda_order")) all = script()["cuda_order"].get<std::vector<size_t>>();
  const char* wanted = std::getenv("CUDA_VISIBLE_DEVICES");
  const json visible = at(script(), "visible", json::object());
  if (!wanted || !visible.contains(wanted)) return all;
  std::vector<size_t> shown;
  for (const size_t number : visible[wanted]) shown.push_back(all[number]);
  return shown;
}

json cuda_gpu(int device) { return gpus()[cuda_gpus()[static_cast<size_t>(device)]]; }

// NVML's handles are positions plus one; parts of a GPU come after all GPUs.
size_t position(void* device) { return reinterpret_cast<size_t>(device) - 1; }
void* handle(size_t position) {
  return reinterpret_cast<void*>(position + 1);  // NOLINT(performance-no-int-to-ptr): nobody looks behind it
}
json gpu(void* device) { return gpus()[position(device)]; }

int write(char* target, unsigned length, const std::string& text) {
  if (text.size() + 1 > length) return 7;
  std::memcpy(target, text.c_str(), text.size() + 1);
  return 0;
}

// A number of a GPU that the script may give under the function's own name; "not supported" where it does not.
template <class T>
int value(const char* name, void* device, T* target) {
  if (const int code = scripted(name)) return code;
  const json values = at(gpu(device), "values", json::object());
  if (!values.contains(name)) return 3;
  *target = values[name].get<T>();
  return 0;
}

struct Memory {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem;
  char bus_id[32];
};

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))
#define SCRIPTED \
  if (const int code = scripted(__func__)) return code

// ---- CUDA driver ----------------------------------------------------------------------------------------

static bool initialised = false;
FAKE int cuInit(unsigned) {
  SCRIPTED;
  initialised = true;
  return cuda_gpus().empty() ? 100 : 0;
}
FAKE int cuDriverGetVersion(int* version) {
  SCRIPTED;
  *version = at(script(), "cuda_version", 13000);
  return 0;
}
FAKE int cuDeviceGetCount(int* count) {
  SCRIPTED;
  if (!initialised) return 3;
  *count = static_cast<int>(cuda_gpus().size());
  return 0;
}
FAKE int cuDeviceGet(int* device, int ordinal) {
  SCRIPTED;
  *device = ordinal;
  return 0;
}
FAKE int cuDeviceGetUuid_v2(unsigned char* id, int device) {
  SCRIPTED;
  std::string digits = cuda_gpu(device).at("uuid");
  digits = digits.substr(4);
  std::erase(digits, '-');
  for (size_t i = 0; i < 16; ++i)
    id[i] = static_cast<unsigned char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return 0;
}
FAKE int cuDeviceGetName(char* name, int length, int device) {
  SCRIPTED;
  return write(name, static_cast<unsigned>(length), cuda_gpu(device).at("name"));
}
FAKE int cuDeviceGetPCIBusId(char* name, int length, int device) {
  SCRIPTED;
  return write(name, static_cast<unsigned>(length), cuda_gpu(device).at("pci"));
}
FAKE int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  SCRIPTED;
  *bytes = cuda_gpu(device).at("memory");
  return 0;
}
FAKE int cuDeviceGetAttribute(int* value, int which, int device) {
  SCRIPTED;
  const int capability = cuda_gpu(device).at("capability");
  switch (which) {
    case 75: *value = capability / 10; return 0;
    case 76: *value = capability % 10; return 0;
    case 16: *value = 132; return 0;
    case 13: *value = 1980000; return 0;
    case 36: *value = 3201000; return 0;
    case 37: *value = 6144; return 0;
    default: return 1;
  }
}
FAKE int cuDeviceCanAccessPeer(int* can, int, int) {
  SCRIPTED;
  *can = script().contains("no_peer_access") ? 0 : 1;
  return 0;
}
FAKE int cuGetErrorName(int code, const char** name) {
  *name = code == 100   ? "CUDA_ERROR_NO_DEVICE"
          : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
          : code == 999 ? "CUDA_ERROR_UNKNOWN"
                        : "CUDA_ERROR_OTHER";
  return 0;
}
FAKE int cuGetErrorString(int code, const char** words) {
  *words = code == 100   ? "no CUDA-capable device is detected"
           : code == 803 ? "system has unsupported display driver / cuda driver combination"
                         : "unknown error";
  return 0;
}

// ---- NVML -----------------------------------------------------------------------------------------------

FAKE int nvmlInit_v2() {
  SCRIPTED;
  return 0;
}
FAKE int nvmlShutdown() { return 0; }
FAKE const char* nvmlErrorString(int code) {
  return code == 9    ? "Driver Not Loaded"
         : code == 15 ? "GPU is lost"
         : code == 18 ? "Driver/library version mismatch"
                      : "Unknown Error";
}
FAKE int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  SCRIPTED;
  return write(text, length, at(script(), "driver_version", "580.65.06"));
}
FAKE int nvmlSystemGetNVMLVersion(char* text, unsigned length) {
  return write(text, length, "13." + at(script(), "driver_version", "580.65.06").get<std::string>());
}
FAKE int nvmlSystemGetCudaDriverVersion_v2(int* version) { return cuDriverGetVersion(version); }
FAKE int nvmlSystemGetProcessName(unsigned pid, char* text, unsigned length) {
  SCRIPTED;
  for (const json& g : gpus())
    for (const json& p : at(g, "processes", json::array()))
      if (p.at("pid") == pid) return write(text, length, p.at("name"));
  return 6;
}
FAKE int nvmlDeviceGetCount_v2(unsigned* count) {
  SCRIPTED;
  *count = static_cast<unsigned>(gpus().size());
  return 0;
}
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  SCRIPTED;
  *device = handle(index);
  return 0;
}
FAKE int nvmlDeviceGetName(void* device, char* text, unsigned length) {
  SCRIPTED;
  return write(text, length, gpu(device).at("name"));
}
FAKE int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  SCRIPTED;
  const std::vector<json> all = gpus();
  if (position(device) < all.size()) return write(text, length, gpu(device).at("uuid"));
  const size_t part = position(device) - all.size();
  return write(text, length, all[part / 8].at("mig_devices")[part % 8]);
}
FAKE int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  SCRIPTED;
  return write(pci->bus_id, sizeof pci->bus_id, gpu(device).at("pci"));
}
FAKE int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  SCRIPTED;
  memory->total = gpu(device).at("memory");
  memory->used = at(gpu(device), "used", 0);
  memory->free = memory->total - memory->used;
  return 0;
}
FAKE int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  SCRIPTED;
  const int capability = gpu(device).at("capability");
  *major = capability / 10;
  *minor = capability % 10;
  return 0;
}
FAKE int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* list) {
  SCRIPTED;
  const json all = at(gpu(device), "processes", json::array());
  const unsigned room = *count;
  *count = static_cast<unsigned>(all.size());
  if (all.size() > room) return 7;
  for (size_t i = 0; i < all.size(); ++i) list[i] = {all[i].at("pid"), at(all[i], "bytes", ~0ULL), ~0U, ~0U};
  return 0;
}
FAKE int nvmlDeviceGetGraphicsRunningProcesses_v3(void*, unsigned*, ProcessInfo*) { return 3; }
FAKE int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* state) {
  SCRIPTED;
  const json links = at(gpu(device), "links", json::array());
  if (link >= links.size()) return 2;
  *state = links[link].at("active");
  return 0;
}
FAKE int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
  SCRIPTED;
  *type = gpu(device)["links"][link].at("peer") == "switch" ? 2 : 0;
  return 0;
}
FAKE int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, Pci* pci) {
  SCRIPTED;
  return write(pci->bus_id, sizeof pci->bus_id, gpu(device)["links"][link].at("peer"));
}
FAKE int nvmlDeviceGetP2PStatus(void*, void*, int what, int* status) {
  SCRIPTED;
  const int refused = at(script(), "no_peer_access", 0);
  *status = what == 2 ? (at(script(), "nvlink", false) ? 0 : 5) : refused;
  return 0;
}
FAKE int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) {
  SCRIPTED;
  *level = 50;
  return 0;
}
FAKE int nvmlDeviceGetMaxClockInfo(void* device, int, unsigned* megahertz) {
  return value(__func__, device, megahertz);
}
FAKE int nvmlDeviceGetTemperature(void* device, int, unsigned* celsius) {
  return value(__func__, device, celsius);
}
FAKE int nvmlDeviceGetTotalEccErrors(void* device, int kind, int, unsigned long long* count) {
  return value(kind == 0 ? "corrected" : "uncorrected", device, count);
}
FAKE int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  SCRIPTED;
  if (!gpu(device).contains("mig")) return 3;
  *current = *pending = gpu(device)["mig"];
  return 0;
}
FAKE int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** part) {
  SCRIPTED;
  if (index >= at(gpu(device), "mig_devices", json::array()).size()) return 6;
  *part = handle(gpus().size() + position(device) * 8 + index);
  return 0;
}
FAKE int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}

#define NUMBER(name, type) \
  FAKE int name(void* device, type* number) { return value(__func__, device, number); }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned)
NUMBER(nvmlDeviceGetPowerUsage, unsigned)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned)
NUMBER(nvmlDeviceGetComputeMode, int)
NUMBER(nvmlDeviceGetPersistenceMode, int)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long)

// ---- Versions of libraries ------------------------------------------------------------------------------

namespace {
int version(const char* name, int otherwise) {
  return at(at(script(), "versions", json::object()), name, otherwise);
}
}  // namespace

FAKE int cudaRuntimeGetVersion(int* number) {
  *number = version("cudart", 13000);
  return 0;
}
FAKE size_t cublasLtGetVersion() { return static_cast<size_t>(version("cublas", 130000)); }
FAKE size_t cudnnGetVersion() { return static_cast<size_t>(version("cudnn", 91400)); }
FAKE int nvrtcVersion(int* major, int* minor) {
  *major = version("nvrtc", 13000) / 1000;
  *minor = version("nvrtc", 13000) % 1000 / 10;
  return 0;
}
FAKE int ncclGetVersion(int* number) {
  *number = version("nccl", 22803);
  return 0;
}
