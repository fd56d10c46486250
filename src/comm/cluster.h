// Who is in a run of several processes, and which of them this one is: what the launcher that started it
// says.
//
// Read in this order: TF_CONFIG, as TensorFlow reads it; mpirun; srun; RANK and WORLD_SIZE (torchrun,
// Kubernetes operators); `lockstep launch`. The first that is set decides, also where it is wrong: a mistake
// in it is an error, never a reason to train alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

enum class ClusterSource : uint8_t { none, tf_config, mpi, slurm, torchrun, lockstep_launch };

struct Cluster {
  ClusterSource source = ClusterSource::none;
  int rank = 0;
  int size = 1;
  // A task of TF_CONFIG that evaluates beside the run: it is no rank, and joins nobody.
  bool evaluator = false;
  // host:port at which rank 0 is met. Empty where there is one rank, and under MPI, which brings its ranks
  // together itself.
  std::string address = {};
  // The address of each rank, where the launcher lists them (TF_CONFIG).
  std::vector<std::string> addresses = {};

  // What was read and where, for people: "worker 1 of 4, from TF_CONFIG (task worker 1)". Of a process that
  // is alone: why, and how to start more.
  std::string description = {};
};

// The value of an environment variable; nothing where it is not set or is empty.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Throws Error(invalid_argument) that names the variable, its value, what is wrong with it and the fix.
Cluster read_cluster(const EnvironmentLookup& environment,
                     std::source_location where = std::source_location::current());
// Reads this process' environment as it is now.
Cluster read_cluster(std::source_location where = std::source_location::current());

// The names in a host list as Slurm writes it: "gpu[01-03,7],login" is gpu01, gpu02, gpu03, gpu7, login.
// Throws Error(invalid_argument) where it is none.
std::vector<std::string> expand_host_list(std::string_view list,
                                          std::source_location where = std::source_location::current());

}  // namespace lockstep::comm
