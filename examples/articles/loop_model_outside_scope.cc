// The loop stands in the scope of the strategy, but model and optimizer were made before it.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() try {
  tf::set_logical_cpus({.count = 4, .threads = 1});  // where there is a GPU, the strategy takes all GPUs
  const tf::keras::Sequential model(
      {tf::keras::layers::Dense(10, {.activation = "relu", .input_shape = {100}}),
       tf::keras::layers::Dense(1)});                    // wrong: no scope
  const auto optimizer = tf::keras::optimizers::Adam();  // wrong: no scope

  const tf::distribute::MirroredStrategy strategy;

  const auto scope = strategy.scope();

  const auto dist_dataset = strategy.experimental_distribute_dataset(
      tf::data::Dataset::from_tensor_slices(
          {tf::random::uniform({1000, 100}), tf::random::uniform({1000, 1})})
          .batch(32));

  const auto train_step = [&](const tf::Tensor& features, const tf::Tensor& labels) {
    tf::GradientTape tape;
    const tf::Tensor predictions = model(features);
    const tf::Tensor loss = tf::keras::losses::MeanSquaredError()(labels, predictions);
    const tf::TensorList gradients = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(gradients, model.trainable_variables());
  };

  for (int epoch = 0; epoch < 10; ++epoch)
    for (const auto& x : dist_dataset) strategy.run(train_step, x);
} catch (const tf::Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}

// Prints, and ends with status 1:
//   failed_precondition: run: variable "sequential/dense/kernel" made at
//     examples/articles/loop_model_outside_scope.cc:11 belongs to no strategy, not to MirroredStrategy on /CPU:0, /CPU:1,
//     /CPU:2, /CPU:3; make it (its layer or model) inside  auto scope = strategy.scope();  or hand it over with
//     strategy.adopt(model) [loop_model_outside_scope.cc:33]
