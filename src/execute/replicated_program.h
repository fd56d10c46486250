// A traced function compiled to run as replicas.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "execute/step.h"
#include "graph/emit.h"
#include "lockstep/execute/function.h"

namespace lockstep::execute {

struct ReplicatedProgram {
  std::unique_ptr<StepExecutable> executable;
  ProgramStatistics statistics;
  std::vector<Slice> slices;  // of each replica
};

// Adds what the steps of one part of a plan cost, so many times.
void add_statistics(ProgramStatistics& statistics, const Plan& plan, Part part, int64_t times);

// The function's trace for arguments of these specs in a replica.
using ReplicaTracer = std::function<Graph(const SpecList& specs, const ReplicaTrace& replica)>;

struct ReplicatedProgramOptions {
  std::string name;  // of the function, for messages
  // Results that differ between replicas and are not one row per example come out as one block per replica.
  bool stacks_outputs = false;
};

// What the replica of the first slice, the largest one, is traced with.
struct ReplicaSlices {
  SpecList specs;
  ReplicaTrace replica;
};
ReplicaSlices first_slice(const SpecList& signature, const std::vector<bool>& split,
                          const ReplicaOptions& replicas, const std::string& name,
                          std::source_location where);

// `split[i]`: argument i is cut along its first dimension; they must agree in it. Traces the function once for
// every size of slice.
ReplicatedProgram compile_replicated(const SpecList& signature, const std::vector<bool>& split,
                                     const ReplicaOptions& replicas, const ReplicaTracer& trace,
                                     const ReplicatedProgramOptions& options, std::source_location where);

}  // namespace lockstep::execute
