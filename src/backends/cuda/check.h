// Every call of CUDA's libraries is checked: what fails becomes an Error that names the call and its words.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

#include "lockstep/base/error.h"

namespace lockstep::cuda {

// check(cudaMemcpyAsync(...), "cudaMemcpyAsync of 64 bytes");
inline void check(cudaError_t status, const char* what,
                  std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) [[likely]]
    return;
  fail(status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::internal, where, what,
       " failed: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")");
}

// Directly behind a launch: what was wrong with it. What goes wrong while it runs shows at a later call.
inline void check_launch(const char* kernel, std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), kernel, where);
}

}  // namespace lockstep::cuda
