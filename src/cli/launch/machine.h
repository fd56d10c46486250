// What a machine has to train on, and how its workers share it: each has CPUs and GPUs of its own, so that
// four workers do not each start a thread per core, or all compute on the first GPU.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep::launch {

struct Machine {
  std::vector<int> cpus;          // that a process may run on, those of one core beside each other
  std::vector<std::string> gpus;  // as CUDA_VISIBLE_DEVICES names them
  bool own_gpus = false;          // a scheduler has given them to this one task

  bool operator==(const Machine&) const = default;
};

// The CPUs of this process' affinity, and the GPUs of CUDA_VISIBLE_DEVICES or, where that is not set, of the
// driver's files in `devices`.
Machine this_machine(const std::string& devices = "/dev");

// One worker's part. Workers have equal parts: what cannot be divided is left to the system. Where there are
// more workers than CPUs or GPUs, several have the same one.
struct Share {
  std::vector<int> cpus;
  std::vector<std::string> gpus;

  bool operator==(const Share&) const = default;
};
Share share_of(const Machine& machine, int index, int workers);

// "each has 1 of 2 CPUs, 2 workers per CPU"; "each has 8 of 32 CPUs and 1 of 4 GPUs".
std::string describe_shares(const Machine& machine, int workers);

Json to_json(const Machine& machine);
Machine machine_from(const Json& json);
Json to_json(const Share& share);
Share share_from(const Json& json);

}  // namespace lockstep::launch
