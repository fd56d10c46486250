// What the processor can do at most, measured: the figures to hold a device's runs against.
#pragma once

#include <cstdint>

namespace lockstep::doctor {

// Multiplications and additions of `rounds` rounds of independent fused multiply-adds on float32 vectors that stay in
// registers, of the widest kind that the processor has. Runs on the calling thread.
double multiply_adds(int64_t rounds);

// Copies past the caches, as a copy of much memory should. `target` is aligned to 16 bytes.
void streaming_copy(float* target, const float* source, int64_t count);

// Seconds that threads of this process were ready to run but had no core; 0 where the system does not count them.
double waited_for_cores();

}  // namespace lockstep::doctor
