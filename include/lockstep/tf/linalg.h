// tf::linalg: products and parts of matrices under TensorFlow's module of this name.
#pragma once

#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::linalg {

using lockstep::band_part;
using lockstep::diag;
using lockstep::diag_part;
using lockstep::einsum;
using lockstep::eye;
using lockstep::global_norm;
using lockstep::l2_normalize;
using lockstep::matmul;
using lockstep::matvec;
using lockstep::norm;
using lockstep::tensordot;
using lockstep::trace;

}  // namespace lockstep::linalg
