// Trains a small network on the embedded digits as replicas on two logical devices, and shows that the
// weights have the same bits as on one.
//
//   cmake -S examples -B build/examples -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build/examples
#include <cstdio>

#include "lockstep/lockstep.h"

namespace tf = lockstep;

struct Network {
  tf::Variable w1{tf::random::uniform({784, 64}, {.minval = -0.08, .maxval = 0.08}), {.name = "w1"}};
  tf::Variable b1{tf::zeros({64}), {.name = "b1"}};
  tf::Variable w2{tf::random::uniform({64, 10}, {.minval = -0.28, .maxval = 0.28}), {.name = "w2"}};
  tf::Variable b2{tf::zeros({10}), {.name = "b2"}};

  std::vector<tf::Variable> variables() const { return {w1, b1, w2, b2}; }
  tf::Tensor logits(const tf::Tensor& x) const {
    return tf::matmul(tf::dropout(tf::relu(tf::matmul(x, w1) + b1), 0.1), w2) + b2;
  }
};

std::vector<float> train(const std::vector<tf::Device*>& devices, const tf::keras::datasets::Examples& data) {
  tf::set_random_seed(42);
  Network network;
  auto optimizer = tf::keras::optimizers::Adam();
  auto step = tf::function(
      [&](const tf::Tensor& images, const tf::Tensor& labels) {
        tf::GradientTape tape;
        const tf::Tensor x = tf::reshape(tf::cast(images, tf::float32) * (1.0 / 255), {-1, 784});
        const tf::Tensor losses =
            tf::nn::sparse_softmax_cross_entropy_with_logits(tf::cast(labels, tf::int32), network.logits(x));
        // This replica's share of the mean over the whole batch.
        const tf::Tensor loss =
            tf::reduce_sum(losses) * (1.0 / static_cast<double>(tf::global_batch_size(labels)));
        const tf::TensorList gradients = tape.gradient(loss, network.variables());
        optimizer.apply_gradients(gradients, network.variables());
        return tf::all_reduce_sum(loss);
      },
      {.name = "training step", .replicas = {.devices = devices, .reproducible = true}});
  for (int64_t batch = 0; batch < 50; ++batch) {
    const tf::Tensor loss =
        step(tf::slice(data.x, {batch * 100, 0, 0}, {100, -1, -1}), tf::slice(data.y, {batch * 100}, {100}));
    if (batch % 10 == 9)
      std::printf("%zu device%s, batch %2lld: loss %.4f\n", devices.size(), devices.size() == 1 ? "" : "s",
                  static_cast<long long>(batch + 1), loss.item<float>());
  }
  return network.w1.value().to_vector<float>();
}

int main() {
  tf::set_logical_cpus({.count = 2});
  const auto devices = tf::logical_devices();
  const auto data = tf::keras::datasets::digits({.train_size = 5000, .test_size = 0}).train;
  const std::vector<float> one = train({devices[0]}, data);
  const std::vector<float> two = train({devices[0], devices[1]}, data);
  std::printf("the weights of both runs are %s\n", one == two ? "the same, bit for bit" : "DIFFERENT");
  return one == two ? 0 : 1;
}
