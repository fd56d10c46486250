// Floors: the fastest that hand-written code over oneDNN reaches on this processor for one piece of
// work. A floor is prepared for one batch size and thread count: primitives built once, buffers
// persistent, nothing checked, nothing recorded, no general machinery. What an engine costs above
// its floor is what its generality costs.
//
// A floor tries every primitive and layout that could be fastest when it is built, checks that they
// agree, and keeps the fastest: building one takes a second or so.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::bench {

// Not thread-safe. step() must be called on the thread that built the floor: OpenMP teams belong to
// the calling thread.
struct Floor {
  virtual ~Floor() = default;
  virtual void step() = 0;

  // The primitives and layouts that were kept, for the report.
  virtual std::string chosen() const = 0;
};

// A training step: forward, mean softmax cross-entropy, backward, Adam (learning rate 1e-3, betas
// 0.9 and 0.999, epsilon 1e-7, as Keras defines it), always on the same batch. Parameters and
// gradients are exchanged in Keras' order and layouts (kernel [in, out] or HWIO, then bias, layer by
// layer), whatever layout the floor works in.
struct TrainingFloor : Floor {
  virtual void set_batch(std::span<const float> x, std::span<const int32_t> labels) = 0;

  // Also clears the optimizer's state.
  virtual void set_parameters(std::span<const float> values) = 0;

  virtual std::vector<float> parameters() const = 0;
  virtual std::vector<float> gradients() const = 0;  // of the last step
  virtual double loss() const = 0;                   // before the last step's update
};

// Dense 784-128-10 with a relu between.
std::unique_ptr<TrainingFloor> mlp_floor(int64_t batch, int threads);

// 28x28x1; 3x3 convolution to 32, relu, 2x2 max pooling; 3x3 convolution to 64, relu, 2x2 max pooling;
// dense 128, relu; dense 10.
enum class ConvnetLayout { fastest, nhwc, blocked };
std::unique_ptr<TrainingFloor> convnet_floor(int64_t batch, int threads,
                                             ConvnetLayout layout = ConvnetLayout::fastest);

// One copy of `bytes` from one buffer to another.
std::unique_ptr<Floor> copy_floor(int64_t bytes, int threads);

}  // namespace lockstep::bench
