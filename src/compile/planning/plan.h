// What the compiler makes of a graph: kernel calls in order, and where each of their operands lives.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/planning/kernel_call.h"
#include "compile/planning/placement.h"
#include "device/configuration.h"
#include "graph/graph.h"
#include "graph/numerics.h"

namespace lockstep::compile {

class KernelPool;

// A sum over replicas: input in every replica (or the same in all), result in the device arena.
struct Collective {
  int64_t sequence = 0;
  TensorSpec spec;
  Operand input;
  Operand result;
  std::optional<Operand> condition;  // a boolean, the same on all devices: whether to sum at all
  int phase = 0;                     // runs before the calls of this phase
  // Calls after which the input is there; as soon as all replicas are so far the sum may be made.
  int ready = 0;
  std::string name = {};     // for people, where somebody is to be told of it
  bool is_gradient = false;  // of a trainable variable; known where several workers take part
};

struct PlannedOutput {
  TensorSpec spec;
  bool per_replica = false;  // each replica writes its rows
  bool stacked = false;      // each replica writes a block of this spec
  int device = 0;            // of a program that is split over several: where it is written
};

struct ArenaSize {
  size_t bytes = 0;
  size_t peak = 0;       // most bytes alive at once
  size_t unplanned = 0;  // all buffers, each with memory of its own
};

// What a plan goes by beside its options, as the process has it set when the plan is made. Whoever keeps
// plans for calls to come compares it.
struct PlanSettings {
  bool checks_numerics = numerics_checked();  // every launch's results are to be looked at
  KernelSettings kernels;
  bool operator==(const PlanSettings&) const = default;
};

struct Plan {
  // The devices of a program that is split over several; empty: it runs as a whole on whatever device it is
  // bound to.
  std::vector<Device*> devices;
  // In the order of execution: by phase, within it first those that run once per device.
  std::vector<KernelCall> calls;
  std::vector<Collective> collectives;
  int phases = 1;

  std::vector<TensorSpec> parameters;
  std::vector<Variable> variables;
  std::vector<bool> variable_updated;
  TensorList captured_inputs;
  std::vector<std::pair<TensorSpec, double>> constants;  // memory full of one value
  std::vector<PlannedOutput> outputs;

  PlanSettings settings;

  std::vector<ArenaSize> device_arenas = {{}};  // one; of a program that is split: one for each device
  ArenaSize replica_arena;

  // With what planning has prepared. Never null in a plan that make_plan() made.
  std::shared_ptr<KernelPool> kernels;

  std::string to_string() const;
};

struct PlanOptions {
  DeviceKind kind = DeviceKind::cpu;
  // Whose kernels are prepared; null: they may run on any device of the kind.
  Device* device = nullptr;
  std::vector<bool> split_parameters;  // empty: the program runs as one replica
  int64_t local_batch = -1;            // examples of a replica's slice
  int device_threads = 1;              // of calls that run once per device
  int replica_threads = 1;
  bool reproducible = false;    // no bit may depend on the number of threads
  bool stacks_outputs = false;  // else a result of a replica must be one row per example
  // More than one: nodes run on the devices they name, with their kinds and threads, and values that cross
  // are copied.
  std::vector<Device*> devices = {};

  // For a program that runs with this number of threads on this device, or on any of its kind where it is
  // null.
  static PlanOptions on(DeviceKind kind, Device* device, int threads) {
    PlanOptions options;
    options.kind = kind;
    options.device = device;
    options.device_threads = options.replica_threads = threads;
    return options;
  }

  // Whether one program names several devices, which tf::device() says for each node.
  bool split_over_devices() const { return !devices.empty(); }
  // The kind of device on which a call at `place` runs; the device where it is named, else null.
  DeviceKind kind_at(NodePlace place) const;
  Device* device_at(NodePlace place) const;
  // Threads with which the call's kernel is prepared.
  int threads_for(const KernelCall& call) const;
};

// Whether kernels that are prepared for the one serve the other: a CPU's are the same for every device of as
// many threads, a GPU's belong to their device.
bool same_kernels(const PlanOptions& a, const PlanOptions& b);

Plan make_plan(Graph graph, const PlanOptions& options);

// The part of a replica's program that others depend on: its sums and its own outputs. `whole` is
// the plan of the same program that also updates the variables and writes the common outputs.
Graph feeding_part(Graph graph, const Plan& whole, const std::vector<bool>& split_parameters);

}  // namespace lockstep::compile
