// Convolutions in plain loops, for what cuDNN does not do; and the bias and activation behind those that it
// does.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "graph/kernel.h"
#include "ops/nn/conv.h"

namespace lockstep::cuda {

std::unique_ptr<Kernel> prepare_conv_loops(const KernelRequest& request);

// A convolution of stride 2 over images of few channels as one of stride 1 over images of a quarter of the
// pixels, whose channels are those of 2 x 2 pixels: what cuDNN's algorithms, which want channels in eights,
// are fast at.
struct FoldedConvolution {
  int64_t batch, height, width, channels, filters;     // of the convolution that is asked for
  int64_t rows, columns, before_rows, before_columns;  // of its window, and padding
  int64_t out_rows, out_columns;

  constexpr int64_t folded_rows() const { return (rows + 1) / 2; }  // of the window over folded images
  constexpr int64_t folded_columns() const { return (columns + 1) / 2; }
  constexpr int64_t folded_height() const { return out_rows + folded_rows() - 1; }
  constexpr int64_t folded_width() const { return out_columns + folded_columns() - 1; }
  constexpr int64_t folded_channels() const { return (4 * channels + 7) / 8 * 8; }
  constexpr int64_t image_elements() const {
    return batch * folded_height() * folded_width() * folded_channels();
  }
  constexpr int64_t filter_elements() const {
    return filters * folded_rows() * folded_columns() * folded_channels();
  }

  // Of 16-bit elements. Images as they are, with their padding and zeros for channels that do not exist.
  void fold_images(const void* x, void* folded, cudaStream_t stream) const;
  // A filter [rows, columns, channels, filters] as [filters, folded rows, folded columns, folded channels],
  // and back.
  void fold_filter(const void* filter, void* folded, cudaStream_t stream) const;
  void unfold_filter(const void* folded, void* filter, cudaStream_t stream) const;
};

// y = activation(y + bias), in place; y is [rows, channels]. Bias may be null.
void apply_epilogue(DType dtype, void* y, const void* bias, Epilogue epilogue, int64_t rows, int64_t channels,
                    cudaStream_t stream);

}  // namespace lockstep::cuda
