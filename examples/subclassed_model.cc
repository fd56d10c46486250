// A model with a call() of its own: layers are members, and C++ says how they are used.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

// Two towers look at an image, a wide one and a deep one, and a third layer joins what they see.
class WideAndDeep final : public tf::keras::ModelBase {
 public:
  explicit WideAndDeep(int64_t classes) : classes_(tf::keras::layers::Dense(classes)) {}

  // What call() calls belongs to the model: its weights are found, trained and saved with it.
  tf::Tensor call(const tf::Tensor& images, const tf::keras::CallContext& context) override {
    const tf::Tensor x = flatten_(tf::cast(images, tf::float32)) / 255.0;
    tf::Tensor deep = x;
    for (const tf::keras::Layer& layer : deep_) deep = layer(deep);
    return classes_(tf::concat({wide_(x), dropout_(deep, {.training = context.training})}, -1));
  }

 private:
  tf::keras::Layer flatten_ = tf::keras::layers::Flatten();
  tf::keras::Layer wide_ = tf::keras::layers::Dense(32);
  std::vector<tf::keras::Layer> deep_ = {tf::keras::layers::Dense(64, {.activation = "relu"}),
                                         tf::keras::layers::Dense(32, {.activation = "relu"})};
  tf::keras::Layer dropout_ = tf::keras::layers::Dropout(0.1);
  tf::keras::Layer classes_;
};

int main() {
  tf::random::set_seed(1);
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 6000, .test_size = 1000});

  const tf::keras::Model model = tf::keras::make_model<WideAndDeep>(10);
  model.compile({.optimizer = tf::keras::optimizers::Adam(1e-3),
                 .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = "accuracy"});
  model.fit(train, {.epochs = 6, .validation_data = test});
  model.summary();

  const tf::keras::Logs logs = model.evaluate(test, {.verbose = 0});
  std::printf("test accuracy %.3f\n", logs["accuracy"]);
  return logs["accuracy"] > 0.85 ? 0 : 1;
}
