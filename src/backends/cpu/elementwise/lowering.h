// From scalar programs to vector code.
#pragma once

#include <optional>
#include <span>

#include "backends/cpu/elementwise/vector_program.h"

namespace lockstep::cpu::jit {

// `accesses` are those of the inputs, then the outputs. The program must be valid. Nothing where
// the instruction set lacks what the program needs (64-bit integers on AVX2).
std::optional<VectorProgram> lower(const elementwise::ScalarProgram& program,
                                   std::span<const Access> accesses, Isa isa);

}  // namespace lockstep::cpu::jit
