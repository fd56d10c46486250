// Operands of the GPU tests, and how far results are from what they should be.
#pragma once

#include <cmath>

#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::testing {

inline Tensor numbers(const Shape& shape, uint64_t seed) {
  const random::Generator generator(seed);
  return random::normal(shape, {.generator = &generator});
}

// Of all elements together.
inline double relative_error(const Tensor& got, const Tensor& want) {
  const Tensor wide = cast(want, DType::float64), difference = cast(got, DType::float64) - wide;
  return std::sqrt(reduce_sum(difference * difference).item<double>() /
                   reduce_sum(wide * wide).item<double>());
}

}  // namespace lockstep::testing
