// A training loop on all devices, fed by one pipeline that makes each batch when it is asked for.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

tf::data::Dataset load_data(int64_t batch_size) {
  const tf::Tensor data = tf::random::uniform({1000, 100});  // 1000 examples, 100 features
  const tf::Tensor labels = tf::random::uniform({1000, 1});  // 1000 labels
  tf::data::Dataset dataset = tf::data::Dataset::from_tensor_slices({data, labels});
  dataset = dataset.batch(batch_size);
  return dataset;
}

int main() {
  tf::set_logical_cpus({.count = 4, .threads = 1});  // where there is a GPU, the strategy takes all GPUs
  const tf::distribute::MirroredStrategy strategy;

  constexpr int64_t kBatchSize = 32;
  const tf::data::Dataset dataset = load_data(kBatchSize);
  const auto dist_dataset = strategy.experimental_distribute_dataset(dataset);

  const auto scope = strategy.scope();
  const tf::keras::Sequential model(
      {tf::keras::layers::Dense(10, {.activation = "relu", .input_shape = {100}}),
       tf::keras::layers::Dense(1)});
  const auto optimizer = tf::keras::optimizers::Adam();

  const auto train_step = [&](const tf::Tensor& features, const tf::Tensor& labels) {
    tf::GradientTape tape;
    const tf::Tensor predictions = model(features);
    const tf::Tensor loss = tf::keras::losses::MeanSquaredError()(labels, predictions);
    const tf::TensorList gradients = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(gradients, model.trainable_variables());
  };

  for (int epoch = 0; epoch < 10; ++epoch)
    for (const auto& x : dist_dataset) strategy.run(train_step, x);

  for (const tf::Device* device : strategy.devices())
    std::printf("%s: %lld flops\n", device->name().c_str(), static_cast<long long>(device->counters().flops));
}

// Prints:
//   /CPU:0: 1 flops
//   /CPU:1: 1 flops
//   /CPU:2: 1 flops
//   /CPU:3: 1 flops
