// Whether results of the calling thread that are too small for a normal number become zero.
//
// An optimizer's decaying averages get there after some hundred steps without a gradient, stay there for
// good, as the smallest number times 0.9 is rounded back to itself, and arithmetic on them takes many times
// as long. Operands are never taken for zero.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lockstep {

#if defined(__x86_64__)
inline bool flushes_to_zero() { return _MM_GET_FLUSH_ZERO_MODE() == _MM_FLUSH_ZERO_ON; }
inline void set_flush_to_zero(bool on) {
  if (flushes_to_zero() != on) _MM_SET_FLUSH_ZERO_MODE(on ? _MM_FLUSH_ZERO_ON : _MM_FLUSH_ZERO_OFF);
}
#else
inline bool flushes_to_zero() { return false; }
inline void set_flush_to_zero(bool) {}
#endif

}  // namespace lockstep
