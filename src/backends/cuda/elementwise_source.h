// Scalar programs as CUDA C.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensor/shape.h"
#include "ops/elementwise/program.h"

namespace lockstep::cuda {

// The loops of an elementwise kernel, made as few as its operands allow; outermost first.
struct Walk {
  std::vector<int64_t> sizes;                 // at least one
  std::vector<std::vector<int64_t>> strides;  // in bytes: by loop, by operand (inputs, then outputs)

  int64_t size() const;
};
Walk make_walk(const Shape& shape, std::span<const Strides> strides, std::span<const DType> dtypes);

enum class InnerAccess : uint8_t { contiguous, broadcast, strided };
InnerAccess inner_access(const Walk& walk, size_t operand, DType dtype);

// Elements that a thread handles at once where memory lies well for it; 1: never.
int vector_width(const Walk& walk, std::span<const DType> dtypes);

inline constexpr const char* kElementwiseKernel = "elementwise";

// The kernel's one argument is a struct of 64-bit words: a pointer for each operand, then the byte strides of
// each loop (by loop, by operand), the sizes of the loops with the innermost in units of the width in use,
// the number of units in all, and whether that width is vector_width() or 1.
std::string elementwise_source(const elementwise::ScalarProgram& program, const Walk& walk,
                               std::span<const DType> dtypes);

// The same program over several sets of operands with one launch, each input either whole (an element for
// each of the result) or one element.
struct GroupLayout {
  size_t capacity = 1;  // most sets
  unsigned units = 1;   // of the width in use, that a block handles
  int width = 1;        // elements that a thread handles at once where memory lies well for it
};
// The kernel's one argument, for capacity C: the number of sets as a 64-bit word; C arrays of a pointer for
// each operand; C numbers of elements, 64-bit words; C 32-bit numbers of the block behind a set's last one,
// and C 32-bit words that say whether a set's width is the layout's or 1. `whole`: by operand, true for
// outputs.
std::string elementwise_group_source(const elementwise::ScalarProgram& program,
                                     const std::vector<bool>& whole, std::span<const DType> dtypes,
                                     const GroupLayout& layout);

// --- for kernels with loops of their own -------------------------------------------------------------------

// What an element is in memory; bfloat16 and float16 are their bits.
const char* stored_type(DType dtype);

// What the code below calls; to stand in front of it once.
std::string_view scalar_prelude();

struct ScalarCode {
  std::string statements;            // constants `prefix`0, `prefix`1, ... : one per instruction
  std::vector<std::string> outputs;  // as they are stored
};
// `element(k)`: an expression for an element of input k, as it is stored.
ScalarCode scalar_code(const elementwise::ScalarProgram& program,
                       const std::function<std::string(size_t)>& element, const std::string& prefix);

}  // namespace lockstep::cuda
