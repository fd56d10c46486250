// What the code of a megakernel calls: CUDA C, behind cuda::scalar_prelude().
#pragma once

namespace lockstep::cuda::megakernel {

extern const char* const kPrelude;

}  // namespace lockstep::cuda::megakernel
