// What an epilogue computes, for backends that write it as an elementwise program.
#pragma once

#include "ops/elementwise/expander.h"

namespace lockstep::elementwise {

// The meaning of the op that the epilogue stands for, so that fused and alone it gives the same result for
// every value: NaN, infinities and zeros with a sign included.
Scalar activated(Epilogue epilogue, Scalar x);

// activated(x) and nothing else.
ScalarProgram activation_program(Epilogue epilogue, DType dtype);

}  // namespace lockstep::elementwise
