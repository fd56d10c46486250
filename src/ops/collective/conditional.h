// Sums over replicas that are not made every time.
#pragma once

#include <source_location>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// all_reduce_sum(x) where `condition`, a boolean that is the same in all replicas, holds. Elsewhere nothing
// is communicated, and what is computed from the result must not be used. Outside of replicas: x.
Tensor all_reduce_sum_where(const Tensor& condition, const Tensor& x, std::source_location where);

}  // namespace lockstep
