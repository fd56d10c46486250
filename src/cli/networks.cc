#include "cli/networks.h"

#include <cmath>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"

namespace lockstep::cli {

Variable Network::glorot(const std::string& name, const Shape& shape, int64_t fan_in, int64_t fan_out) {
  const double limit = std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
  // The engine's output is fixed by the standard, the distributions' is not.
  std::mt19937_64 engine(seed_ * 1000003 + variables_.size());
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (float& v : values) v = static_cast<float>((static_cast<double>(engine() >> 11) * 0x1p-52 - 1) * limit);
  variables_.emplace_back(Tensor::from(values, shape), VariableOptions{.name = name});
  return variables_.back();
}

Variable Network::zeros(const std::string& name, const Shape& shape) {
  variables_.emplace_back(Tensor::full(DType::float32, shape, 0.0), VariableOptions{.name = name});
  return variables_.back();
}

namespace {

class Linear final : public Network {
 public:
  explicit Linear(uint64_t seed) {
    seed_ = seed;
    kernel_ = glorot("dense/kernel", {784, 10}, 784, 10);
    bias_ = zeros("dense/bias", {10});
  }
  Tensor logits(const Tensor& images) const override {
    return matmul(reshape(images, {-1, 784}), kernel_) + bias_;
  }

 private:
  Variable kernel_, bias_;
};

class Mlp final : public Network {
 public:
  explicit Mlp(uint64_t seed) {
    seed_ = seed;
    kernel_ = glorot("dense/kernel", {784, 128}, 784, 128);
    bias_ = zeros("dense/bias", {128});
    kernel_1_ = glorot("dense_1/kernel", {128, 10}, 128, 10);
    bias_1_ = zeros("dense_1/bias", {10});
  }
  Tensor logits(const Tensor& images) const override {
    const Tensor hidden = relu(matmul(reshape(images, {-1, 784}), kernel_) + bias_);
    return matmul(hidden, kernel_1_) + bias_1_;
  }

 private:
  Variable kernel_, bias_, kernel_1_, bias_1_;
};

class ConvNet final : public Network {
 public:
  explicit ConvNet(uint64_t seed) {
    seed_ = seed;
    conv_ = glorot("conv2d/kernel", {3, 3, 1, 32}, 9, 9 * 32);
    conv_bias_ = zeros("conv2d/bias", {32});
    conv_1_ = glorot("conv2d_1/kernel", {3, 3, 32, 64}, 9 * 32, 9 * 64);
    conv_1_bias_ = zeros("conv2d_1/bias", {64});
    dense_ = glorot("dense/kernel", {1600, 128}, 1600, 128);
    dense_bias_ = zeros("dense/bias", {128});
    dense_1_ = glorot("dense_1/kernel", {128, 10}, 128, 10);
    dense_1_bias_ = zeros("dense_1/bias", {10});
  }
  Tensor logits(const Tensor& images) const override {
    Tensor x = reshape(images, {-1, 28, 28, 1});
    x = max_pool2d(relu(conv2d(x, conv_) + conv_bias_));
    x = max_pool2d(relu(conv2d(x, conv_1_) + conv_1_bias_));
    x = relu(matmul(reshape(x, {-1, 1600}), dense_) + dense_bias_);
    return matmul(x, dense_1_) + dense_1_bias_;
  }

 private:
  Variable conv_, conv_bias_, conv_1_, conv_1_bias_, dense_, dense_bias_, dense_1_, dense_1_bias_;
};

}  // namespace

std::unique_ptr<Network> make_network(const std::string& name, uint64_t seed) {
  if (name == "linear") return std::make_unique<Linear>(seed);
  if (name == "mlp") return std::make_unique<Mlp>(seed);
  if (name == "convnet") return std::make_unique<ConvNet>(seed);
  fail(ErrorCode::not_found, std::source_location::current(), "there is no network \"", name,
       "\"; there are linear, mlp, convnet");
}

}  // namespace lockstep::cli
