// Where the taps of a window meet an image, as CUDA C for megakernels.
#pragma once

#include <string>

#include "ops/nn/conv_window.h"

namespace lockstep::cuda::megakernel {

// Functions of a place along an axis and a tap: the image's row (column) under a window's tap, and the window
// whose tap lies on a row (column) of the image. -1: there is none.
std::string under(const Window& window, int axis);
std::string over(const Window& window, int axis);

}  // namespace lockstep::cuda::megakernel
