// Which vector code this machine runs: files x_simd.cc are compiled once per x86-64 level, each time in a
// namespace of its own (simd_v2, simd_v3, simd_v4) that exports one table of functions. The code beside them
// takes the best table.
//
// Every level works in the same logical lanes and in the same order. Levels differ in one thing only: v3 and
// v4 have fused multiply-adds, which exponentials, logarithms and matrix products use.
#pragma once

#include <optional>

namespace lockstep::cpu {

enum class SimdLevel { v2 = 2, v3 = 3, v4 = 4 };

// The levels that the library was compiled for: all of them, or one (LOCKSTEP_SIMD in cmake/simd.cmake).
struct SimdLevels {
  bool v2, v3, v4;
};

// The highest of these levels that a processor of level `processor` runs.
std::optional<SimdLevel> highest_level(SimdLevels compiled, SimdLevel processor);

// The level whose tables are taken. Error(unsupported) where this processor is older than all levels that
// were compiled.
SimdLevel simd_level();

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

// Declares the table `name` of every level. They are weak: those of a level that was not compiled are
// nowhere, and simd_level() never says to take them.
#define LOCKSTEP_SIMD_TABLE(Table, name) \
  namespace lockstep::simd_v2 {          \
  extern const Table name [[gnu::weak]]; \
  }                                      \
  namespace lockstep::simd_v3 {          \
  extern const Table name [[gnu::weak]]; \
  }                                      \
  namespace lockstep::simd_v4 {          \
  extern const Table name [[gnu::weak]]; \
  }
