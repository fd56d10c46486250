// A traced function compiled to run as replicas.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile/planning/spread.h"
#include "execute/step.h"
#include "graph/emit.h"
#include "lockstep/execute/function.h"

namespace lockstep::execute {

struct ReplicatedProgram {
  std::unique_ptr<StepExecutable> executable;
  ProgramStatistics statistics;
  std::vector<Slice> slices;             // of each replica of this process
  std::vector<compile::Spread> spreads;  // of each result
};

// Adds what the calls of one part of a plan cost, `times` times.
void add_statistics(ProgramStatistics& statistics, const Plan& plan, Part part, int64_t times);

// The function's trace for arguments of these specs in a replica.
using ReplicaTracer = std::function<Graph(const SpecList& specs, const ReplicaTrace& replica)>;

struct ReplicatedProgramOptions {
  std::string name;  // of the function, for messages
  // Results that differ between replicas and are not one row per example come out as one block per replica.
  bool stacks_outputs = false;
};

// The examples that each worker has in a step with these arguments, one number where there is one process: as
// `told`, or, where that is empty, as the workers tell each other.
std::vector<int64_t> rows_of_step(const SpecList& signature, const std::vector<bool>& split,
                                  const ReplicaOptions& replicas, std::span<const int64_t> told,
                                  const std::string& name, std::source_location where);

// What the replica of the first slice that has examples is traced with.
struct ReplicaSlices {
  SpecList specs;
  ReplicaTrace replica;
};
ReplicaSlices first_slice(const SpecList& signature, const std::vector<bool>& split,
                          const ReplicaOptions& replicas, const std::vector<int64_t>& rows,
                          const std::string& name, std::source_location where);

// `split[i]`: argument i is cut along its first dimension; they must agree in it. `rows`: as rows_of_step()
// gave them. Traces the function once for every size of slice that this process has, and for the first of
// all. Workers compile the same program: where one of them does not, each throws Error(failed_precondition)
// that says in what it differs. A single replica, which has nobody to sum with, is compiled as a program that
// is not replicated, once it is known to be right on several.
ReplicatedProgram compile_replicated(const SpecList& signature, const std::vector<bool>& split,
                                     const ReplicaOptions& replicas, const std::vector<int64_t>& rows,
                                     const ReplicaTracer& trace, const ReplicatedProgramOptions& options,
                                     std::source_location where);

}  // namespace lockstep::execute
