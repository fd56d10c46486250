// Which vector code this machine runs: files x_simd.cc exist once per x86-64 level, each in a namespace of its
// own (simd_v2, simd_v3, simd_v4) that exports one table of functions. The code beside them takes the best table.
//
// Every level works in the same logical lanes and in the same order. Levels differ in one thing only: v3 and v4 have
// fused multiply-adds, which exponentials, logarithms and matrix products use.
#pragma once

namespace lockstep::cpu {

enum class SimdLevel { v2 = 2, v3 = 3, v4 = 4 };

// The highest level that this processor and its operating system support.
inline SimdLevel simd_level() {
  // Feature by feature: clang 16 knows no names of levels. Processors that have these have the rest of their level.
  static const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  static const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl");
  return v4 ? SimdLevel::v4 : v3 ? SimdLevel::v3 : SimdLevel::v2;
}

template <class Table>
const Table& pick_simd(const Table& v2, const Table& v3, const Table& v4) {
  switch (simd_level()) {
    case SimdLevel::v4: return v4;
    case SimdLevel::v3: return v3;
    case SimdLevel::v2: break;
  }
  return v2;
}

}  // namespace lockstep::cpu
