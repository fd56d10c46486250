// Arithmetic that the machine has no single instruction for, exactly as scalar_functions.h defines it.
#pragma once

#include "backends/cpu/elementwise/vector_program.h"

namespace lockstep::cpu::jit {

// Integers: the truncated quotient and the floored remainder; 0 where b is 0.
Vec divide_integers(Vec a, Vec b);
Vec mod_integers(Vec a, Vec b);
Vec pow_integers(Vec a, Vec b);  // scalar::pow, called for every lane

// The maximum or minimum: a > b (a < b) or a is NaN ? a : b.
Vec extremum(bool largest, Vec a, Vec b);

Vec sign(Vec a);

// float32 to the nearest bfloat16, whose bits are the upper half; the lower half is left over.
Vec round_to_bfloat16(Vec x);

}  // namespace lockstep::cpu::jit
