// Compiles elementwise programs to machine code while the process runs.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "backends/cpu/elementwise/block.h"
#include "backends/cpu/elementwise/vector_program.h"

namespace lockstep::cpu::jit {

// Whether this processor and its system run code for an instruction set.
bool is_supported(Isa isa);
// The widest of those; nothing on other processors.
std::optional<Isa> best_isa();

// Code for a valid program whose operands are accessed as given (inputs, then outputs), or null
// where the instruction set cannot do it. With `streaming`, contiguous outputs are written past the
// caches: each row of each of them must begin at a multiple of 64 bytes.
std::unique_ptr<BlockCode> compile(const elementwise::ScalarProgram& program,
                                   std::span<const Access> accesses, Isa isa, bool streaming);

}  // namespace lockstep::cpu::jit
