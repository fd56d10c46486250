// A training that outlives its workers: any of them may be killed, and one that is started again joins the others.
//
//   lockstep launch -n 4 --elastic --restarts 100 -- ./elastic_workers
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() try {
  // With two workers left the run goes on; with `reproducible` to the same bits, whoever is lost.
  const tf::distribute::MultiWorkerMirroredStrategy strategy(
      {.reproducible = true, .elastic = {.min_workers = 2}});
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
  const tf::keras::History history =
      model.fit(train, {.batch_size = 64, .epochs = 4, .verbose = 2, .validation_data = test});
  const double accuracy = history["val_accuracy"].back();
  if (strategy.is_chief()) std::printf("%d workers: accuracy %.3f\n", strategy.num_workers(), accuracy);
  return accuracy > 0.6 ? 0 : 1;
} catch (const tf::errors::UnavailableError& error) {
  // Too many others are lost. Nothing is wrong here: a scheduler may start the program again.
  std::fprintf(stderr, "%s\n", error.what());
  return tf::errors::kUnavailableStatus;
}
