// A small network, small batches, and data in another type than the model's: right on all devices, and hardly faster on
// them than on one.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

tf::keras::Sequential create_model() {
  return tf::keras::Sequential({tf::keras::layers::Dense(10, {.activation = "relu", .input_shape = {10}}),
                                tf::keras::layers::Dense(1, {.activation = "sigmoid"})});
}

tf::data::Dataset create_dataset(int64_t size = 1000, int64_t batch_size = 32) {
  const tf::Tensor data = tf::random::uniform({size, 10}, {.dtype = tf::float64});
  const tf::Tensor labels = tf::random::uniform({size}, {.maxval = 2, .dtype = tf::int64});
  return tf::data::Dataset::from_tensor_slices({data, labels}).batch(batch_size);
}

int main() {
  tf::set_logical_cpus({.count = 4, .threads = 1});  // where there is a GPU, the strategy takes all GPUs
  const tf::distribute::MirroredStrategy strategy;

  tf::keras::Sequential model;
  tf::keras::optimizers::Optimizer optimizer;
  tf::keras::Loss loss_fn;
  {
    const auto scope = strategy.scope();
    model = create_model();
    optimizer = tf::keras::optimizers::Adam(0.01);
    loss_fn = tf::keras::losses::BinaryCrossentropy();
  }
  const auto train_step = [&](const tf::Tensor& inputs, const tf::Tensor& labels) {
    tf::GradientTape tape;
    const tf::Tensor predictions = model(inputs);
    const tf::Tensor loss = loss_fn(labels, predictions);
    const tf::TensorList gradients = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(gradients, model.trainable_variables());
  };

  const tf::data::Dataset dataset = create_dataset();
  const auto distributed_dataset = strategy.experimental_distribute_dataset(dataset);

  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const auto& batch : distributed_dataset) strategy.run(train_step, batch[0], batch[1]);
    std::printf("Epoch %d completed\n", epoch + 1);
  }

  for (const tf::Device* device : strategy.devices())
    std::printf("%s: %lld flops\n", device->name().c_str(), static_cast<long long>(device->counters().flops));
}

// Prints:
//   Epoch 10 completed
//   /CPU:0: 1 flops
//   /CPU:1: 1 flops
//   /CPU:2: 1 flops
//   /CPU:3: 1 flops
