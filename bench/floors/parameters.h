// What every training floor shares: the parameters with their optimizer state, and the loss.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "bench/floors/floor.h"
#include "bench/floors/onednn.h"

namespace lockstep::bench {

// Weights, gradients and Adam's moments of a model, each one array, so that one pass updates all.
class Parameters {
 public:
  // How a parameter's own layout is written from, and read into, Keras' layout.
  struct Layout {
    std::function<void(std::span<const float> values, float* own)> import_values;
    std::function<void(const float* own, std::span<float> values)> export_values;
  };

  explicit Parameters(std::vector<int64_t> sizes);

  float* w(size_t i) const { return w_.data() + offsets_[i]; }
  float* g(size_t i) const { return g_.data() + offsets_[i]; }

  // Without one a parameter is kept as Keras keeps it.
  void set_layout(size_t i, Layout layout) { layouts_[i] = std::move(layout); }

  void set_weights(std::span<const float> values);  // clears the moments
  std::vector<float> weights() const { return exported(w_); }
  std::vector<float> gradients() const { return exported(g_); }

  void adam(int threads);

 private:
  std::vector<float> exported(const Buffer& from) const;

  std::vector<int64_t> sizes_, offsets_;
  std::vector<Layout> layouts_;
  int64_t total_ = 0;
  Buffer w_, g_, m_, v_;
  int64_t step_ = 0;
};

// The layout whose values are `own` to oneDNN, and `keras` outside.
Parameters::Layout layout_between(const dnnl::memory::desc& keras, const dnnl::memory::desc& own);

// Mean softmax cross-entropy with its gradient, and the gradient of the bias before it.
class SoftmaxLoss {
 public:
  SoftmaxLoss(int64_t batch, int64_t classes, const float* logits, float* gradient, float* bias_gradient,
              int threads);

  void set_labels(std::span<const int32_t> labels);
  void operator()();
  double value() const { return value_; }

 private:
  int64_t batch_, classes_;
  const float* logits_;
  float *gradient_, *bias_gradient_;
  int threads_;
  std::vector<int32_t> labels_;
  double value_ = 0;
};

// relu_gradient of kernels.h over a [rows, columns] array, the columns split between threads; the bias
// gradient is overwritten.
void relu_gradient(const float* output, float* gradient, int64_t rows, int64_t columns, float* bias_gradient,
                   int threads);

struct LayerShape {
  int64_t window, in, out;  // a kernel of window * in * out values and `out` biases
};

// Glorot-uniform kernels, zero biases, and a batch that looks random; the same every time.
void start_training(TrainingFloor& floor, int64_t batch, int64_t inputs,
                    const std::vector<LayerShape>& layers);

}  // namespace lockstep::bench
