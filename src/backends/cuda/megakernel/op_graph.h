// The ops of a plan as a megakernel sees them: what is computed from what, whatever memory the plan gave it.
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

// What one op writes, or memory from outside. Values of the plan's arenas have a buffer each, although they
// may take turns in the arena: the order of the plan is given up.
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
  product,       // of matrices, [m, k] and [k, n]
  partial_sums,  // the second half of a split-K product: [parts, m, n] to [m, n]
  elementwise,
  fold,      // every line of the input becomes one element, by a function of two elements
  lines,     // every line of the input by itself, in code of the op's own
  elements,  // every element of the result from one of the input's, in code of the op's own
  example,   // every example of a batch by itself, in code of the op's own
};

struct OpRule;

struct Op {
  Kind kind = Kind::elementwise;
  const compile::KernelCall* call = nullptr;
  const OpRule* rule = nullptr;  // null: elementwise, or partial sums
  std::vector<Access> inputs;
  std::vector<Access> outputs;  // contiguous

  // Elementwise: inputs have the strides that broadcast them to the results' shape.
  elementwise::ScalarProgram program;
  int64_t m = 0, n = 0, k = 0;  // product: inputs are [m, k] and [k, n], whatever was transposed
  int64_t parts = 1;  // split-K: its results are sums of parts of the inner dimension, one behind the other
  int part_columns = 0;  // of a tile of such a product
  bool bias = false;
  Epilogue epilogue = Epilogue::none;
  int64_t outer = 1, length = 1, inner = 1;  // others: lines of the input, [outer, length, inner]
  int64_t examples = 0;                      // example: those of the batch
};

struct OpGraph {
  std::vector<External> externals;
  std::vector<Buffer> buffers;
  std::vector<Op> ops;
  int64_t examples = 0;  // of the batch, where ops work on each by itself; 0: none does
};

// Nothing where the op of a call says nothing to megakernels (op_rule.h), or has a dtype or a layout that
// they do not know.
std::optional<OpGraph> read_calls(std::span<const compile::KernelCall> calls);

}  // namespace lockstep::cuda::megakernel
