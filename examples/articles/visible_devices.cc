// Which of the GPUs a program uses, said before the first of them is used, and where it then trains.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <stdexcept>

namespace tf = lockstep;

int main() {
  // All GPUs there are, and the one to use
  const auto gpus = tf::config::list_physical_devices("GPU");
  if (!gpus.empty()) {
    try {
      tf::config::set_visible_devices(gpus[0], "GPU");
      const auto logical_gpus = tf::config::list_logical_devices("GPU");
      std::printf("%zu Physical GPUs, %zu Logical GPUs\n", gpus.size(), logical_gpus.size());
    } catch (const std::runtime_error& error) {
      std::printf("%s\n", error.what());
    }
  }

  // Embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST.
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 960, .test_size = 0});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {-1, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);
  tf::keras::Sequential model({tf::keras::layers::Dense(64, {.activation = "relu", .input_shape = {784}}),
                               tf::keras::layers::Dense(10, {.activation = "softmax"})});
  model.compile({.optimizer = "adam", .loss = "categorical_crossentropy", .metrics = {"accuracy"}});
  model.fit({x_train, y_train}, {.epochs = 10, .verbose = 2});

  for (const tf::Device* device : tf::logical_devices())
    std::printf("%s: %lld flops\n", device->name().c_str(), static_cast<long long>(device->counters().flops));
}

// Prints on a machine without a GPU:
//   Epoch 10/10
//   /CPU:0: 1 flops
