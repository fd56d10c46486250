#include "models/models.h"

#include <cmath>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::models {
namespace {

// splitmix64: the same numbers with every standard library.
double uniform(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype) {
  if (dtype == DType::float64) return Tensor::from(values, shape);
  return Tensor::from(std::vector<float>(values.begin(), values.end()), shape);
}

}  // namespace

Variable Model::weight(const std::string& name, const Shape& shape, int64_t fan_in, int64_t fan_out) {
  const double limit = std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& v : values) v = static_cast<float>((2 * uniform(seed_) - 1) * limit);
  variables_.emplace_back(tensor_of(values, shape, dtype_), VariableOptions{.name = name});
  return variables_.back();
}

Variable Model::filled(const std::string& name, const Shape& shape, double value, bool trainable) {
  auto& list = trainable ? variables_ : statistics_;
  list.emplace_back(Tensor::full(dtype_, shape, value),
                    VariableOptions{.name = name, .trainable = trainable});
  return list.back();
}

Mlp::Mlp(uint64_t seed, double dropout_rate, DType dtype, int64_t inputs, int64_t hidden)
    : Model(seed, dtype),
      rate_(dropout_rate),
      w1_(weight("dense/kernel", {inputs, hidden}, inputs, hidden)),
      b1_(filled("dense/bias", {hidden}, 0)),
      w2_(weight("dense_1/kernel", {hidden, 10}, hidden, 10)),
      b2_(filled("dense_1/bias", {10}, 0)) {}

Tensor Mlp::logits(const Tensor& x, bool training) {
  Tensor h = relu(matmul(x, w1_) + b1_);
  if (training && rate_ > 0) h = dropout(h, rate_);
  return matmul(h, w2_) + b2_;
}

ConvNet::ConvNet(uint64_t seed, bool with_batch_norm, DType dtype, int64_t side, int64_t channels,
                 int64_t hidden)
    : Model(seed, dtype), normalizes_(with_batch_norm) {
  const int64_t pooled = ((side - 2) / 2 - 2) / 2;
  flat_ = pooled * pooled * 2 * channels;
  conv_ = weight("conv2d/kernel", {3, 3, 1, channels}, 9, 9 * channels);
  if (normalizes_)
    norm_ = batch_norm("batch_normalization", channels);
  else
    conv_bias_ = filled("conv2d/bias", {channels}, 0);
  conv_1_ = weight("conv2d_1/kernel", {3, 3, channels, 2 * channels}, 9 * channels, 18 * channels);
  if (normalizes_)
    norm_1_ = batch_norm("batch_normalization_1", 2 * channels);
  else
    conv_1_bias_ = filled("conv2d_1/bias", {2 * channels}, 0);
  dense_ = weight("dense/kernel", {flat_, hidden}, flat_, hidden);
  dense_bias_ = filled("dense/bias", {hidden}, 0);
  dense_1_ = weight("dense_1/kernel", {hidden, 10}, hidden, 10);
  dense_1_bias_ = filled("dense_1/bias", {10}, 0);
}

ConvNet::BatchNorm ConvNet::batch_norm(const std::string& name, int64_t channels) {
  return {filled(name + "/gamma", {channels}, 1), filled(name + "/beta", {channels}, 0),
          filled(name + "/moving_mean", {channels}, 0, false),
          filled(name + "/moving_variance", {channels}, 1, false)};
}

// Keras' batch normalisation (momentum 0.99, epsilon 1e-3, biased variance) over the global batch.
Tensor ConvNet::normalize(const Tensor& x, const BatchNorm& norm, bool training) {
  constexpr double kMomentum = 0.99, kEpsilon = 1e-3;
  if (!training)
    return (x - norm.moving_mean) * (rsqrt(norm.moving_variance + kEpsilon) * norm.gamma) + norm.beta;
  const double count = static_cast<double>(global_batch_size(x) * x.shape()[1] * x.shape()[2]);
  const ReduceOptions channels{.axis = {0, 1, 2}};
  const Tensor mean = all_reduce_sum(reduce_sum(x, channels)) * (1 / count);
  const Tensor centred = x - mean;
  const Tensor variance = all_reduce_sum(reduce_sum(square(centred), channels)) * (1 / count);
  norm.moving_mean.assign(stop_gradient(norm.moving_mean.value() * kMomentum + mean * (1 - kMomentum)));
  norm.moving_variance.assign(
      stop_gradient(norm.moving_variance.value() * kMomentum + variance * (1 - kMomentum)));
  return centred * (rsqrt(variance + kEpsilon) * norm.gamma) + norm.beta;
}

