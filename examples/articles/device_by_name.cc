// Model and training on one device, by its name. A device that is not there is an error, never another one in its place.
//   device_by_name [DEVICE]   /gpu:0 unless told otherwise
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main(int argc, char** argv) try {
  // Embedded digits; tf::keras::datasets::mnist::load_data() reads or downloads MNIST.
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 960, .test_size = 0});
  const tf::Tensor x_train = tf::cast(tf::reshape(train.x, {-1, 784}), tf::float32) / 255.0;
  const tf::Tensor y_train = tf::keras::utils::to_categorical(train.y, 10);

  {
    const auto scope = tf::device(argc > 1 ? argv[1] : "/gpu:0");
    tf::keras::Sequential model({tf::keras::layers::Dense(64, {.activation = "relu", .input_shape = {784}}),
                                 tf::keras::layers::Dense(10, {.activation = "softmax"})});
    model.compile({.optimizer = "adam", .loss = "categorical_crossentropy", .metrics = {"accuracy"}});
    model.fit({x_train, y_train}, {.epochs = 10, .verbose = 2});
  }

  std::printf("Num GPUs Available: %zu\n", tf::config::list_physical_devices("GPU").size());
} catch (const tf::Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}

// Prints on a machine without a GPU, and ends with status 1:
//   device_mismatch: there is no device "/GPU:0"; there are: /CPU:0; config::set_soft_device_placement(true) lets its ops
//     run on one that there is [device_by_name.cc:16]
//
// Prints on a machine without a GPU, given /cpu:0:
//   Epoch 10/10
//   Num GPUs Available: 0
