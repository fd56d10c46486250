// Which all-reduce serves the devices of a program, and why: for the executor, and for people.
#pragma once

#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/execute/function.h"

namespace lockstep::execute {

enum class AllReduceMethod : uint8_t {
  host_threads,         // CPUs: the devices' own threads
  tree_kernels,         // GPUs: a kernel on each sums from the memory of all
  copied_tree_kernels,  // the same, of copies: not every GPU can read the others' memory
  nccl,
  nccl_tree,  // GPUs of several workers, `reproducible`: kernels sum in the tree's order, NCCL moves the addends
  processes,  // CPUs of several workers: each sums its own, then an all-reduce between them
};

struct AllReduceChoice {
  AllReduceMethod method = AllReduceMethod::host_threads;
  std::string reason;
};

// As much of a device as the choice depends on.
struct AllReduceDevice {
  std::string name;
  bool queues_launches = true;  // its launches are asynchronous: it sums on a side stream, beside compute
  int physical = 0;
  bool reads_all = true;  // it can follow pointers into the memory of the others
};

// `missing`: why NCCL cannot be used, empty where it can; asked only where it matters, because that loads it.
// Throws Error(invalid_argument) or Error(unsupported) where NCCL is asked for and cannot be had.
AllReduceChoice choose_all_reduce(std::span<const AllReduceDevice> devices, bool reproducible,
                                  CrossDeviceOps asked, const std::function<std::string()>& missing,
                                  std::source_location where = std::source_location::current());
// `between_workers`: the devices are those of one worker of several.
AllReduceChoice choose_all_reduce(std::span<Device* const> devices, bool reproducible, CrossDeviceOps asked,
                                  bool between_workers = false,
                                  std::source_location where = std::source_location::current());

}  // namespace lockstep::execute
