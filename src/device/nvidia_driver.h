// NVIDIA's GPUs, driver and libraries, as they are found on this machine: for the doctor and for errors that
// say why there is no GPU.
//
// Nothing is linked against, and no CUDA context is made. The vendor's libraries are loaded and asked in a
// child process: one that hangs or crashes is a fact about the machine, and this process keeps CUDA as it
// was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_library.h"

namespace lockstep::nvidia {

// Where to look. The default is the machine.
struct Search {
  std::vector<std::string> folders = {};  // of libraries, before any other
  bool system = true;                     // then as the dynamic loader searches
  // Folders, as patterns of the shell, that the loader may not know: a library there explains a missing one.
  std::vector<std::string> elsewhere = well_known_folders();
  std::string root = {};  // before /dev, /proc and /sys
  double timeout_s = 30;

  static std::vector<std::string> well_known_folders();
};

struct Process {
  int64_t pid = 0;
  std::string name = {};              // empty: not told
  std::optional<int64_t> bytes = {};  // of GPU memory; none: not told
};

struct NvLink {
  int index = 0;
  bool active = false;
  std::string peer = {};  // a GPU's PCI bus id, or "switch"; empty: not told
};

// What one GPU can do with the memory of another.
struct Peer {
  std::string uuid = {};
  bool access = false;
  bool nvlink = false;
  std::string status = {};    // why there is no access: "the chipset does not support it"
  std::string distance = {};  // "one PCIe switch", "between NUMA nodes"
};

struct Gpu {
  std::string name = {}, uuid = {}, pci = {};
  std::optional<int> number = {};          // CUDA's, where CUDA_VISIBLE_DEVICES is not set
  std::optional<int> visible_number = {};  // CUDA's for this process; none: it does not see this GPU
  int capability = 0;                      // 90 for 9.0; 0: not told
  int64_t memory = 0;
  std::optional<int64_t> memory_used = {};
  std::optional<int> multiprocessors = {}, memory_bus_bits = {};
  std::optional<int> clock_mhz = {}, memory_clock_mhz = {};  // the highest
  std::vector<Process> processes = {};
  std::optional<int> pcie_generation = {}, pcie_width = {}, pcie_max_generation = {}, pcie_max_width = {};
  std::vector<NvLink> links = {};
  std::vector<Peer> peers = {};
  std::vector<std::string> slowed_by = {};  // "power limit", "heat": the clocks are held down now
  std::optional<bool> persistence = {}, mig = {};
  std::vector<std::string> mig_devices = {};  // UUIDs
  std::string compute_mode = {};              // "default", "exclusive process", "prohibited"; empty: not told
  std::optional<int64_t> ecc_corrected = {}, ecc_uncorrected = {};  // since the driver was loaded
  std::optional<double> celsius = {}, watts = {}, watts_limit = {};
  // Calls that should have worked: "nvmlDeviceGetMemoryInfo: GPU is lost (15)".
  std::vector<std::string> failures = {};
};

// A library: where it is, or why it is not there.
struct Library {
  std::string title = {};    // "cuDNN"
  std::string file = {};     // "libcudnn.so.9": the one that is needed
  std::string path = {};     // the one that was loaded; empty: none
  std::string version = {};  // "9.14.0"; empty: not told
  std::vector<LoadAttempt> failures = {};
  std::vector<std::string> elsewhere = {};  // files of this name, or of another version, that were not loaded
  // What a call to initialise it answered where that is not success, in its own words and as a number.
  std::string error = {};
  int code = 0;
};

struct Machine {
  Library cuda{.title = "CUDA driver", .file = "libcuda.so.1"};
  Library nvml{.title = "NVML", .file = "libnvidia-ml.so.1"};
  std::vector<Library> libraries = {};     // runtime, cuBLASLt, NVRTC, cuDNN, NCCL
  std::vector<std::string> searched = {};  // folders of the loader's search
  std::string driver_version = {};         // "580.65.06"; empty: not told
  int cuda_version = 0;        // the highest that the driver supports, 13000 for 13.0; 0: not told
  std::vector<Gpu> gpus = {};  // CUDA's order, then those that NVML alone knows
  // UUIDs of what CUDA shows to this process, in its order; none: it could not be asked.
  std::optional<std::vector<std::string>> visible = {};
  std::vector<std::string> nodes = {};   // "/dev/nvidia0", ...
  std::vector<std::string> on_bus = {};  // PCI bus ids of NVIDIA's display and 3D controllers
  std::string module_version = {};       // of the loaded kernel module; empty: not loaded
  std::string container = {};            // "docker", "kubernetes", ...; empty: none that is known
  std::string mishap = {};               // "did not answer within 30 s in cuInit"; empty: none
};

// Throws nothing that depends on the machine. May take as long as cuInit does: seconds on large machines.
Machine discover(const Search& search = {});

// "python (4242) with 1024 MiB, x (7)": the processes that NVML sees on the GPU of this UUID, this one left
// out. Empty: there are none, or it cannot say. In this process: for one that has initialised CUDA.
std::string other_processes(const std::string& uuid, const Search& search = {});

// "13.0" of 13000.
std::string cuda_version_text(int version);

// What the CUDA plugin was built for. It registers this when it is loaded.
struct Build {
  int cuda = 0;                             // CUDART_VERSION
  int cublas = 0;                           // CUBLAS_VERSION
  int cudnn = 0;                            // CUDNN_VERSION
  int nccl = 0;                             // NCCL_VERSION_CODE; 0: not used by the plugin
  std::vector<int> architectures = {};      // machine code: 80, 90
  std::vector<int> ptx_architectures = {};  // intermediate code, which newer chips run
};
class RegisterBuild {
 public:
  explicit RegisterBuild(const Build& build);
};
// Null: no plugin that says so is loaded.
const Build* registered_build();
// The version text of a library of discover(), by title; empty: the build does not say.
std::string built_with(const Build& build, std::string_view title);
// Whether the build has code for this chip.
bool runs_on(const Build& build, int capability);

// The CUDA version whose libraries Lockstep loads, and the oldest chip that version serves.
inline constexpr int kCudaNeeded = 13000;
inline constexpr int kOldestCapability = 75;

}  // namespace lockstep::nvidia
