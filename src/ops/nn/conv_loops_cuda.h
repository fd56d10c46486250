// Convolutions in plain loops, for what cuDNN does not do; and the bias and activation behind those that it does.
#pragma once

#include <memory>

#include "graph/kernel.h"
#include "ops/nn/conv.h"

namespace lockstep::cuda {

std::unique_ptr<Kernel> prepare_conv_loops(const KernelRequest& request);

// Pixels of `channels` 16-bit elements as pixels of `wide`, a multiple of 8, with zeros behind.
void widen_pixels(const void* x, void* y, int64_t pixels, int64_t channels, int64_t wide, void* stream);

// y = activation(y + bias), in place; y is [rows, channels]. Bias may be null.
void apply_epilogue(DType dtype, void* y, const void* bias, Epilogue epilogue, int64_t rows, int64_t channels,
                    void* stream);

}  // namespace lockstep::cuda
