// A strategy of all devices where the program sees only one of them: everything is in the scope, and there is nothing to
// share the work with.
#include <lockstep/lockstep.h>

#include <cstdio>

namespace tf = lockstep;

int main() {
  // Set here or by whoever started the program, it leaves one GPU of all: setenv("CUDA_VISIBLE_DEVICES", "1", 1);

  const tf::distribute::MirroredStrategy strategy;

  tf::keras::Sequential model;
  tf::keras::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = tf::keras::Sequential({tf::keras::layers::Dense(10, {.activation = "relu", .input_shape = {100}}),
                                   tf::keras::layers::Dense(1)});
    optimizer = tf::keras::optimizers::Adam();
  }
  std::printf("%s, replicas: %d\n", strategy.description().c_str(), strategy.num_replicas_in_sync());
}

// Prints on a machine without a GPU:
//   warning lockstep: MirroredStrategy has one device, /CPU:0: no NVIDIA driver (libcuda.so.1);
//     set_logical_cpus({.count = 2}) splits the CPU
//   MirroredStrategy on /CPU:0, replicas: 1
