// A pipeline that keeps the devices waiting: which of its stages does, and what mends it.
#include <lockstep/lockstep.h>

#include <chrono>
#include <iostream>
#include <thread>

namespace tf = lockstep;

int main() {
  tf::set_logical_cpus({.count = 4, .threads = 1});
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 640, .test_size = 0});

  // The pause stands for a file that is read or an image that is decoded.
  const auto load = [](const tf::Tensor& x, const tf::Tensor& y) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return tf::data::Element(tf::cast(x, tf::float32) / 255.0, y);
  };
  const auto examples = tf::data::Dataset::from_tensor_slices({train.x, train.y});
  const auto slow = examples.map(load).batch(64);
  std::cout << tf::data::to_text(tf::data::explain(slow));

  // Several examples are loaded at once, and batches are ready before a step asks for them.
  const auto ready =
      examples.map(load, {.num_parallel_calls = tf::data::AUTOTUNE}).batch(64).prefetch(tf::data::AUTOTUNE);
  std::cout << tf::data::to_text(tf::data::explain(ready));

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
  const tf::keras::History history = model.fit(ready, {.epochs = 2, .verbose = 2});
  return history["loss"].back() < history["loss"].front() ? 0 : 1;
}
