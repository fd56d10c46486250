// The plugin's entry: what the library learns of NVIDIA GPUs.
#include "device/plugin.h"

#include <cublasLt.h>
#include <cudnn_version.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "backends/cuda/check.h"
#include "backends/cuda/device.h"
#include "device/backend_facts.h"
#include "device/gpu_driver.h"
#include "device/nvidia_driver.h"

namespace lockstep::cuda {
namespace {

// Chips older than this lack what the kernels are compiled for.
constexpr int kLeastMajor = 8;

// One of them is there where the system knows of a GPU.
constexpr const char* kCardFiles[] = {"/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"};

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += two;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

bool has_card() {
  std::error_code error;
  return std::any_of(std::begin(kCardFiles), std::end(kCardFiles),
                     [&](const char* file) { return std::filesystem::exists(file, error); });
}

class Driver final : public GpuDriver {
 public:
  std::vector<PhysicalGpu> gpus() const override {
    const auto here = std::source_location::current();
    try {
      int runtime = 0, driver = 0, count = 0;
      check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
      check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
      // A machine without a GPU has no driver either: no reason to complain.
      require(driver > 0, has_card() ? ErrorCode::unsupported : ErrorCode::not_found, here,
              "there is no NVIDIA driver: the loader does not find libcuda.so.1");
      // Within one major version any driver serves any runtime.
      require(driver / 1000 >= runtime / 1000, ErrorCode::device_mismatch, here, "the driver knows CUDA ",
              driver / 1000, ".", driver % 1000 / 10, ", this build needs CUDA ", runtime / 1000, ".",
              runtime % 1000 / 10, " or newer: update the driver");
      const cudaError_t status = cudaGetDeviceCount(&count);
      if (status == cudaErrorNoDevice) {
        cudaGetLastError();  // it would be reported again by the next call that asks
        return {};
      }
      check(status, "cudaGetDeviceCount");
      std::vector<PhysicalGpu> list;
      for (int i = 0; i < count; ++i) list.push_back(describe(i));
      return list;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::not_found) throw;
      fail(ErrorCode::device_mismatch, here, "the CUDA driver cannot be used: ", error.message());
    }
  }

  std::unique_ptr<DeviceBackend> make_device(int gpu, int index, const GpuOptions& options) const override {
    const PhysicalGpu description = describe(gpu);
    require(description.capability_major >= kLeastMajor, ErrorCode::unsupported,
            std::source_location::current(), description.name, " has compute capability ",
            description.capability_major, ".", description.capability_minor, "; this build needs ",
            kLeastMajor, ".0 or newer. Hide it with CUDA_VISIBLE_DEVICES or config::set_visible_devices()");
    return std::make_unique<CudaDevice>(gpu, index, description, options);
  }

 private:
  static PhysicalGpu describe(int ordinal) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    int clock_khz = 0;
    check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, ordinal), "cudaDeviceGetAttribute");
    return {.name = properties.name,
            .uuid = uuid_text(properties.uuid),
            .memory = static_cast<int64_t>(properties.totalGlobalMem),
            .capability_major = properties.major,
            .capability_minor = properties.minor,
            .multiprocessors = properties.multiProcessorCount,
            .clock_mhz = clock_khz / 1000};
  }
};

std::string version_text(int version) {
  return version > 0 ? detail::concat(version / 1000, ".", version % 1000 / 10) : "none";
}

BackendFacts describe_backend() {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  return {"cuda", {{"CUDA runtime", version_text(runtime)}, {"CUDA of the driver", version_text(driver)}}};
}

const RegisterBackendFacts registered(describe_backend);

const nvidia::RegisterBuild built({.cuda = CUDART_VERSION,
                                   .cublas = CUBLAS_VERSION,
                                   .cudnn = CUDNN_VERSION,
                                   .nccl = LOCKSTEP_NCCL_VERSION,
                                   .architectures = {LOCKSTEP_CUDA_MACHINE_CODE},
                                   .ptx_architectures = {LOCKSTEP_CUDA_INTERMEDIATE_CODE}});

}  // namespace
}  // namespace lockstep::cuda

extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() {
  static const lockstep::cuda::Driver driver;
  static const lockstep::Plugin plugin{lockstep::kPluginAbiTag, "cuda", lockstep::PluginKind::device,
                                       static_cast<const lockstep::GpuDriver*>(&driver)};
  return &plugin;
}
