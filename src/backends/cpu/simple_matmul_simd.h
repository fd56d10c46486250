// Vector code of simple_matmul: one tile of a matrix product.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/simd.h"

namespace lockstep::cpu {

// Rows, columns and depth of what is packed at a time: a panel of B stays in the first-level cache.
inline constexpr int64_t kTileRows = 96, kTileColumns = 256, kTileDepth = 128;

// Elements of the type that is computed in.
inline constexpr int64_t kTileElements =
    kTileRows * kTileDepth + kTileDepth * kTileColumns + kTileRows * kTileColumns;

// The product of a[rows, depth] and b[depth, columns], each of any strides (in elements).
struct MatmulTile {
  const void* a;
  int64_t a_row, a_column;
  const void* b;
  int64_t b_row, b_column;
  int64_t rows, columns, depth;  // rows <= kTileRows, columns <= kTileColumns
  bool add = false;              // to the tile that the workspace holds, of the same rows and columns
  void* workspace;               // kTileElements of the type that is computed in
};

// Computes a tile and returns it: rows of kTileColumns elements, in the workspace. Every element is the sum
// of its products one after the other, whatever the tile's size and place.
using MatmulTileFunction = void* (*)(const MatmulTile&);

// Indexed by DType; float32 for bfloat16 and float16, else the dtype itself.
struct SimpleMatmulTable {
  MatmulTileFunction tile[6];
};

}  // namespace lockstep::cpu

LOCKSTEP_SIMD_TABLE(cpu::SimpleMatmulTable, kSimpleMatmulTable)
