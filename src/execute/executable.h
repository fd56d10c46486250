// A compiled program with its memory and prepared kernels, on one device or on several.
//
// Replicas are the executor's own idea: the program is planned once for every size of slice that
// occurs, and each replica has its own memory and kernels. A device runs its replicas one after the
// other with all its threads, or (reproducible) as many at once as it has threads, each on one
// thread. One device and one replica is the plain case and costs nothing extra.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compile/planning/plan.h"
#include "lockstep/execute/function.h"
#include "lockstep/observe/step_clock.h"

namespace lockstep::compile {

// Consecutive examples of the global batch.
struct Slice {
  int64_t begin = 0;
  int64_t size = 0;
};

// The replicas' slices: consecutive, ceil(batch / replicas) examples each, the last ones smaller or empty.
std::vector<Slice> slice_batch(int64_t batch, int replicas);
// The same with slices in these proportions.
std::vector<Slice> slice_batch(int64_t batch, const std::vector<double>& weights);

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
  // Replicas [first, last) of device d.
  std::pair<int, int> replicas_of(int device) const;
};

struct MemoryFigures {
  size_t arena = 0;      // bytes, all devices and replicas
  size_t peak = 0;       // most bytes alive at once, by the schedule
  size_t unplanned = 0;  // all buffers, each with memory of its own
};

// A program that can be run, in one place or in several.
class Runnable {
 public:
  virtual ~Runnable() = default;
  virtual void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) = 0;
  // See FunctionCore::call.
  virtual bool run_rows(const FunctionCore::RowRuns& /*runs*/, std::span<Tensor> /*outputs*/,
                        observe::StepClock* /*clock*/) {
    return false;
  }
  virtual MemoryFigures memory() const = 0;
  virtual const Plan& plan() const = 0;
  size_t num_outputs() const { return plan().outputs.size(); }
};

class Executable final : public Runnable {
 public:
  // plans[i] is the program for a slice of plan_slices[i] examples; every size that occurs must be
  // there, but for empty slices. Not replicated: one plan.
  Executable(std::vector<Plan> plans, std::vector<int64_t> plan_slices, ReplicaLayout layout);
  ~Executable() override;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Inputs as planned (dtype and shape of the whole batch). After the first runs it does not
  // allocate, as long as the caller lets go of earlier outputs. One run at a time. `clock`: may be
  // null, else has a replica for each device.
  void run(std::span<const Tensor> inputs, std::span<Tensor> outputs, observe::StepClock* clock) override;
  bool run_rows(const FunctionCore::RowRuns& runs, std::span<Tensor> outputs,
                observe::StepClock* clock) override;

  MemoryFigures memory() const override;
  const Plan& plan() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::compile
