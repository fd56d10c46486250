// How a GPU takes its memory, and how much of it a training has used.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <stdexcept>

namespace tf = lockstep;

int main() {
  // Embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST.
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 960, .test_size = 0});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {-1, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);
  tf::keras::Sequential model({tf::keras::layers::Dense(64, {.activation = "relu", .input_shape = {784}}),
                               tf::keras::layers::Dense(10, {.activation = "softmax"})});
  model.compile({.optimizer = "adam", .loss = "categorical_crossentropy", .metrics = {"accuracy"}});

  // Memory is taken as it is needed. GPUs do so unless told otherwise, so that it may be said here, where they are in use.
  const auto gpus = tf::config::list_physical_devices("GPU");
  for (const auto& gpu : gpus) {
    try {
      tf::config::experimental::set_memory_growth(gpu, true);
      std::printf("Memory growth enabled for GPU: %s\n", gpu.name.c_str());
    } catch (const std::runtime_error& error) {
      std::printf("Cannot enable memory growth for GPU: %s, error: %s\n", gpu.name.c_str(), error.what());
    }
  }

  model.fit({x_train, y_train}, {.epochs = 10, .verbose = 2});

  std::printf("Memory usage (after training):\n");
  for (const auto& device : tf::config::list_logical_devices()) {
    const tf::MemoryInfo memory = tf::config::get_memory_info(device.name);
    std::printf("%s: %lld bytes, at the peak %lld\n", device.name.c_str(),
                static_cast<long long>(memory.current), static_cast<long long>(memory.peak));
  }
}

// Prints on a machine without a GPU:
//   Epoch 10/10
//   Memory usage (after training):
//   /CPU:0: 1 bytes, at the peak 1
