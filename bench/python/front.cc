// The C++ side of bench/python/front.py: the same works, called the same way as workers.py is.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "lockstep/lockstep.h"

namespace tf = lockstep;

namespace {

constexpr int64_t kBatch = 32, kSteps = 64;

std::function<void(int)> fit() {
  tf::keras::Sequential model({tf::keras::layers::Dense(128, {.activation = "relu", .input_shape = {784}}),
                               tf::keras::layers::Dense(10)});
  model.compile(
      {.optimizer = "adam", .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const tf::Tensor x = tf::random::uniform({kBatch * kSteps, 784});
  const tf::Tensor y = tf::random::uniform({kBatch * kSteps}, {.maxval = 10, .dtype = tf::int32});
  return [=](int epochs) { model.fit({x, y}, {.batch_size = kBatch, .epochs = epochs, .verbose = 0}); };
}

std::function<void(int)> call() {
  auto add = tf::function([](const tf::Tensor& x, const tf::Tensor& y) { return x + y; });
  const tf::Tensor x = tf::constant({1.0F, 2.0F, 3.0F}), y = tf::constant({4.0F, 5.0F, 6.0F});
  return [=](int count) mutable {
    for (int i = 0; i < count; ++i) add(x, y);
  };
}

}  // namespace

int main() {
  if (const char* threads = std::getenv("OMP_NUM_THREADS"))
    tf::config::threading::set_intra_op_parallelism_threads(std::atoi(threads));
  std::map<std::string, std::function<void(int)>> works{{"call", call()}, {"fit", fit()}};
  for (const auto& [name, work] : works) std::cout << name << " ";
  std::cout << std::endl;  // NOLINT: whoever waits for this line reads it now
  std::string name;
  for (int count = 0; std::cin >> name >> count;) {
    const auto start = std::chrono::steady_clock::now();
    works.at(name)(count);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::cout << taken.count() / count << std::endl;  // NOLINT
  }
  return 0;
}
