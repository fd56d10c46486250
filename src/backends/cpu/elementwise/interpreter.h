// Runs any elementwise program on any processor, a tile of elements at a time. It serves what the
// just-in-time compiler does not, and is the reference that the compiler is tested against.
#pragma once

#include <memory>

#include "backends/cpu/elementwise/block.h"

namespace lockstep::cpu {

// The program must be valid. The result does not refer to it.
std::unique_ptr<BlockCode> interpret(const elementwise::ScalarProgram& program);

}  // namespace lockstep::cpu
