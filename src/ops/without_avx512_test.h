// For tests in a process of their own: what oneDNN does on processors without AVX-512.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace lockstep::testing {

// Lets oneDNN, which has chosen no kernels yet, use AVX2 and nothing newer. False where there is no AVX2.
inline bool keep_dnnl_to_avx2() {
  const auto set = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "dnnl_set_max_cpu_isa"));
  const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "dnnl_get_effective_cpu_isa"));
  constexpr int kAvx2 = 0x7;
  const bool done = set && get && set(kAvx2) == 0;
  EXPECT_TRUE(done);
  return done && get() == kAvx2;
}

}  // namespace lockstep::testing
