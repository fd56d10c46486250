// The switch behind debugging::enable_check_numerics(), and the check itself.
#pragma once

#include <atomic>
#include <span>
#include <string_view>

#include "graph/kernel.h"

namespace lockstep {

namespace detail {
inline std::atomic<bool> numerics_checked{false};
}

inline bool numerics_checked() { return detail::numerics_checked.load(std::memory_order_relaxed); }

struct NonFinite {
  int64_t nans = 0;
  int64_t infs = 0;
  double min = 0, max = 0;  // of the finite elements
  int64_t finite = 0;
};
// Counts elements in host memory; of a floating-point dtype.
NonFinite count_non_finite(const OperandLayout& layout, const void* data);

// Throws Error(invalid_argument) where a floating-point output holds NaN or infinity: it names the op, the
// output, how many there are, the line that emitted the op, and the ranges of the inputs. `pointers`:
// inputs, then outputs, in the device's memory.
void check_numerics(const Device& device, std::string_view op, std::span<const OperandLayout> inputs,
                    std::span<const OperandLayout> outputs, void* const* pointers,
                    std::source_location where);

}  // namespace lockstep
