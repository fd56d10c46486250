// A convolution of a floor: 3x3, stride 1, no padding, with bias and relu; its weight gradient and its
// input gradient. The algorithm (direct or Winograd) of each is the one that was fastest when it was
// built; every primitive has the weight layout it likes best, and the reorders between them are part of
// the step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/floors/onednn.h"
#include "bench/floors/parameters.h"

namespace lockstep::bench {

struct ConvolutionShape {
  int64_t batch, in, in_side, out;
  int64_t out_side() const { return in_side - 2; }
};

struct ConvolutionBuffers {
  dnnl::memory::desc x_desc, y_desc;  // logically NCHW
  float *x, *w, *b, *y;
  float *dw, *dy;
  float* dx = nullptr;  // null where the input's gradient is not wanted
};

class Convolution {
 public:
  // Overwrites the buffers with test data while it measures, on the calling thread's team.
  Convolution(const ConvolutionShape& shape, const ConvolutionBuffers& buffers);

  void forward() const { forward_(); }
  void backward_weights() const { backward_weights_(); }  // of the kernel only, not the bias
  void backward_data() const { backward_data_(); }

  Parameters::Layout layout() const;  // between HWIO and that of w
  const std::string& chosen() const { return chosen_; }

 private:
  ConvolutionShape shape_;
  dnnl::memory::desc w_desc_;
  std::function<void()> forward_, backward_weights_, backward_data_;
  std::string chosen_;
};

}  // namespace lockstep::bench
