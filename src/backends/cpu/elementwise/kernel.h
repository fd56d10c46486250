// Elementwise kernels of the CPU: a scalar program, run over arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/tensor/shape.h"
#include "ops/elementwise/program.h"

namespace lockstep::cpu {

// A program prepared for one shape. An element's result depends on the operands' values alone: not
// on where the element lies, on the number of threads, or on what else is in the program.
class ElementwiseKernel {
 public:
  virtual ~ElementwiseKernel() = default;

  // `operands` points to the first element (the one with all indices 0) of each input, then of each
  // output, each aligned to its element size. An output may be the memory of an input that has the
  // same strides and element size; otherwise outputs overlap nothing. Does not allocate.
  // Thread-safe; the work itself runs on the calling thread's team (see base/parallel.h).
  virtual void run(void* const* operands) const = 0;

  // "jit:avx512", "jit:avx2" or "interpreter".
  virtual const char* implementation() const = 0;

  // Threads that run() uses: fewer than allowed where the work is too small to share.
  virtual int threads() const = 0;
};

// For tests and measurements.
struct ElementwiseOptions {
  enum class Implementation : uint8_t { automatic, avx512, avx2, interpreter };
  // Writing outputs past the caches; automatic: when the operands are far larger than those.
  enum class Streaming : uint8_t { automatic, never, always };

  Implementation implementation = Implementation::automatic;
  Streaming streaming = Streaming::automatic;
};

// Strides are in elements, one per dimension of `shape`; 0 repeats an input's element along that
// dimension, and negative ones are allowed. Uses at most `threads` threads. Code is shared between
// all kernels of one program in the process, so that preparing one again takes about a microsecond.
// Throws Error where the program is not valid, strides do not fit, or an implementation is demanded
// that this processor cannot run. Thread-safe.
std::unique_ptr<ElementwiseKernel> prepare_elementwise(const elementwise::ScalarProgram& program,
                                                       const Shape& shape,
                                                       std::span<const Strides> input_strides,
                                                       std::span<const Strides> output_strides, int threads,
                                                       const ElementwiseOptions& options = {});

}  // namespace lockstep::cpu
