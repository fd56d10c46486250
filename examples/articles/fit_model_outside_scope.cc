// A strategy is made and never used: the model is made and compiled beside its scope.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() try {
  tf::set_logical_cpus({.count = 4, .threads = 1});  // where there is a GPU, the strategy takes all GPUs
  const tf::distribute::MirroredStrategy strategy;

  tf::keras::Sequential model({tf::keras::layers::Dense(128, {.activation = "relu", .input_shape = {784}}),
                               tf::keras::layers::Dense(10)});  // wrong: no scope
  model.compile({.optimizer = "adam",
                 .loss = tf::keras::losses::CategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});

  // Embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST.
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 960, .test_size = 320});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {960, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);

  model.fit({x_train, y_train}, {.batch_size = 32, .epochs = 10});
} catch (const tf::Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}

// Prints, and ends with status 1:
//   failed_precondition: fit: would use one device, while MirroredStrategy on /CPU:0, /CPU:1, /CPU:2, /CPU:3 is there and
//     nothing that can be trained was made in its scope; make and compile the model inside
//     auto scope = strategy.scope();  or hand it over with strategy.adopt(model) [fit_model_outside_scope.cc:23]
