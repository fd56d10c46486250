// Kernels written while the program runs: CUDA C compiled for the GPU by NVRTC.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

namespace lockstep::cuda {

// The kernel `name` of `source`, for the GPU that the calling thread is bound to; usable on every GPU of its
// kind until the process ends. Compiled once: the process remembers it, and the folder lockstep/kernels of
// XDG_CACHE_HOME keeps the code for later ones (by source, options, chip and compiler version). Thread-safe.
// Throws Error(internal) with the compiler's words where the source does not compile.
cudaKernel_t compiled_kernel(const std::string& source, const char* name);

// The code alone, for a chip like "sm_90": works without one.
std::string compile_to_code(const std::string& source, const std::string& chip);

// Multiprocessors of the GPU that the calling thread is bound to.
int multiprocessors();

// Compiled when it is launched for the first time: the kernels of a step that becomes one kernel never are.
// One launch at a time.
class RuntimeKernel {
 public:
  RuntimeKernel() = default;  // nothing to compute
  RuntimeKernel(std::string source, const char* name) : source_(std::move(source)), name_(name) {}

  explicit operator bool() const { return name_ != nullptr; }
  cudaKernel_t get() const {
    if (!function_) {
      function_ = compiled_kernel(source_, name_);
      source_ = {};
    }
    return function_;
  }

 private:
  mutable std::string source_;
  const char* name_ = nullptr;
  mutable cudaKernel_t function_ = nullptr;
};

}  // namespace lockstep::cuda
