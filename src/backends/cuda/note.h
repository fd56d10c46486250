// The device's side of report.h.
#pragma once

#include "backends/cuda/report.h"

namespace lockstep::cuda {

__device__ inline void note(Finding* finding, int64_t position, int64_t value) {
  volatile Finding* f = finding;
  if (f->found && f->position <= position) return;
  while (atomicCAS(&finding->locked, 0, 1) != 0) __nanosleep(1000);
  __threadfence_system();
  if (!f->found || position < f->position) {
    f->position = position;
    f->value = value;
    f->found = 1;
  }
  __threadfence_system();
  atomicExch(&finding->locked, 0);
}

}  // namespace lockstep::cuda
