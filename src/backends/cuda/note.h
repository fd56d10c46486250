// The device's side of report.h.
#pragma once

#include "backends/cuda/report.h"

namespace lockstep::cuda {

// values(i) for i < count; count is at most Finding::kMost.
template <class Values>
__device__ void note(Finding* finding, int64_t position, int count, Values values) {
  volatile Finding* f = finding;
  if (f->found && f->position <= position) return;
  while (atomicCAS(&finding->locked, 0, 1) != 0) __nanosleep(1000);
  __threadfence_system();
  if (!f->found || position < f->position) {
    f->position = position;
    for (int i = 0; i < count; ++i) f->values[i] = values(i);
    f->found = 1;
  }
  __threadfence_system();
  atomicExch(&finding->locked, 0);
}

__device__ inline void note(Finding* finding, int64_t position, int64_t value) {
  note(finding, position, 1, [&](int) { return value; });
}

}  // namespace lockstep::cuda
