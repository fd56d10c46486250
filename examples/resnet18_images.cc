// A residual network on images: learning-rate schedule, weight decay, logs for TensorBoard.
//
//   resnet18_images          a narrow one on the embedded digits, for a few seconds
//   resnet18_images cifar10  the full one on CIFAR-10 (read from the cache folder, else downloaded)
#include <lockstep/lockstep.h>

#include <cstdio>
#include <string>

namespace tf = lockstep;

int main(int argc, char** argv) {
  const bool cifar = argc > 1 && std::string(argv[1]) == "cifar10";
  const auto [train, test] = cifar ? tf::keras::datasets::cifar10::load_data()
                                   : tf::keras::datasets::digits({.train_size = 1920, .test_size = 320});
  const tf::Shape image = cifar ? tf::Shape{32, 32, 3} : tf::Shape{28, 28, 1};
  const auto images = [&](const tf::Tensor& bytes) {
    return tf::reshape(tf::cast(bytes, tf::float32) / 255.0, {-1, image[0], image[1], image[2]});
  };

  tf::random::set_seed(1);
  const tf::keras::Model model =
      tf::keras::applications::resnet18({.input_shape = image, .width = cifar ? 64 : 8});
  const int epochs = cifar ? 30 : 2;
  const int64_t batch = 64;
  const int64_t steps = epochs * (train.x.shape()[0] / batch);
  model.compile({.optimizer = tf::keras::optimizers::AdamW(
                     {.learning_rate = tf::keras::optimizers::schedules::CosineDecay(3e-3, steps),
                      .weight_decay = 1e-2}),
                 .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const tf::keras::History history =
      model.fit(images(train.x), train.y,
                {.batch_size = batch, .epochs = epochs, .validation_data = {images(test.x), test.y}});
  std::printf("%lld weights, loss %.3f -> %.3f\n", static_cast<long long>(model.count_params()),
              history["loss"].front(), history["loss"].back());
  return history["loss"].back() < history["loss"].front() ? 0 : 1;
}
