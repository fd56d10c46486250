// Vector code of the random ops: 16 Philox blocks at a time.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

// Rows of `width` elements, each in blocks of four; blocks are numbered row after row.
struct RandomRows {
  uint64_t key;
  uint64_t first_row;  // number of row 0
  int64_t width;
  uint32_t threshold;  // of `threshold`: true where the upper 24 bits are at least this
  int64_t low = 0;     // of random integers, which are made number by number
  uint64_t range = 0;  // 0: 2^64
};

// Fills the elements of blocks [begin, end).
using RandomFunction = void (*)(const RandomRows& rows, void* out, int64_t begin, int64_t end);

struct RandomTable {
  RandomFunction uniform32, uniform_bfloat16, uniform_float16;
  RandomFunction normal32, normal_bfloat16, normal_float16;
  RandomFunction threshold;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::RandomTable, kRandomTable)
