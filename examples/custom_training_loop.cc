// The loop that fit() takes off your hands, written out: a tape, an optimizer and a metric in a compiled step.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() {
  constexpr int64_t kBatch = 64;
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 6400, .test_size = 1000});
  const auto images = [](const tf::Tensor& bytes) {
    return tf::reshape(tf::cast(bytes, tf::float32) / 255.0, {-1, 784});
  };

  tf::random::set_seed(1);
  const tf::keras::Model model = tf::keras::applications::mlp({.hidden = {64}, .dropout = 0.1});
  const tf::keras::Loss loss_of = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true});
  const tf::keras::Metric accuracy = tf::keras::metrics::SparseCategoricalAccuracy();
  const auto optimizer = tf::keras::optimizers::Adam({.learning_rate = 2e-3});
  const std::vector<tf::Variable> weights = model.trainable_weights();

  // Traced once, then compiled: the body is C++ that describes the step.
  auto step = tf::function([&](const tf::Tensor& x, const tf::Tensor& y) {
    tf::GradientTape tape;
    const tf::Tensor logits = model(images(x), {.training = true});
    const tf::Tensor loss = loss_of(y, logits);
    optimizer.apply_gradients(tape.gradient(loss, weights), weights);
    accuracy.update_state(y, logits);
    return loss;
  });

  for (int epoch = 1; epoch <= 4; ++epoch) {
    accuracy.reset_state();
    const tf::Tensor order = tf::random::permutation(train.y.size());
    double total = 0;
    int steps = 0;
    for (int64_t i = 0; i + kBatch <= train.y.size(); i += kBatch, ++steps) {
      const tf::Tensor rows = tf::slice(order, {i}, {kBatch});
      total += step(tf::gather(train.x, rows), tf::gather(train.y, rows)).item<float>();
    }
    std::printf("epoch %d: loss %.4f, accuracy %.4f\n", epoch, total / steps,
                accuracy.result().item<float>());
  }

  accuracy.reset_state();
  accuracy.update_state(test.y, model(images(test.x)));
  const float reached = accuracy.result().item<float>();
  std::printf("test: accuracy %.4f\n", reached);
  return reached > 0.8F ? 0 : 1;
}
