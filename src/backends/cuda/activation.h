// Epilogues in device code.
#pragma once

#include "graph/op.h"

namespace lockstep::cuda {

// What the op gives that the epilogue stands for, NaN and zeros with a sign included.
template <class C>
__device__ inline C activated(Epilogue epilogue, C x) {
  switch (epilogue) {
    case Epilogue::none: return x;
    case Epilogue::relu: return x <= 0 ? C(0) : x;  // NaN stays, and -0 becomes 0
    case Epilogue::tanh: return tanh(x);
    case Epilogue::sigmoid: return 1 / (1 + exp(-x));
    case Epilogue::gelu_erf: return C(0.5) * x * (1 + erf(x * C(0.70710678118654752440)));
    case Epilogue::gelu_tanh:
      return C(0.5) * x * (1 + tanh(C(0.79788456080286535588) * (x + C(0.044715) * (x * x * x))));
  }
  return x;
}

}  // namespace lockstep::cuda
