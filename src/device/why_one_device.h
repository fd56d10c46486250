// Why a program that asks for all devices gets one, and why it computes on the CPU of a machine that has a
// GPU.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

class Configuration;

// What decides it.
struct DeviceFacts {
  int gpus = 0;                           // that CUDA shows
  int visible_gpus = 0;                   // those that set_visible_devices() leaves
  int gpus_of_machine = 0;                // whatever CUDA shows of them
  bool driver = false;                    // NVIDIA's is there
  std::string problem = {};               // why there is no GPU
  std::optional<std::string> shown = {};  // CUDA_VISIBLE_DEVICES
  bool cpus_chosen = false;               // the program has said how many logical CPUs there are
  int cores = 1;
};

DeviceFacts device_facts(const Configuration& configuration);

// "no NVIDIA driver (libcuda.so.1); set_logical_cpus({.count = 4}) splits the CPU". Empty where one device is
// all that could be expected: the machine's only GPU, or the number of logical CPUs that the program has set.
std::string why_one_device(const DeviceFacts& facts);

// "plugin cuda is not loaded: ...". Empty where the machine has no GPU, and where the program or the
// environment leaves it out.
std::string why_no_gpu(const DeviceFacts& facts);

// What this process computes on the CPU although it was to run on a GPU, or could, and why; empty: nothing.
// Asks the machine once.
std::string on_cpu_in_place_of_gpu();

}  // namespace lockstep
