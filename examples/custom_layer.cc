// A layer of one's own: weights, a call, and a configuration, so that models with it can be saved and read.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

// x + gate(x) * dense(x): a highway layer.
class Highway final : public tf::keras::LayerBase {
 public:
  explicit Highway(tf::keras::LayerBaseOptions options = {}) : LayerBase("Highway", std::move(options)) {}

  // Called once, before the first call, with the input's shape; the batch is -1.
  void build(const tf::Shape& input) override {
    const int64_t width = input[-1];
    kernel_ = add_weight("kernel", {width, width});
    bias_ = add_weight("bias", {width}, {.initializer = "zeros"});
    gate_kernel_ = add_weight("gate_kernel", {width, width});
    // Closed at first: the layer starts near the identity.
    gate_bias_ = add_weight("gate_bias", {width}, {.initializer = tf::keras::initializers::Constant(-2)});
  }

  tf::Tensor call(const tf::Tensor& x, const tf::keras::CallContext&) override {
    const tf::Tensor gate = tf::sigmoid(tf::matmul(x, gate_kernel_) + gate_bias_);
    return x + gate * tf::relu(tf::matmul(x, kernel_) + bias_);
  }

 private:
  tf::Variable kernel_, bias_, gate_kernel_, gate_bias_;
};

int main() {
  tf::keras::register_layer("Highway", [](const tf::Json& config) {
    return tf::keras::make_layer<Highway>(tf::keras::LayerBaseOptions{.name = config.at("name").as_string()});
  });

  tf::random::set_seed(1);
  const tf::keras::KerasTensor input = tf::keras::Input({28, 28});
  tf::keras::KerasTensor x = tf::keras::layers::Flatten()(tf::keras::layers::Rescaling(1.0 / 255)(input));
  x = tf::keras::layers::Dense(48, {.activation = "relu"})(x);
  for (int i = 0; i < 3; ++i) x = tf::keras::make_layer<Highway>()(x);
  const tf::keras::Model model(input, tf::keras::layers::Dense(10)(x));
  model.summary();

  model.compile({.optimizer = "adam",
                 .loss = tf::keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 6000, .test_size = 500});
  model.fit(train, {.epochs = 3, .validation_data = test});

  // Written and read back, it gives the same results.
  const tf::keras::Model copy = tf::keras::Model::from_json(model.to_json());
  copy.set_weights(model.get_weights());
  const tf::Tensor some = tf::cast(tf::slice(test.x, {0, 0, 0}, {4, -1, -1}), tf::float32);
  const bool same = copy(some).to_vector<float>() == model(some).to_vector<float>();
  std::printf("the copy gives %s results\n", same ? "the same" : "OTHER");
  return same ? 0 : 1;
}
