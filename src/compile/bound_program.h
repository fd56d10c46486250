// The launches of one plan in one place: kernels prepared, pointers filled in.
#pragma once

#include <memory>
#include <vector>

#include "compile/plan.h"
#include "lockstep/observe/span.h"

namespace lockstep::compile {

// The memory a plan's operands come from. Pointers that change between runs are read at bind().
struct Memory {
  char* device_arena = nullptr;
  char* replica_arena = nullptr;
  std::vector<void*> parameters;
  std::vector<void*> variables;
  std::vector<void*> captures;
  std::vector<void*> constants;
  std::vector<void*> outputs;
  int64_t example_offset = 0;

  void* at(const Operand& operand);
};

class BoundProgram {
 public:
  // The steps of `plan`, which must outlive this, that run once per replica, or those that run once per
  // device.
  BoundProgram(const Plan& plan, bool per_replica, const PlanOptions& options, Memory& memory, int device,
               int replica);

  // Fills in the pointers that may have changed since the last run.
  void bind(Memory& memory);
  // Fills in all others: for memory whose arenas have moved.
  void rebase(Memory& memory);
  // Launches the steps of one phase. `team`: threads of the calling thread's team.
  void run(int phase) const;

  int64_t kernels() const { return kernels_; }
  int64_t flops() const { return flops_; }

 private:
  struct Launch {
    std::unique_ptr<Kernel> kernel;
    size_t inputs;  // index of the first pointer
    size_t outputs;
    int64_t workspace_offset;  // -1: none
    void* workspace;
    observe::Name name;
    int64_t flops;
    int64_t bytes;
    const Step* step;
  };
  struct Patch {
    size_t pointer;
    Operand operand;
  };

  void launch(const Launch& launch) const;

  std::vector<Launch> launches_;
  std::vector<void*> pointers_;
  std::vector<Patch> patches_;
  std::vector<Patch> fixed_;
  std::vector<size_t> phase_begin_;  // launches of phase p: [phase_begin_[p], phase_begin_[p + 1])
  int64_t kernels_ = 0;
  int64_t flops_ = 0;
  bool per_replica_;
  bool checked_;  // results are looked at after every launch
  int device_;
  int replica_;
};

}  // namespace lockstep::compile
