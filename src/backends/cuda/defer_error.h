// The device's side of deferred_errors.h.
#pragma once

#include "backends/cuda/deferred_errors.h"

namespace lockstep::cuda {

// values(i) for i < count; count is at most DeferredError::kMost.
template <class Values>
__device__ void defer_error(DeferredError* error, int64_t position, int count, Values values) {
  volatile DeferredError* f = error;
  if (f->found && f->position <= position) return;
  while (atomicCAS(&error->locked, 0, 1) != 0) __nanosleep(1000);
  __threadfence_system();
  if (!f->found || position < f->position) {
    f->position = position;
    for (int i = 0; i < count; ++i) f->values[i] = values(i);
    f->found = 1;
  }
  __threadfence_system();
  atomicExch(&error->locked, 0);
}

__device__ inline void defer_error(DeferredError* error, int64_t position, int64_t value) {
  defer_error(error, position, 1, [&](int) { return value; });
}

}  // namespace lockstep::cuda
