// Activations, as in keras.activations and tf.nn (sigmoid, tanh, softplus, relu and gelu stand in math.h).
//
// All are elementwise but glu, and take floating-point tensors; relu and its kin take any numbers. Gradients
// at kinks are those of Keras on JAX, and 0 where that halves the gradient at the ends of a clipped range.
#pragma once

#include "lockstep/ops/math.h"

namespace lockstep {

struct ReluOptions {
  double negative_slope = 0;  // below the threshold: negative_slope * (x - threshold)
  double max_value = -1;      // negative: none
  double threshold = 0;
};
Tensor relu(const TensorArg& x, const ReluOptions& options);
Tensor relu6(const TensorArg& x);
Tensor leaky_relu(const TensorArg& x, double negative_slope = 0.2);

Tensor elu(const TensorArg& x, double alpha = 1);
Tensor selu(const TensorArg& x);
Tensor celu(const TensorArg& x, double alpha = 1);
Tensor silu(const TensorArg& x);  // x * sigmoid(x)
inline Tensor swish(const TensorArg& x) { return silu(x); }
Tensor mish(const TensorArg& x);  // x * tanh(softplus(x))
Tensor softsign(const TensorArg& x);
Tensor log_sigmoid(const TensorArg& x);
inline Tensor exponential(const TensorArg& x) { return exp(x); }
// The first half along `axis`, times the sigmoid of the second.
Tensor glu(const TensorArg& x, int axis = -1);

Tensor hard_sigmoid(const TensorArg& x);  // x / 6 + 0.5 in [0, 1]
Tensor hard_silu(const TensorArg& x);     // x * hard_sigmoid(x)
inline Tensor hard_swish(const TensorArg& x) { return hard_silu(x); }
Tensor hard_tanh(const TensorArg& x);  // x in [-1, 1]

Tensor tanh_shrink(const TensorArg& x);  // x - tanh(x)
// 0 in [-threshold, threshold], x outside.
Tensor hard_shrink(const TensorArg& x, double threshold = 0.5);
// The same, moved towards 0 by the threshold.
Tensor soft_shrink(const TensorArg& x, double threshold = 0.5);
// x above the threshold, `value` elsewhere.
Tensor threshold(const TensorArg& x, double threshold, double value);

Tensor squareplus(const TensorArg& x, double b = 4);  // (x + sqrt(x^2 + b)) / 2
Tensor sparse_plus(const TensorArg& x);               // 0 to -1, (x + 1)^2 / 4 to 1, then x
Tensor sparse_sigmoid(const TensorArg& x);            // (x + 1) / 2 in [0, 1]

}  // namespace lockstep
