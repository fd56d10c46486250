// A dense network on handwritten digits: the shortest whole program. README.md shows it.
//
//   mnist_mlp          the embedded digits, which need no download
//   mnist_mlp FOLDER   MNIST, from FOLDER or the cache folder, else downloaded
#include <lockstep/lockstep.h>

namespace tf = lockstep;

int main(int argc, char** argv) {
  const auto [train, test] = argc > 1 ? tf::keras::datasets::mnist::load_data({.folder = argv[1]})
                                      : tf::keras::datasets::digits({.train_size = 10000, .test_size = 1000});
  tf::keras::Sequential model({
      tf::keras::layers::Rescaling(1.0 / 255, 0.0, {.input_shape = {28, 28}}),
      tf::keras::layers::Flatten(),
      tf::keras::layers::Dense(128, {.activation = "relu"}),
      tf::keras::layers::Dense(10),
  });
  model.compile({.optimizer = tf::keras::optimizers::Adam({.learning_rate = 1e-3}),
                 .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.summary();
  const tf::keras::History history = model.fit(train, {.epochs = 3, .validation_data = test});
  return history["val_accuracy"].back() > 0.85 ? 0 : 1;
}