Tensor ConvNet::logits(const Tensor& x, bool training) {
  const auto block = [&](const Tensor& in, const Variable& filter, const Variable& bias,
                         const BatchNorm& norm) {
    const Tensor y = conv2d(in, filter);
    return max_pool2d(relu(normalizes_ ? normalize(y, norm, training) : y + bias));
  };
  Tensor y = block(x, conv_, conv_bias_, norm_);
  y = block(y, conv_1_, conv_1_bias_, norm_1_);
  y = relu(matmul(reshape(y, {-1, flat_}), dense_) + dense_bias_);
  return matmul(y, dense_1_) + dense_1_bias_;
}

Transformer::Transformer(uint64_t seed, double dropout_rate, DType dtype)
    : Model(seed, dtype),
      rate_(dropout_rate),
      tokens_(weight("tokens", {kVocabulary, kWidth}, kVocabulary, kWidth)),
      positions_(weight("positions", {kLength, kWidth}, kLength, kWidth)) {
  for (const std::string name : {"block_0/", "block_1/"}) {
    const auto square = [&](const char* what) {
      return weight(name + what, {kWidth, kWidth}, kWidth, kWidth);
    };
    blocks_.push_back({.norm_gamma = filled(name + "norm/gamma", {kWidth}, 1),
                       .norm_beta = filled(name + "norm/beta", {kWidth}, 0),
                       .query = square("query"),
                       .key = square("key"),
                       .value = square("value"),
                       .output = square("output"),
                       .norm_1_gamma = filled(name + "norm_1/gamma", {kWidth}, 1),
                       .norm_1_beta = filled(name + "norm_1/beta", {kWidth}, 0),
                       .up = weight(name + "up/kernel", {kWidth, kHidden}, kWidth, kHidden),
                       .up_bias = filled(name + "up/bias", {kHidden}, 0),
                       .down = weight(name + "down/kernel", {kHidden, kWidth}, kHidden, kWidth),
                       .down_bias = filled(name + "down/bias", {kWidth}, 0)});
  }
  norm_gamma_ = filled("norm/gamma", {kWidth}, 1);
  norm_beta_ = filled("norm/beta", {kWidth}, 0);
  head_ = weight("head/kernel", {kWidth, 10}, kWidth, 10);
  head_bias_ = filled("head/bias", {10}, 0);
}

Tensor Transformer::attention(const Tensor& x, const Block& block) const {
  constexpr int64_t kDepth = kWidth / kHeads;
  const int64_t batch = x.shape()[0];
  const auto heads = [&](const Variable& kernel) {
    return transpose(reshape(matmul(x, kernel), {batch, kLength, kHeads, kDepth}), {0, 2, 1, 3});
  };
  const Tensor scores = matmul(heads(block.query), heads(block.key), {.transpose_b = true});
  const Tensor mixed =
      matmul(softmax(scores * (1 / std::sqrt(static_cast<double>(kDepth)))), heads(block.value));
  return matmul(reshape(transpose(mixed, {0, 2, 1, 3}), {batch, kLength, kWidth}), block.output);
}

Tensor Transformer::logits(const Tensor& tokens, bool training) {
  Tensor x = gather(tokens_, tokens) + positions_;
  for (const Block& block : blocks_) {
    Tensor y = attention(layer_norm(x, block.norm_gamma, block.norm_beta), block);
    if (training && rate_ > 0) y = dropout(y, rate_);
    x = x + y;
    y = gelu(matmul(layer_norm(x, block.norm_1_gamma, block.norm_1_beta), block.up) + block.up_bias);
    x = x + (matmul(y, block.down) + block.down_bias);
  }
  x = reduce_mean(layer_norm(x, norm_gamma_, norm_beta_), {.axis = {1}});
  return matmul(x, head_) + head_bias_;
}

Tensor mean_loss(const Tensor& logits, const Tensor& labels) {
  const Tensor losses = sparse_softmax_cross_entropy_with_logits(labels, logits);
  return reduce_sum(losses) * (1.0 / static_cast<double>(global_batch_size(labels)));
}

Tensor train_step(Model& model, keras::optimizers::Optimizer& optimizer, const Tensor& x,
                  const Tensor& labels) {
  GradientTape tape;
  const Tensor loss = mean_loss(model.logits(x, true), labels);
  const TensorList gradients = tape.gradient(loss, model.variables());
  optimizer.apply_gradients(gradients, model.variables());
  return all_reduce_sum(loss);
}

Tensor random_inputs(const Shape& shape, uint64_t seed, DType dtype) {
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& v : values) v = static_cast<float>(uniform(seed));
  return tensor_of(values, shape, dtype);
}

Tensor random_labels(int64_t count, int64_t classes, uint64_t seed) {
  std::vector<int32_t> labels(static_cast<size_t>(count));
  for (int32_t& label : labels) label = static_cast<int32_t>(uniform(seed) * static_cast<double>(classes));
  return Tensor::from(labels, {count});
}

Tensor random_tokens(const Shape& shape, int64_t vocabulary, uint64_t seed) {
  return reshape(random_labels(shape.size(), vocabulary, seed), shape);
}

}  // namespace lockstep::models
