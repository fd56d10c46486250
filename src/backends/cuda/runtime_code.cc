#include "backends/cuda/runtime_code.h"

#include <nvrtc.h>

#include <map>
#include <mutex>
#include <vector>

#include "backends/cuda/check.h"
#include "backends/cuda/kept_code.h"
#include "base/sha256.h"

namespace lockstep::cuda {
namespace {

// Products and sums are not contracted: the bits are those of the same ops one by one, and of the CPU.
constexpr const char* kOptions[] = {"--std=c++17", "--fmad=false"};

void check_nvrtc(nvrtcResult status, const char* what) {
  require(status == NVRTC_SUCCESS, ErrorCode::internal, std::source_location::current(), what,
          " failed: ", nvrtcGetErrorString(status));
}

std::string chip_here() {
  int ordinal = 0, major = 0, minor = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal), "cudaDeviceGetAttribute");
  return detail::concat("sm_", major, minor);
}

std::string cache_key(const std::string& source, const std::string& chip) {
  int major = 0, minor = 0;
  check_nvrtc(nvrtcVersion(&major, &minor), "nvrtcVersion");
  Sha256 hash;
  hash.update(detail::concat("NVRTC ", major, ".", minor, " ", chip));
  for (const char* option : kOptions) hash.update(option);
  return hash.update(source).finish();
}

// From the cache, or compiled and put there.
std::string code_of(const std::string& source, const std::string& chip) {
  const std::string name = cache_key(source, chip) + ".cubin";
  if (auto kept = find_kept_code(name)) return *std::move(kept);
  std::string code = compile_to_code(source, chip);
  keep_code(name, code);
  return code;
}

}  // namespace

std::string compile_to_code(const std::string& source, const std::string& chip) {
  nvrtcProgram program = nullptr;
  check_nvrtc(nvrtcCreateProgram(&program, source.c_str(), "lockstep.cu", 0, nullptr, nullptr),
              "nvrtcCreateProgram");
  const std::string architecture = "--gpu-architecture=" + chip;
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(architecture.c_str());
  const nvrtcResult status = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  std::string code;
  size_t size = 0;
  if (status == NVRTC_SUCCESS) {
    check_nvrtc(nvrtcGetCUBINSize(program, &size), "nvrtcGetCUBINSize");
    code.resize(size);
    check_nvrtc(nvrtcGetCUBIN(program, code.data()), "nvrtcGetCUBIN");
    nvrtcDestroyProgram(&program);
    return code;
  }
  std::string words;
  if (nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS) {
    words.resize(size);
    nvrtcGetProgramLog(program, words.data());
  }
  nvrtcDestroyProgram(&program);
  fail(ErrorCode::internal, std::source_location::current(), "generated code does not compile for ", chip,
       ": ", nvrtcGetErrorString(status), "\n", words, "\n", source);
}

cudaKernel_t compiled_kernel(const std::string& source, const char* name) {
  static std::mutex mutex;
  // Libraries belong to no context: one serves every GPU of the same kind.
  static auto* kernels = new std::map<std::pair<std::string, std::string>, cudaKernel_t>;
  const std::pair key(chip_here(), source);
  {
    const std::lock_guard lock(mutex);
    if (const auto it = kernels->find(key); it != kernels->end()) return it->second;
  }
  const std::string code = code_of(source, key.first);
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData");
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library, name), "cudaLibraryGetKernel");
  const std::lock_guard lock(mutex);
  return (*kernels)[key] = kernel;
}

int multiprocessors() {
  int ordinal = 0, count = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, ordinal), "cudaDeviceGetAttribute");
  return count;
}

}  // namespace lockstep::cuda
