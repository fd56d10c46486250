// A convolutional network from the zoo, with callbacks: training stops by itself, and the best weights are kept.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <filesystem>

namespace tf = lockstep;

int main() {
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 6000, .test_size = 1000});
  // Bytes (n, 28, 28) become floats (n, 28, 28, 1): the network takes channels.
  const auto images = [](const tf::Tensor& bytes) {
    return tf::expand_dims(tf::cast(bytes, tf::float32) / 255.0, -1);
  };

  tf::random::set_seed(1);
  const tf::keras::Model model = tf::keras::applications::lenet();
  model.compile({.optimizer = "adam",
                 .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});

  const std::string best = (std::filesystem::temp_directory_path() / "lenet_best.safetensors").string();
  model.fit(images(train.x), train.y,
            {.batch_size = 64,
             .epochs = 4,
             .callbacks = {tf::keras::callbacks::EarlyStopping({.monitor = "val_accuracy", .patience = 2}),
                           tf::keras::callbacks::ModelCheckpoint(best, {.monitor = "val_accuracy",
                                                                        .save_best_only = true,
                                                                        .save_weights_only = true})},
             .validation_data = {images(test.x), test.y}});

  model.load_weights(best);
  const tf::keras::Logs figures = model.evaluate(images(test.x), test.y, {.verbose = 0});
  std::printf("best weights: accuracy %.4f\n", figures["accuracy"]);
  std::filesystem::remove(best);
  return figures["accuracy"] > 0.9 ? 0 : 1;
}
