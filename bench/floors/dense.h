// A dense layer of a floor: y = x W + b, perhaps with a relu, its weight gradient and its input
// gradient. The layout of W and the primitives are those that were fastest when it was built.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/floors/onednn.h"
#include "bench/floors/parameters.h"

namespace lockstep::bench {

struct DenseBuffers {
  float *x, *w, *b, *y;  // [batch, in], [in, out] in the layer's own layout, [out], [batch, out]
  float *dw, *dy;        // as w and y
  float* dx = nullptr;   // as x; null where the input's gradient is not wanted
};

class Dense {
 public:
  // Overwrites the buffers with test data while it measures. The calling thread's team is the one that
  // will run the layer: a primitive keeps the thread count it was created with.
  Dense(int64_t batch, int64_t in, int64_t out, bool relu, const DenseBuffers& buffers);

  void forward() const { forward_(); }
  void backward_weights() const { backward_weights_(); }
  void backward_data() const { backward_data_(); }

  // Between Keras' [in, out] and the layer's own layout; holds a copy of what it needs.
  Parameters::Layout layout() const;

  const std::string& chosen() const { return chosen_; }

 private:
  int64_t in_, out_;
  dnnl::memory::desc layout_;  // of W as [out, in]
  std::function<void()> forward_, backward_weights_, backward_data_;
  std::string chosen_;
};

}  // namespace lockstep::bench
