// Scalar programs as CUDA C.
#pragma once

#include <span>
#include <string>
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

// The kernel's one argument is a struct of 64-bit words: a pointer for each operand, then the byte strides of each
// loop (by loop, by operand), the sizes of the loops with the innermost in units of the width in use, the number of
// units in all, and whether that width is vector_width() or 1.
std::string elementwise_source(const elementwise::Program& program, const Walk& walk,
                               std::span<const DType> dtypes);

}  // namespace lockstep::cuda
