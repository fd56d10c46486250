// A compiled program as one kernel sees it: what is computed from what, whatever memory the plan gave it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compile/planning/plan.h"
#include "ops/elementwise/program.h"

namespace lockstep::cuda::megakernel {

// Memory from outside: the pointer with this number points so many bytes into it.
struct External {
  size_t pointer = 0;
  int64_t offset = 0;
  int parameter = -1;  // of the function, where it is one
};

// What one op writes, or memory from outside. Values of the plan's arenas have a buffer each, although they may take
// turns in the arena: the order of the plan is given up.
struct Buffer {
  int external = -1;  // -1: memory of the kernel's own
  int64_t bytes = 0;
};

struct Access {
  int buffer = -1;
  int64_t offset = 0;  // in elements
  DType dtype = DType::float32;
  Shape shape;
  Strides strides;

  bool contiguous() const { return is_contiguous(shape, strides); }
};

enum class Kind : uint8_t {
  matmul,
  partial_sums,  // of a product whose inner dimension was cut: [parts, m, n] to [m, n]
  elementwise,
  reduce,
  argmax,
  softmax,
  log_softmax,
  cross_entropy,
  cross_entropy_grad,
  cross_entropy_with_grad,
  one_hot,
};

struct Op {
  Kind kind = Kind::elementwise;
  const compile::Step* step = nullptr;
  std::vector<Access> inputs;
  std::vector<Access> outputs;  // contiguous

  elementwise::Program
      program;  // elementwise: inputs have the strides that broadcast them to the results' shape
  int64_t m = 0, n = 0, k = 0;  // matmul: inputs are [m, k] and [k, n], whatever was transposed
  int64_t parts = 1;     // its results are the sums of parts of the inner dimension, one behind the other
  int part_columns = 0;  // of a tile of such a product
  bool bias = false;
  Epilogue epilogue = Epilogue::none;
  int64_t outer = 1, length = 1, inner = 1;  // others: lines of the input, [outer, length, inner]
};

struct Program {
  std::vector<External> externals;
  std::vector<Buffer> buffers;
  std::vector<Op> ops;
};

// Nothing where a step is of a kind, a dtype or a layout that is not known here.
std::optional<Program> read_steps(std::span<const compile::Step> steps);

}  // namespace lockstep::cuda::megakernel
