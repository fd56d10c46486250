// The networks that the benchmark trains and runs, one table for CPUs and GPUs: those of keras::applications,
// and others that users train. bench/peers/suite.py has the same table for other frameworks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/execute/function.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::bench {

enum class Task : uint8_t {
  train,    // forward and backward pass, update; the batch lies on the device
  predict,  // the forward pass alone
  host,     // train, with every batch from the host's memory
};

struct Exercise {
  Task task = Task::train;
  int64_t batch = 32;
  // "float32" (TF32 off), "tf32" or "mixed_bfloat16" (weights in float32).
  std::string policy = "float32";
  ReplicaOptions replicas = {};
  bool op_determinism = true;  // false: what kernels add up in any order they may
  bool recomputes = false;     // what the forward pass makes, in the backward pass (keras::RematScope)
};

// A compiled step of a network with its arguments, on the device of the scope that it was made in. It has run
// once.
class NetworkStep {
 public:
  // `results`: how many tensors the body gives.
  NetworkStep(FunctionCore::Body body, TensorList arguments, size_t results, const Exercise& exercise);

  void operator()() const;
  // So many steps as one launch, on consecutive rows of `arrays`; false where the program or its device
  // cannot.
  bool run_rows(std::span<const Tensor> arrays, int64_t rows, int64_t runs) const;
  ProgramStatistics statistics() const;
  std::string explain() const;  // the launches of the step, for people
  const TensorList& arguments() const { return arguments_; }

 private:
  std::shared_ptr<FunctionCore> core_;
  TensorList arguments_;
  size_t results_;
  Exercise exercise_;
};

struct Network {
  std::string name;
  std::function<NetworkStep(const Exercise&)> make;
  std::string item = "examples";  // what its rate counts
  int64_t items = 1;              // of these in one example
  std::vector<int64_t> gpu_batches = {32, 256};
  int64_t cpu_batch = 0;  // 0: too large for a CPU
  bool deep = false;      // what recomputing costs and saves is measured, too
  bool attends = false;  // in 16 bits it has faster kernels that add up in any order, which are measured, too
};

const std::vector<Network>& networks();
// Error(not_found) that names those there are.
const Network& network(std::string_view name, std::source_location where = std::source_location::current());

// What networks can be asked for: "float32", "tf32", "mixed_bfloat16".
const std::vector<std::string>& policies();

}  // namespace lockstep::bench
