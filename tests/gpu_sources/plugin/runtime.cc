// The functions of CUDA's runtime that the code calls which writes and launches kernels, and the streams of
// GPUs. The GPU is an H100 by its figures; its memory is the host's, and a launch does nothing.
#include <cuda_runtime_api.h>
#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "backends/cuda/stream.h"
#include "gpu_sources/plugin/made.h"

namespace {

using lockstep::testing::made;

struct Kernel {
  std::string name;
};
using Library = std::set<std::string>;  // names of kernels

// Compiled code is an ELF file with a section for each kernel.
cudaError_t read_kernels(const char* code, Library& library) {
  Elf64_Ehdr header;
  std::memcpy(&header, code, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return cudaErrorInvalidKernelImage;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), code + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  const std::string text = ".text.";
  for (const Elf64_Shdr& section : sections) {
    const std::string name = code + sections[header.e_shstrndx].sh_offset + section.sh_name;
    if (name.starts_with(text)) library.insert(name.substr(text.size()));
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t /*error*/) { return "an error"; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidKernelImage: return "what was compiled is no code";
    case cudaErrorSymbolNotFound: return "the code has no kernel of that name";
    case cudaErrorInvalidValue: return "the stand-in for CUDA's runtime does not know this";
    default: return "unknown";
  }
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int /*device*/) {
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    case cudaDevAttrCooperativeLaunch: *value = 1; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = 132; return cudaSuccess;
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  *memory = std::calloc(bytes, 1);
  return cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  auto* loaded = new Library;  // as long as the process, as those of the library are
  *library = reinterpret_cast<cudaLibrary_t>(loaded);
  return read_kernels(static_cast<const char*>(code), *loaded);
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  if (!reinterpret_cast<const Library*>(library)->contains(name)) return cudaErrorSymbolNotFound;
  *kernel = reinterpret_cast<cudaKernel_t>(new Kernel{name});
  return cudaSuccess;
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  ++made().launches[static_cast<const Kernel*>(kernel)->name];
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) {
  ++made().launches[static_cast<const Kernel*>(kernel)->name];
  return cudaSuccess;
}

}  // extern "C"

namespace lockstep::cuda {

CudaStream::CudaStream(DeviceBackend& device, Priority /*priority*/, const CudaStream* captures)
    : Stream(device, true), captures_(captures) {}
CudaStream::~CudaStream() = default;

void CudaStream::copy(void* target, const void* source, size_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
}
void CudaStream::fill(void* target, uint64_t pattern, size_t width, size_t count) {
  for (size_t i = 0; i < count; ++i) std::memcpy(static_cast<char*>(target) + i * width, &pattern, width);
}
void CudaStream::read(void* host, const void* source, size_t bytes) { copy(host, source, bytes); }
void CudaStream::synchronize() {}
int64_t CudaStream::timed(const std::function<void()>& launch) {
  launch();
  return 1;
}

}  // namespace lockstep::cuda
