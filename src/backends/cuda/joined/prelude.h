// What the code of joined steps calls: CUDA C, behind cuda::scalar_prelude().
#pragma once

namespace lockstep::cuda::joined {

extern const char* const kPrelude;

}  // namespace lockstep::cuda::joined
