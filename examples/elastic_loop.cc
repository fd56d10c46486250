// A training loop by hand that outlives its workers, and lets one that was started again join.
//
//   lockstep launch -n 4 --elastic --restarts 100 -- ./elastic_loop
#include <lockstep/lockstep.h>

#include <cstdio>
#include <vector>

namespace tf = lockstep;

int main() try {
  const tf::distribute::MultiWorkerMirroredStrategy strategy(
      {.reproducible = true, .report = false, .elastic = {.min_workers = 2}});
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 2048, .test_size = 512});
  tf::Variable weights, bias;
  std::vector<tf::Variable> variables;
  const auto scope = strategy.scope();
  weights = tf::Variable(tf::zeros({784, 10}), {.name = "weights"});
  bias = tf::Variable(tf::zeros({10}), {.name = "bias"});
  const auto optimizer = tf::keras::optimizers::Adam({.learning_rate = 0.01});
  optimizer.build({weights, bias});
  // All that a step uses: a worker that joins gets the values from the others.
  variables = optimizer.variables();
  variables.insert(variables.end(), {weights, bias});

  const auto logits = [&](const tf::Tensor& images) {
    return tf::matmul(tf::reshape(tf::cast(images, tf::float32), {-1, 784}) / 255.0, weights) + bias;
  };
  const auto loss = tf::keras::losses::SparseCategoricalCrossentropy(
      {.from_logits = true, .reduction = tf::keras::Reduction::none});
  const auto train_step = [&](const tf::Tensor& images, const tf::Tensor& labels) {
    tf::GradientTape tape;
    const tf::Tensor mean = tf::distribute::global_mean(loss(labels, logits(images)));
    optimizer.apply_gradients(tape.gradient(mean, std::vector<tf::Variable>{weights, bias}), {weights, bias});
  };
  const auto batches = strategy.distribute_dataset(
      tf::data::Dataset::from_tensor_slices({train.x, train.y}).batch(64).repeat(4));

  int64_t step = 0;
  for (auto batch = batches.begin(); batch != batches.end();) {
    // Lets workers in that wait; on one of those, waits until it is let in. Who has joined goes on from the others' step.
    const int64_t at = strategy.admit(step, variables);
    for (; step < at; ++step) ++batch;
    batch.again();
    int64_t done = step;
    try {
      strategy.run(train_step, *batch);
      ++done;
    } catch (const tf::errors::UnavailableError&) {
      done = strategy.recover(step, variables);
    }
    if (done > step) ++batch;
    step = done;
  }

  const tf::Tensor right = tf::equal(tf::argmax(logits(test.x), -1), tf::cast(test.y, tf::int64));
  const auto accuracy = tf::reduce_mean(tf::cast(right, tf::float32)).item<float>();
  if (strategy.is_chief()) std::printf("%d workers: accuracy %.3f\n", strategy.num_workers(), accuracy);
  return accuracy > 0.6F ? 0 : 1;
} catch (const tf::errors::UnavailableError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return tf::errors::kUnavailableStatus;
}
