// What one model learnt serves another: weights go through a file, the layers that know already are frozen, and only
// a new head is trained.
#include <lockstep/lockstep.h>

#include <cstdio>
#include <filesystem>

namespace tf = lockstep;
namespace keras = lockstep::keras;

// The first layers of both models; names fix how their weights are found in files.
keras::KerasTensor features(const keras::KerasTensor& images) {
  keras::KerasTensor x = keras::layers::Rescaling(1.0 / 255, 0.0, {.name = "scale"})(images);
  x = keras::layers::Flatten({.name = "flatten"})(x);
  x = keras::layers::Dense(64, {.activation = "relu", .name = "features_1"})(x);
  return keras::layers::Dense(32, {.activation = "relu", .name = "features_2"})(x);
}

int main() {
  tf::random::set_seed(1);
  const auto [train, test] = keras::datasets::digits({.train_size = 6000, .test_size = 1000});
  const keras::Loss loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true});

  // A model that tells ten digits apart.
  const keras::KerasTensor images = keras::Input({28, 28});
  const keras::Model teacher_features(images, features(images), {.name = "features"});
  const keras::Model teacher(images, keras::layers::Dense(10, {.name = "digit"})(teacher_features(images)));
  teacher.compile({.optimizer = "adam", .loss = loss, .metrics = {"accuracy"}});
  teacher.fit(train, {.batch_size = 64, .epochs = 3, .verbose = 2});
  const std::string path = (std::filesystem::temp_directory_path() / "features.safetensors").string();
  teacher_features.save_weights(path);

  // Another that tells odd from even, made of the same features: they are read from the file and stay as they are.
  const keras::KerasTensor more_images = keras::Input({28, 28});
  const keras::Model student_features(more_images, features(more_images), {.name = "features"});
  student_features.load_weights(path);
  student_features.set_trainable(false);
  const keras::Model student(more_images,
                             keras::layers::Dense(2, {.name = "odd"})(student_features(more_images)));
  student.compile(
      {.optimizer = keras::optimizers::Adam({.learning_rate = 1e-2}), .loss = loss, .metrics = {"accuracy"}});
  const auto odd = [](const tf::Tensor& digits) {
    return tf::floormod(tf::cast(digits, tf::DType::int32), 2);
  };
  student.fit(train.x, odd(train.y), {.batch_size = 64, .epochs = 2, .verbose = 2});
  const double accuracy = *student.evaluate(test.x, odd(test.y), {.verbose = 0}).find("accuracy");
  std::printf("%zu of %zu weights trained, odd or even: accuracy %.4f\n", student.trainable_weights().size(),
              student.weights().size(), accuracy);

  const bool frozen = student_features.get_weights()[0].to_vector<float>() ==
                      teacher_features.get_weights()[0].to_vector<float>();
  std::printf("the features are %s\n", frozen ? "those of the first model" : "CHANGED");
  std::filesystem::remove(path);
  return frozen && accuracy > 0.85 ? 0 : 1;
}
