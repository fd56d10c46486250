// What trains was made in the scope of the strategy: compile() and fit() may stand outside of it.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() {
  tf::set_logical_cpus({.count = 4, .threads = 1});  // where there is a GPU, the strategy takes all GPUs
  // 1. The strategy
  const tf::distribute::MirroredStrategy strategy;

  // 2. The model, in its scope
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

  // 3. How it is trained
  model.compile({.optimizer = optimizer, .loss = loss_fn, .metrics = {"accuracy"}});

  // 4. Data: embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 6400, .test_size = 0});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {-1, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);

  // 5. Training
  model.fit({x_train, y_train}, {.batch_size = 128, .epochs = 2, .verbose = 2});

  for (const tf::Device* device : strategy.devices())
    std::printf("%s: %lld flops\n", device->name().c_str(), static_cast<long long>(device->counters().flops));
}

// Prints:
//   Epoch 2/2
//   /CPU:0: 1 flops
//   /CPU:1: 1 flops
//   /CPU:2: 1 flops
//   /CPU:3: 1 flops
