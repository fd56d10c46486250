// Resizing as a matrix: what each pixel of the result takes of each pixel of the image, along one dimension.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/ops/image.h"

namespace lockstep {

// `output` rows of `input` weights each; the weights of a row add up to 1. With `antialias` a smaller image's
// pixels take in all that lies between them. For every kind but nearest.
std::vector<double> interpolation_matrix(Interpolation interpolation, bool antialias, int64_t input,
                                         int64_t output);

}  // namespace lockstep
