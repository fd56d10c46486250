// A training loop whose step is a tf::function, run on every replica with its slice of the batch.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <iostream>

namespace tf = lockstep;

int main() {
  tf::set_logical_cpus({.count = 4, .threads = 1});  // where there is a GPU, the strategy takes all GPUs
  const tf::distribute::MirroredStrategy strategy;

  tf::keras::Sequential model;
  tf::keras::optimizers::Optimizer optimizer;
  tf::keras::Loss loss_fn;
  {
    const auto scope = strategy.scope();
    model = tf::keras::Sequential({tf::keras::layers::Dense(10, {.activation = "relu", .input_shape = {784}}),
                                   tf::keras::layers::Dense(10)});

    optimizer = tf::keras::optimizers::Adam(0.01);
    loss_fn = tf::keras::losses::CategoricalCrossentropy({.from_logits = true});
  }

  // Embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST.
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 1280, .test_size = 0});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {-1, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);

  const auto dataset = tf::data::Dataset::from_tensor_slices({x_train, y_train}).batch(128);
  const auto distributed_dataset = strategy.experimental_distribute_dataset(dataset);

  const auto train_step = tf::function([&](const tf::Tensor& inputs, const tf::Tensor& labels) {
    tf::GradientTape tape;
    const tf::Tensor predictions = model(inputs);
    const tf::Tensor loss = loss_fn(labels, predictions);

    const tf::TensorList gradients = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(gradients, model.trainable_variables());
    return loss;
  });

  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& batch : distributed_dataset) {
      const tf::distribute::Distributed loss = strategy.run(train_step, batch[0], batch[1]);
      std::cout << "Epoch: " << epoch << ", Loss: " << loss << '\n';
    }

  for (const tf::Device* device : strategy.devices())
    std::printf("%s: %lld flops\n", device->name().c_str(), static_cast<long long>(device->counters().flops));
}

// Prints:
//   Epoch: 1, Loss: PerReplica:{
//   0: tf.Tensor(0.39, shape=(), dtype=float32),
//   /CPU:0: 1 flops
//   /CPU:1: 1 flops
//   /CPU:2: 1 flops
//   /CPU:3: 1 flops
