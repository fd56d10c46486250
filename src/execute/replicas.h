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

struct ReplicaLayout {
  std::vector<Device*> devices;  // at least one
  int replicas = 1;              // at least as many as devices; devices take consecutive ones
  bool reproducible = false;
  bool central_updates = false;  // see ReplicaOptions
  CrossDeviceOps cross_device_ops = CrossDeviceOps::automatic;
  int64_t bucket_bytes = -1;  // see ReplicaOptions
  std::vector<Slice> slices;  // of each replica; empty: the program is not replicated
  std::vector<bool> split_parameters;

  bool replicated() const { return !slices.empty(); }
  bool splits(size_t parameter) const { return replicated() && split_parameters[parameter]; }
  int64_t batch() const { return slices.back().begin + slices.back().size; }
  // What device d runs, and the part of it that has examples: replicas without any are the last ones.
  ReplicaRange replicas_of(int d) const;
  ReplicaRange replicas_with_examples(int d) const;
  // Whether two of the devices are parts of one GPU.
  bool shares_gpu() const;
};

// How device d of the layout is planned for, and bound.
compile::PlanOptions plan_options(const ReplicaLayout& layout, int d);

}  // namespace lockstep::execute
