#include "models/models.h"

#include <cmath>
#include <random>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#if __has_include("lockstep/ops/random.h")
#include "lockstep/ops/random.h"
#endif

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
  list.emplace_back(Tensor::full(dtype_, shape, value), VariableOptions{.name = name, .trainable = trainable});
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
#if __has_include("lockstep/ops/random.h")
  if (training && rate_ > 0) h = dropout(h, rate_);
#endif
  return matmul(h, w2_) + b2_;
}

Tensor mean_loss(const Tensor& logits, const Tensor& labels) {
  const Tensor losses = sparse_softmax_cross_entropy_with_logits(labels, logits);
  return reduce_sum(losses) * (1.0 / static_cast<double>(global_batch_size(labels)));
}

Tensor train_step(Model& model, keras::optimizers::Optimizer& optimizer, const Tensor& x, const Tensor& labels) {
  GradientTape tape;
  const Tensor loss = mean_loss(model.logits(x, true), labels);
  const TensorList gradients = tape.gradient(loss, model.variables());
  optimizer.apply_gradients(all_reduce_sum(gradients), model.variables());
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

}  // namespace lockstep::models
