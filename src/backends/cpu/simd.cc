#include "backends/cpu/simd.h"

#include <source_location>

#include "backends/cpu/simple_matmul_simd.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {

namespace {

// Feature by feature: clang 16 knows no names of levels. Processors that have these have the rest of their
// level.
SimdLevel processor_level() {
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? SimdLevel::v4 : v3 ? SimdLevel::v3 : SimdLevel::v2;
}

}  // namespace

std::optional<SimdLevel> highest_level(SimdLevels compiled, SimdLevel processor) {
  if (compiled.v4 && processor >= SimdLevel::v4) return SimdLevel::v4;
  if (compiled.v3 && processor >= SimdLevel::v3) return SimdLevel::v3;
  if (compiled.v2) return SimdLevel::v2;
  return std::nullopt;
}

SimdLevel simd_level() {
  // Any table would do: a level has all of them or none.
  static const std::optional<SimdLevel> level = highest_level({.v2 = &simd_v2::kSimpleMatmulTable != nullptr,
                                                               .v3 = &simd_v3::kSimpleMatmulTable != nullptr,
                                                               .v4 = &simd_v4::kSimpleMatmulTable != nullptr},
                                                              processor_level());
  if (!level) {
    fail(ErrorCode::unsupported, std::source_location::current(),
         "this library was compiled for the processor of another machine, which is newer than this one. "
         "Compile it here, "
         "or for all x86-64 processors: cmake -DLOCKSTEP_SIMD=all");
  }
  return *level;
}

}  // namespace lockstep::cpu
