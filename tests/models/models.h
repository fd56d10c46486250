// The three models on which the engine is shown to be right and fast: small, whole, written on ops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/keras/optimizers.h"
#include "lockstep/graph/variable.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::models {

// A model is its variables and a forward pass to logits.
class Model {
 public:
  virtual ~Model() = default;
  virtual Tensor logits(const Tensor& x, bool training) = 0;
  const std::vector<Variable>& variables() const { return variables_; }
  // Variables that training updates beside the gradient's (moving statistics).
  const std::vector<Variable>& statistics() const { return statistics_; }

 protected:
  explicit Model(uint64_t seed, DType dtype = DType::float32) : seed_(seed), dtype_(dtype) {}

  // Glorot-uniform weights from a fixed generator; zeros for biases.
  Variable weight(const std::string& name, const Shape& shape, int64_t fan_in, int64_t fan_out);
  Variable filled(const std::string& name, const Shape& shape, double value, bool trainable = true);

 private:
  uint64_t seed_;
  DType dtype_;
  std::vector<Variable> variables_;
  std::vector<Variable> statistics_;
};

// 784-128-10, relu; dropout between the layers where `rate` is not 0.
class Mlp final : public Model {
 public:
  explicit Mlp(uint64_t seed, double dropout_rate = 0, DType dtype = DType::float32, int64_t inputs = 784, int64_t hidden = 128);
  Tensor logits(const Tensor& x, bool training) override;

 private:
  double rate_;
  Variable w1_, b1_, w2_, b2_;
};

// Mean cross-entropy over the global batch: this replica's share of it.
Tensor mean_loss(const Tensor& logits, const Tensor& labels);

// One training step; returns the mean loss over the global batch.
Tensor train_step(Model& model, keras::optimizers::Optimizer& optimizer, const Tensor& x, const Tensor& labels);

// Pseudo-random inputs and labels, the same on every machine.
Tensor random_inputs(const Shape& shape, uint64_t seed, DType dtype = DType::float32);
Tensor random_labels(int64_t count, int64_t classes, uint64_t seed);

}  // namespace lockstep::models
