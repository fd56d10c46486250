// The pieces of a training step for which oneDNN has no primitive, or a slow one. AVX-512 where the
// processor has it, plain loops elsewhere. Pure functions on a range: threads are the caller's.
#pragma once

#include <cstdint>

namespace lockstep::bench::kernels {

bool has_avx512();

// For rows of logits[rows, classes]: gradient = (softmax - onehot(label)) * scale; the column sums of
// the gradient are added to bias_gradient. Returns the sum of the rows' losses.
double softmax_cross_entropy(const float* logits, const int32_t* labels, int64_t rows, int64_t classes,
                             float scale, float* gradient, float* bias_gradient);

// Where output[r, c] is not positive, gradient[r, c] becomes 0; the column sums of what is left are
// added to bias_gradient. Rows are `stride` floats apart.
void relu_gradient(const float* output, float* gradient, int64_t rows, int64_t columns, int64_t stride,
                   float* bias_gradient);

// Keras' Adam; step_size is learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t).
void adam(float* w, float* m, float* v, const float* g, int64_t n, float step_size);

// Stores past the cache where `streaming`, which saves reading the destination first.
void copy(float* to, const float* from, int64_t n, bool streaming);

}  // namespace lockstep::bench::kernels
