// Places in several dimensions and rows that are replaced, for rules and kernels that name them.
#pragma once

#include "graph/op.h"
#include "ops/array/array.h"

namespace lockstep {

// Indices [..., dims] to row-major numbers [...] in the shape of ShapeAttrs. A place that does not exist is
// refused.
extern const OpDef kRavelMultiIndex;
// Inputs: x [rows, ...], values [indices..., ...], indices. x with its rows replaced, in order. Indices are
// refused as those of scatter_add are.
extern const OpDef kScatterUpdate;

}  // namespace lockstep
