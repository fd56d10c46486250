// As many processes as a launcher starts train one model together; a process that is alone trains on its own devices.
// docs/many_machines.md shows the launchers.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() {
  // Returns when all workers are there. Made first: from here on all of them draw the same random numbers.
  const tf::distribute::MultiWorkerMirroredStrategy strategy;
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 2048, .test_size = 512});
  tf::keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = tf::keras::Sequential({tf::keras::layers::Rescaling(1.0 / 255, 0.0, {.input_shape = {28, 28}}),
                                   tf::keras::layers::Flatten(),
                                   tf::keras::layers::Dense(64, {.activation = "relu"}),
                                   tf::keras::layers::Dense(10)});
    model.compile({.optimizer = "adam",
                   .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
  }
  // The batch is the global one: of four workers each has 16 of its 64 examples.
  const tf::keras::History history =
      model.fit(train, {.batch_size = 64, .epochs = 4, .verbose = 2, .validation_data = test});
  const double accuracy = history["val_accuracy"].back();
  if (strategy.is_chief()) std::printf("%d workers: accuracy %.3f\n", strategy.num_workers(), accuracy);
  return accuracy > 0.6 ? 0 : 1;
}
