// Transcendental functions as vector code: float32 and float64, to within 2 units in the last place
// (exp, log, and all of float64) or 4 (the others) of the true value, subnormals, infinities and NaN
// included. Both instruction sets compute the same bits.
#pragma once

#include "backends/cpu/elementwise/vector_program.h"

namespace lockstep::cpu::jit {

Vec exp(Vec x);
Vec expm1(Vec x);
Vec log(Vec x);
Vec log1p(Vec x);
Vec tanh(Vec x);
Vec erf(Vec x);
Vec sin(Vec x);
Vec cos(Vec x);
Vec pow(Vec x, Vec y);

// The floored remainder, exactly as scalar::mod.
Vec mod(Vec x, Vec y);

}  // namespace lockstep::cpu::jit
