// Trains on all devices of the machine, from an input pipeline, and goes on where it was stopped.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <filesystem>

namespace tf = lockstep;

int main(int argc, char** argv) {
  const std::string folder =
      argc > 1 ? argv[1] : (std::filesystem::temp_directory_path() / "all_devices").string();
  tf::set_logical_cpus({.count = 2});
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 6400, .test_size = 1000});
  tf::random::set_seed(1);

  // Shuffled anew in every epoch; batches are ready before they are asked for.
  const auto images = [](const tf::Tensor& x, const tf::Tensor& y) {
    return tf::data::Element(tf::cast(x, tf::float32) / 255.0, y);
  };
  const auto data = tf::data::Dataset::from_tensor_slices({train.x, train.y})
                        .shuffle(10000)
                        .batch(64, {.drop_remainder = true})
                        .map(images, {.num_parallel_calls = tf::data::AUTOTUNE})
                        .prefetch();

  // What is made in the scope lives on every device, and every step runs on all of them.
  const tf::distribute::MirroredStrategy strategy;
  tf::keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = tf::keras::Sequential({tf::keras::layers::Flatten({.input_shape = {28, 28}}),
                                   tf::keras::layers::Dense(64, {.activation = "relu"}),
                                   tf::keras::layers::Dense(10)});
    model.compile({.optimizer = "adam",
                   .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
  }
  // Killed and started again, it goes on with the same bits.
  model.fit(data, {.epochs = 4, .callbacks = {tf::keras::callbacks::BackupAndRestore(folder)}});

  const auto figures = model.evaluate({tf::cast(test.x, tf::float32) / 255.0, test.y}, {.verbose = 0});
  const double accuracy = figures["accuracy"];
  std::printf("%d replicas, test accuracy %.3f\n", strategy.num_replicas_in_sync(), accuracy);
  return accuracy > 0.8 ? 0 : 1;
}
