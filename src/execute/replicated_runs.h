// Functions that are traced anew with every call, and compiled only where the trace is a new one.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "execute/replicated_program.h"

namespace lockstep::execute {

class ReplicatedRuns {
 public:
  using Body = std::function<TensorList(std::span<const Tensor>)>;

  explicit ReplicatedRuns(ReplicaOptions replicas);
  ~ReplicatedRuns();

  // What came of one call. A result that is the same on all replicas stands as it is; else as rows of the
  // whole batch, or as one block per replica.
  using Spread = compile::Spread;
  struct Result {
    TensorList outputs;
    std::vector<Spread> spreads;
    std::vector<Slice> slices;  // of each replica of this process
  };

  // `split[i]`: input i is cut along its first dimension; `worker_rows` as for FunctionCore::call(). Tensors
  // from outside that the body uses are inputs of the program: they may differ from call to call. `check`
  // sees the variables of a program before it first runs.
  Result run(const std::string& name, const Body& body, std::span<const Tensor> inputs,
             const std::vector<bool>& split, std::span<const int64_t> worker_rows, observe::StepClock* clock,
             const std::function<void(const std::vector<Variable>&)>& check, std::source_location where);

  int compiled() const { return compiled_; }

 private:
  struct CompiledSignature;
  struct Traced {
    Graph graph;
    TensorList captured_inputs;
  };
  static Traced trace(const std::string& name, const Body& body, const SpecList& specs,
                      const ReplicaTrace& replica, size_t inputs, std::source_location where);

  ReplicaOptions replicas_;
  std::vector<std::unique_ptr<CompiledSignature>> signatures_;  // the one used last comes first
  int compiled_ = 0;
};

}  // namespace lockstep::execute
