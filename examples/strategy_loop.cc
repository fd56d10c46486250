// A training loop of one's own on all devices: a dataset that is distributed, and a step that runs on every replica.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() {
  tf::set_logical_cpus({.count = 2});
  tf::random::set_seed(1);
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 6400, .test_size = 1000});
  const auto images = [](const tf::Tensor& bytes) {
    return tf::reshape(tf::cast(bytes, tf::float32) / 255.0, {-1, 784});
  };

  const tf::distribute::MirroredStrategy strategy;
  tf::keras::Sequential model;
  tf::keras::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = tf::keras::Sequential({tf::keras::layers::Input({784}),
                                   tf::keras::layers::Dense(64, {.activation = "relu"}),
                                   tf::keras::layers::Dense(10)});
    optimizer = tf::keras::optimizers::Adam(2e-3);
  }
  const auto loss_of = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true});

  // It sees its replica's slice of the batch. The loss is the slice's share of the mean over the whole batch, and
  // apply_gradients() adds up what all replicas have.
  const auto step = [&](const tf::Tensor& x, const tf::Tensor& y) {
    tf::GradientTape tape;
    const tf::Tensor loss = loss_of(y, model(images(x), {.training = true}));
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()), model.trainable_variables());
    return loss;
  };

  // Batches of the dataset are global: every replica gets its part of each.
  const auto data =
      tf::data::Dataset::from_tensor_slices({train.x, train.y}).shuffle(6400).batch(64).prefetch();
  for (int epoch = 1; epoch <= 4; ++epoch) {
    double total = 0;
    int steps = 0;
    for (const auto& batch : strategy.distribute_dataset(data)) {
      total += strategy.reduce(tf::distribute::ReduceOp::SUM, strategy.run(step, batch)).item<float>();
      ++steps;
    }
    std::printf("epoch %d: loss %.4f\n", epoch, total / steps);
  }

  const tf::Tensor right = tf::argmax(model(images(test.x))) == tf::cast(test.y, tf::int64);
  const float accuracy = tf::reduce_mean(tf::cast(right, tf::float32)).item<float>();
  std::printf("%d replicas, test accuracy %.3f\n", strategy.num_replicas_in_sync(), accuracy);
  return accuracy > 0.8F ? 0 : 1;
}
