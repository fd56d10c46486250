// The plugin's entry: what the library learns of NVIDIA GPUs.
#include "device/plugin.h"

#include <cublasLt.h>
#include <cudnn_version.h>

#include <cstdio>

#include "backends/cuda/check.h"
#include "backends/cuda/device.h"
#include "backends/cuda/stream_work.h"
#include "device/backend_facts.h"
#include "device/gpu_driver.h"
#include "device/nvidia_driver.h"

namespace lockstep::cuda {
namespace {

// Chips older than this lack what the kernels are compiled for.
constexpr int kLeastMajor = 8;

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += two;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

class Driver final : public GpuDriver {
 public:
  std::vector<PhysicalGpu> gpus() const override {
    const auto here = std::source_location::current();
    const CUresult started = cuInit(0);
    if (started == CUDA_ERROR_NO_DEVICE) return {};
    try {
      check(started, "cuInit");
      int runtime = 0, driver = 0, count = 0;
      check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
      check(cuDriverGetVersion(&driver), "cuDriverGetVersion");
      // Within one major version any driver serves any runtime.
      require(driver / 1000 >= runtime / 1000, ErrorCode::device_mismatch, here, "the driver knows CUDA ",
              driver / 1000, ".", driver % 1000 / 10, ", this build needs CUDA ", runtime / 1000, ".",
              runtime % 1000 / 10, " or newer: update the driver");
      check(cuDeviceGetCount(&count), "cuDeviceGetCount");
      std::vector<PhysicalGpu> list;
      for (int i = 0; i < count; ++i) list.push_back(describe(i));
      return list;
    } catch (const Error& error) {
      fail(ErrorCode::device_mismatch, here, "the CUDA driver cannot be used: ", error.message());
    }
  }

  std::unique_ptr<Device> make_device(int gpu, int index, const GpuOptions& options) const override {
    const PhysicalGpu description = describe(gpu);
    require(description.capability_major >= kLeastMajor, ErrorCode::unsupported,
            std::source_location::current(), description.name, " has compute capability ",
            description.capability_major, ".", description.capability_minor, "; this build needs ",
            kLeastMajor, ".0 or newer. Hide it with CUDA_VISIBLE_DEVICES or config::set_visible_devices()");
    return std::make_unique<CudaDevice>(gpu, index, description, options);
  }

  const StreamWork& stream_work() const override { return stream_work_; }

 private:
  static PhysicalGpu describe(int ordinal) {
    CUdevice device = 0;
    check(cuDeviceGet(&device, ordinal), "cuDeviceGet");
    char name[256] = {};
    check(cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName");
    CUuuid uuid{};
    check(cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
    size_t memory = 0;
    check(cuDeviceTotalMem(&memory, device), "cuDeviceTotalMem");
    PhysicalGpu gpu{.name = name, .uuid = uuid_text(uuid), .memory = static_cast<int64_t>(memory)};
    check(cuDeviceGetAttribute(&gpu.capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
          "cuDeviceGetAttribute");
    check(cuDeviceGetAttribute(&gpu.capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
          "cuDeviceGetAttribute");
    return gpu;
  }

  CudaStreamWork stream_work_;
};

std::string version_text(int version) { return detail::concat(version / 1000, ".", version % 1000 / 10); }

BackendFacts describe_backend() {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cuDriverGetVersion(&driver);
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
