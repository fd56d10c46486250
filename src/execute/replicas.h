// Which replicas a device runs, and which examples of the batch each of them sees.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/planning/plan.h"
#include "lockstep/execute/function.h"

namespace lockstep::execute {

// Consecutive examples of the global batch.
struct Slice {
  int64_t begin = 0;
  int64_t size = 0;
};

// The replicas' slices: consecutive, ceil(batch / replicas) examples each, the last ones smaller or empty.
std::vector<Slice> slice_batch(int64_t batch, int replicas);
// The same with slices in these proportions.
std::vector<Slice> slice_batch(int64_t batch, const std::vector<double>& weights);

// Replicas [first, last) of all that take part in a step.
struct ReplicaRange {
  int first = 0;
  int last = 0;
  int size() const { return last - first; }
  bool contains(int replica) const { return replica >= first && replica < last; }
  bool operator==(const ReplicaRange&) const = default;
};

// The replicas of each worker, where `workers` of them have `devices` each: consecutive ones, as even as they
// can be.
std::vector<ReplicaRange> replicas_of_workers(int replicas, int workers, int devices);
// The examples of a global batch that each worker has, so that the replicas' slices are those that one
// process would cut.
std::vector<int64_t> rows_of_workers(int64_t batch, const std::vector<ReplicaRange>& workers);
// The replicas' slices where the workers have these rows: the same slices where it is such a division, else
// each worker's rows are cut for its own replicas.
std::vector<Slice> slice_rows(const std::vector<int64_t>& rows, const std::vector<ReplicaRange>& workers);

struct ReplicaLayout {
  std::vector<Device*> devices;      // of this process, at least one
  comm::Workers* workers = nullptr;  // null: this process has all replicas
  int worker = 0;                    // which of them this is
  int num_workers = 1;
  int replicas = 1;  // of all workers, at least as many as devices; devices take consecutive ones
  bool reproducible = false;
  bool central_updates = false;  // see ReplicaOptions
  CrossDeviceOps cross_device_ops = CrossDeviceOps::automatic;
  int64_t bucket_bytes = -1;    // see ReplicaOptions
  bool bf16_gradients = false;  // see ReplicaOptions
  bool weighted = false;        // slices differ because somebody said so
  std::vector<Slice> slices;    // of each replica; empty: the program is not replicated
  int64_t whole_batch = 0;  // examples of a program that is not, but runs as the one replica of a strategy
  std::vector<bool> split_parameters;

  bool replicated() const { return !slices.empty(); }
  bool splits(size_t parameter) const { return replicated() && split_parameters[parameter]; }
  int64_t batch() const { return slices.back().begin + slices.back().size; }
  // The replicas of this process, and its rows of the batch.
  ReplicaRange own_replicas() const;
  Slice own_rows() const;
  // Those of a worker that have examples.
  ReplicaRange with_examples(ReplicaRange range) const;
  // What device d runs, and the part of it that has examples: replicas without any are the last ones.
  ReplicaRange replicas_of(int d) const { return replicas_of(worker, d); }
  ReplicaRange replicas_of(int of_worker, int d) const;
  ReplicaRange replicas_with_examples(int d) const;
  // Whether two of the devices are parts of one GPU.
  bool shares_gpu() const;
};

// How device d of the layout is planned for, and bound.
compile::PlanOptions plan_options(const ReplicaLayout& layout, int d);

}  // namespace lockstep::execute
