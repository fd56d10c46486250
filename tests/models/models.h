// The three models on which the engine is shown to be right and fast: small, whole, written on ops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/graph/variable.h"
#include "lockstep/keras/optimizers.h"
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
  explicit Mlp(uint64_t seed, double dropout_rate = 0, DType dtype = DType::float32, int64_t inputs = 784,
               int64_t hidden = 128);
  Tensor logits(const Tensor& x, bool training) override;

 private:
  double rate_;
  Variable w1_, b1_, w2_, b2_;
};

// Convolution, batch norm over all replicas, relu, pooling, twice; then two dense layers. Without
// `batch_norm` the convolutions have a bias instead: the network of the benchmark.
class ConvNet final : public Model {
 public:
  explicit ConvNet(uint64_t seed, bool batch_norm, DType dtype = DType::float32, int64_t side = 28,
                   int64_t channels = 32, int64_t hidden = 128);
  Tensor logits(const Tensor& x, bool training) override;

 private:
  struct BatchNorm {
    Variable gamma, beta, moving_mean, moving_variance;
  };
  BatchNorm batch_norm(const std::string& name, int64_t channels);
  static Tensor normalize(const Tensor& x, const BatchNorm& norm, bool training);

  bool normalizes_;
  int64_t flat_;
  Variable conv_, conv_1_;
  Variable conv_bias_, conv_1_bias_;
  BatchNorm norm_, norm_1_;
  Variable dense_, dense_bias_, dense_1_, dense_1_bias_;
};

// Token and position embedding, two pre-norm blocks of self-attention and a gelu layer, mean over the
// positions, a dense layer to ten classes. Inputs are int32 tokens (batch, length).
class Transformer final : public Model {
 public:
  explicit Transformer(uint64_t seed, double dropout_rate = 0, DType dtype = DType::float32);
  Tensor logits(const Tensor& tokens, bool training) override;

  static constexpr int64_t kVocabulary = 40, kLength = 12, kWidth = 32, kHeads = 4, kHidden = 64;

 private:
  struct Block {
    Variable norm_gamma, norm_beta, query, key, value, output, norm_1_gamma, norm_1_beta, up, up_bias, down,
        down_bias;
  };
  Tensor attention(const Tensor& x, const Block& block) const;

  double rate_;
  Variable tokens_, positions_;
  std::vector<Block> blocks_;
  Variable norm_gamma_, norm_beta_, head_, head_bias_;
};

// Mean cross-entropy over the global batch: this replica's share of it.
Tensor mean_loss(const Tensor& logits, const Tensor& labels);

// One training step; returns the mean loss over the global batch.
Tensor train_step(Model& model, keras::optimizers::Optimizer& optimizer, const Tensor& x,
                  const Tensor& labels);

// Pseudo-random inputs and labels, the same on every machine.
Tensor random_inputs(const Shape& shape, uint64_t seed, DType dtype = DType::float32);
Tensor random_labels(int64_t count, int64_t classes, uint64_t seed);
Tensor random_tokens(const Shape& shape, int64_t vocabulary, uint64_t seed);

}  // namespace lockstep::models
