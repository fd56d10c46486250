// Results of CUDA's calls as errors.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

#include "lockstep/base/error.h"

namespace lockstep::cuda {

// Throws Error where `result` is not success: it names the call and says CUDA's words.
inline void check(cudaError_t result, const char* call,
                  std::source_location where = std::source_location::current()) {
  if (result == cudaSuccess) [[likely]]
    return;
  fail(result == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::internal, where, call,
       ": ", cudaGetErrorName(result), ": ", cudaGetErrorString(result));
}

}  // namespace lockstep::cuda
