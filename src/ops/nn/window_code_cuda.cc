#include "ops/nn/window_code_cuda.h"

#include "lockstep/base/error.h"

namespace lockstep::cuda::megakernel {

using detail::concat;

std::string under(const Window& w, int axis) {
  return concat("[](int place, int tap) { const int at = place * ", w.strides[axis], " + tap * ",
                w.dilations[axis], " - ", w.before[axis], "; return at >= 0 && at < ", w.input[axis],
                " ? at : -1; }");
}

std::string over(const Window& w, int axis) {
  return concat("[](int place, int tap) { const int at = place + ", w.before[axis], " - tap * ",
                w.dilations[axis], "; return at >= 0 && at % ", w.strides[axis], " == 0 && at / ",
                w.strides[axis], " < ", w.output(axis), " ? at / ", w.strides[axis], " : -1; }");
}

}  // namespace lockstep::cuda::megakernel
