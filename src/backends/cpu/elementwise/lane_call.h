// Functions of the C library, called lane by lane from generated code.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::cpu::jit {

// A LaneFunction that computes F(a) or F(a, b) on elements of T.
template <class T, auto F>
void call_lanes(void* result, const void* a, const void* b, uint32_t set) noexcept {
  for (; set != 0; set &= set - 1) {
    const int lane = std::countr_zero(set);
    const T x = static_cast<const T*>(a)[lane];
    if constexpr (requires { F(x); })
      static_cast<T*>(result)[lane] = F(x);
    else
      static_cast<T*>(result)[lane] = F(x, static_cast<const T*>(b)[lane]);
  }
}

}  // namespace lockstep::cpu::jit
