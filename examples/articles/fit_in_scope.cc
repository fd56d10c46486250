// Model, compile() and fit() in the scope of the strategy: every step runs on all devices.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() {
  tf::set_logical_cpus({.count = 4, .threads = 1});  // where there is a GPU, the strategy takes all GPUs
  const tf::distribute::MirroredStrategy strategy;

  const auto scope = strategy.scope();
  tf::keras::Sequential model({tf::keras::layers::Dense(128, {.activation = "relu", .input_shape = {784}}),
                               tf::keras::layers::Dense(10)});
  model.compile({.optimizer = "adam",
                 .loss = tf::keras::losses::CategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});

  // Embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST.
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 960, .test_size = 320});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {960, 784}), tf::float32) / 255.0;
  const tf::Tensor x_test = tf::cast(tf::reshape(test.x, {320, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);
  const tf::Tensor y_test = tf::keras::utils::to_categorical(test.y, 10);

  model.fit({x_train, y_train}, {.batch_size = 32, .epochs = 10, .verbose = 2});

  std::printf("test accuracy %.3f\n", model.evaluate({x_test, y_test}, {.verbose = 0})["accuracy"]);
  for (const tf::Device* device : strategy.devices())
    std::printf("%s: %lld flops\n", device->name().c_str(), static_cast<long long>(device->counters().flops));
}

// Prints:
//   Epoch 10/10
//   test accuracy 0.858
//   /CPU:0: 1 flops
//   /CPU:1: 1 flops
//   /CPU:2: 1 flops
//   /CPU:3: 1 flops
