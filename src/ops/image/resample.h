// Resampling along one dimension, for rules and kernels that name it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op.h"

namespace lockstep {

// resample(x) -> y and resample_grad(dy) -> dx: linear, and each other's gradient. x has `input` elements
// along `axis`, y has `output`; half-pixel centres.
extern const OpDef kResample, kResampleGrad;

struct ResampleAttrs {
  int axis = 0;
  int64_t input = 1, output = 1;
  bool nearest = false;
  bool operator==(const ResampleAttrs&) const = default;
  void visit(auto&& v) const {
    v("axis", axis), v("input", input), v("output", output), v("nearest", nearest);
  }
};

// What element i of y is made of: (1 - weight) x[low] + weight x[high].
struct ResampleTap {
  int64_t low, high;
  double weight;
};
std::vector<ResampleTap> resample_taps(const ResampleAttrs& attrs);

}  // namespace lockstep
