// The program of README.md, built against the installed package as a user would: it trains a small classifier
// on two logical devices, sees the loss fall, and catches an Error that is thrown inside the library.
#include <lockstep/lockstep.h>

#include <iostream>
#include <vector>

namespace tf = lockstep;

int main() {
  tf::set_logical_cpus({.count = 2});
  const auto devices = tf::logical_devices();

  const auto [train, test] = tf::keras::datasets::digits({.train_size = 2048, .test_size = 16});
  const tf::Tensor images = tf::cast(tf::reshape(train.x, {-1, 784}), tf::DType::float32) / 255.0;
  const tf::Tensor labels = tf::cast(train.y, tf::DType::int32);

  const tf::Variable kernel(tf::zeros({784, 10}));
  const tf::Variable bias(tf::zeros({10}));
  const std::vector<tf::Variable> weights{kernel, bias};
  auto adam = tf::keras::optimizers::Adam({.learning_rate = 1e-2});

  // Traced once, compiled, and run as two replicas, each on its half of the batch.
  auto step = tf::function(
      [&](const tf::Tensor& x, const tf::Tensor& y) {
        tf::GradientTape tape;
        const tf::Tensor logits = tf::matmul(x, kernel) + bias;
        const tf::Tensor losses = tf::nn::sparse_softmax_cross_entropy_with_logits(y, logits);
        const tf::Tensor loss = tf::reduce_sum(losses) / tf::global_batch_size(y);
        adam.apply_gradients(tape.gradient(loss, weights), weights);
        return tf::all_reduce_sum(loss);
      },
      {.replicas = {.devices = {devices.begin(), devices.end()}}});

  float first = 0;
  float last = 0;
  for (int64_t i = 0; i < labels.size(); i += 128) {
    last = step(tf::slice(images, {i, 0}, {128, 784}), tf::slice(labels, {i}, {128})).item<float>();
    if (i == 0) first = last;
  }
  std::cout << "loss " << first << " -> " << last << '\n';
  if (!(last < first / 2)) return 1;

  try {
    tf::matmul(images, images);
  } catch (const tf::Error& error) {
    std::cout << error.what() << '\n';
    return error.code() == tf::ErrorCode::shape_mismatch ? 0 : 1;
  }
  return 1;
}
