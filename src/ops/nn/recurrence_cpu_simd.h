// Vector code of recurrence: all steps of some examples.
//
// Arithmetic is float32, for float64 float64. The kernel is packed into that type first, in panels of 16
// columns; every element of a product is summed over its depth in order, whichever rows are computed beside
// it.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

inline constexpr int64_t kRecurrenceLanes = 16;

// Tensors of the op, of its dtype; null where there is none. Scratch is [batch, columns] of the type computed
// in.
struct RecurrenceForward {
  int64_t time = 0, batch = 0, units = 0;
  bool reverse = false;
  const void *x = nullptr, *h0 = nullptr, *c0 = nullptr, *bias = nullptr;
  const bool* mask = nullptr;
  const void* panels = nullptr;  // of the kernel: for each gate those of its units, [units, 16] each
  void *h = nullptr, *last = nullptr, *c = nullptr, *last_cell = nullptr, *kept = nullptr;
  void *now = nullptr, *next = nullptr, *cells = nullptr;  // scratch of `padded` columns
  int64_t padded = 0;                                      // units up to a multiple of 16
};

struct RecurrenceBackward {
  int64_t time = 0, batch = 0, units = 0;
  bool reverse = false;
  const void *s0 = nullptr, *s = nullptr, *kept = nullptr;
  const bool* mask = nullptr;
  const void *dsteps = nullptr, *dlast = nullptr, *dcells = nullptr, *dlast_cell = nullptr, *dkept = nullptr;
  const void* panels = nullptr;  // of the kernel transposed: [gates units, 16] each
  void *dp = nullptr, *dx = nullptr, *dh0 = nullptr, *dc0 = nullptr;
  void *dh = nullptr, *dc = nullptr;  // scratch of `padded` columns
  void* products = nullptr;           // scratch of gates * units columns
  int64_t padded = 0;
};

struct RecurrenceFunctions {
  // Examples [begin, end).
  void (*forward)(const RecurrenceForward&, int64_t begin, int64_t end);
  void (*backward)(const RecurrenceBackward&, int64_t begin, int64_t end);
};
struct RecurrenceCells {
  RecurrenceFunctions simple, lstm, gru;
  // Panels [begin, end) of a matrix [depth, columns], or of its transpose where it is [columns, depth]. The
  // columns of a group fill panels of their own: groups divide the columns.
  void (*pack)(const void* matrix, bool transposed, int64_t depth, int64_t columns, int64_t groups, void* to,
               int64_t begin, int64_t end);
};
struct RecurrenceTable {
  RecurrenceCells float32, float64, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::RecurrenceTable, kRecurrenceTable)
