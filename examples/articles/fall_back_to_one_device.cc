// All devices where that works, one where it does not: what keeps a strategy from its devices is an exception.
//   fall_back_to_one_device [DEVICE...]   for example /gpu:0 /gpu:1; none: all
#include <lockstep/lockstep.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace tf = lockstep;

int main(int argc, char** argv) {
  setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);  // the GPUs to see
  tf::set_logical_cpus({.count = 4, .threads = 1});

  tf::distribute::Strategy strategy;
  try {
    strategy = tf::distribute::MirroredStrategy({argv + 1, argv + argc});
  } catch (const std::runtime_error& error) {
    std::printf("Error during MirroredStrategy initialization: %s\n", error.what());
    std::printf("Falling back to one device.\n");
    strategy = tf::distribute::OneDeviceStrategy(tf::test::is_gpu_available() ? "/gpu:0" : "/cpu:0");
  }

  const auto scope = strategy.scope();
  tf::keras::Sequential model({tf::keras::layers::Dense(128, {.activation = "relu", .input_shape = {784}}),
                               tf::keras::layers::Dense(10)});
  model.compile({.optimizer = "adam",
                 .loss = tf::keras::losses::CategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});

  // Embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST.
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 960, .test_size = 320});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {960, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);

  model.fit({x_train, y_train}, {.batch_size = 32, .epochs = 10, .verbose = 2});

  std::printf("%s\n", strategy.description().c_str());
  for (const tf::Device* device : strategy.devices())
    std::printf("%s: %lld flops\n", device->name().c_str(), static_cast<long long>(device->counters().flops));
}

// Prints on a machine without a GPU:
//   Epoch 10/10
//   MirroredStrategy on /CPU:0, /CPU:1, /CPU:2, /CPU:3
//   /CPU:0: 1 flops
//   /CPU:1: 1 flops
//   /CPU:2: 1 flops
//   /CPU:3: 1 flops
//
// Prints on a machine without a GPU, given /gpu:0 /gpu:1:
//   Error during MirroredStrategy initialization: device_mismatch: there is no device "/gpu:0"; there are: /CPU:0, /CPU:1,
//     /CPU:2, /CPU:3 [fall_back_to_one_device.cc:17]
//   Falling back to one device.
//   Epoch 10/10
//   OneDeviceStrategy on /CPU:0
//   /CPU:0: 1 flops
