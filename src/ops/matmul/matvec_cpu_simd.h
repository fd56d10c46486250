// Vector code of products of a matrix and a vector.
#pragma once

#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

// y[rows] = matrix[rows, depth] * x[depth] + bias. Strides are in elements.
struct MatrixVector {
  const void* matrix;
  int64_t stride;  // between rows or between columns, whichever are dense
  const void* x;
  int64_t x_stride;
  const void* bias;  // null: none
  int64_t bias_stride;
  void* y;
  int64_t rows, depth;
  void* scratch;  // depth elements of the type that is computed in, rounded up to whole vectors
};

using MatrixVectorFunction = void (*)(const MatrixVector&);

struct MatrixVectorFunctions {
  // Rows are dense. Sums have 16 lanes, which are folded at the end.
  MatrixVectorFunction dense_rows;
  // Columns are dense, and there are 16 rows or more. Sums go over depth in order.
  MatrixVectorFunction dense_columns;
};

struct MatrixVectorTable {
  MatrixVectorFunctions float32, float64, bfloat16, float16;
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::MatrixVectorTable, kMatrixVectorTable)
