// The questions that are put to NVIDIA's libraries. They run in a child process of discover().
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device/nvidia_driver.h"

namespace lockstep::nvidia {

// Called before a step that may hang, with its name.
using Announce = std::function<void(std::string_view step)>;

// NVML: driver version and all GPUs in the order of their bus ids, CUDA_VISIBLE_DEVICES or not.
void ask_nvml(const Search& search, const Announce& announce, Machine& machine);

// The CUDA driver: its version, and GPUs as the environment shows them. Those that NVML has told of are
// completed, the others are added; the order becomes CUDA's.
void ask_cuda(const Search& search, const Announce& announce, Machine& machine);

// The UUIDs that CUDA shows with the environment as it is; none where it could not be asked.
std::optional<std::vector<std::string>> ask_visible(const Search& search, const Announce& announce);

// Runtime, cuBLASLt, NVRTC, cuDNN and NCCL.
void ask_libraries(const Search& search, const Announce& announce, Machine& machine);

}  // namespace lockstep::nvidia
