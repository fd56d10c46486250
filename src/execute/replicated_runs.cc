#include "execute/replicated_runs.h"

#include <algorithm>

#include "comm/workers.h"
#include "execute/trace_function.h"
#include "graph/eager.h"
#include "graph/structure.h"
#include "lockstep/base/log.h"

namespace lockstep::execute {
namespace {

constexpr size_t kMostPrograms = 16;
constexpr int kManyPrograms = 8;  // so many of one function are worth a word

}  // namespace

struct ReplicatedRuns::CompiledSignature {
  SpecList signature;
  std::vector<bool> split;
  std::vector<int64_t> rows;  // of each worker
  int64_t generation = 0;     // of the workers
  compile::PlanSettings settings;
  Graph graph;  // as the first slice's replica traced it
  uint64_t hash = 0;
  ReplicatedProgram compiled;
  std::vector<Spread> spreads;
};

ReplicatedRuns::ReplicatedRuns(ReplicaOptions replicas) : replicas_(std::move(replicas)) {}
ReplicatedRuns::~ReplicatedRuns() = default;

ReplicatedRuns::Traced ReplicatedRuns::trace(const std::string& name, const Body& body, const SpecList& specs,
                                             const ReplicaTrace& replica, size_t inputs,
                                             std::source_location where) {
  Traced traced{trace_function(body, {.parameters = std::span(specs).first(inputs),
                                      .replica = replica,
                                      .note = "while tracing a function that runs as replicas: " + name,
                                      .made = where,
                                      .called = where}),
                {}};
  // Captured inputs become parameters, in the order in which they were met.
  for (Node& node : traced.graph.nodes) {
    if (node.op != &kCapturedInput) continue;
    traced.captured_inputs.push_back(node.attrs.as<CapturedInputAttrs>().tensor);
    node.op = &kParameter;
    node.attrs = ParameterAttrs{static_cast<int64_t>(inputs + traced.captured_inputs.size() - 1)};
  }
  return traced;
}

ReplicatedRuns::Result ReplicatedRuns::run(const std::string& name, const Body& body,
                                           std::span<const Tensor> inputs, const std::vector<bool>& split,
                                           std::span<const int64_t> worker_rows, observe::StepClock* clock,
                                           const std::function<void(const std::vector<Variable>&)>& check,
                                           std::source_location where) {
  SpecList signature;
  for (const Tensor& input : inputs) signature.push_back(input.spec());
  const std::vector<int64_t> rows = rows_of_step(signature, split, replicas_, worker_rows, name, where);
  const ReplicaSlices first = first_slice(signature, split, replicas_, rows, name, where);
  Traced traced = trace(name, body, first.specs, first.replica, inputs.size(), where);
  const uint64_t hash = hash_of_structure(traced.graph);
  const int64_t generation = replicas_.workers ? replicas_.workers->generation() : 0;
  // Workers that have formed anew have other ranks and shares.
  std::erase_if(signatures_, [&](const auto& known) { return known->generation != generation; });

  auto found = std::find_if(signatures_.begin(), signatures_.end(), [&](const auto& known) {
    return known->hash == hash && known->signature == signature && known->split == split &&
           known->rows == rows && known->settings == compile::PlanSettings{} &&
           same_structure(known->graph, traced.graph);
  });
  if (found == signatures_.end()) {
    const observe::CompileScope compiles(clock);
    auto made = std::make_unique<CompiledSignature>();
    made->signature = signature;
    made->split = split;
    made->rows = rows;
    made->generation = generation;
    made->graph = traced.graph;
    made->hash = hash;
    SpecList all = signature;
    std::vector<bool> cut = split;
    for (const Tensor& captured : traced.captured_inputs) {
      all.push_back(captured.spec());
      cut.push_back(false);
    }
    bool traced_before = true;
    made->compiled = compile_replicated(
        all, cut, replicas_, rows,
        [&](const SpecList& specs, const ReplicaTrace& replica) {
          if (std::exchange(traced_before, false)) return traced.graph;
          Traced other = trace(name, body, specs, replica, inputs.size(), where);
          require(other.captured_inputs.size() == traced.captured_inputs.size(),
                  ErrorCode::failed_precondition, where, name,
                  ": uses other tensors from outside in a slice of another size; pass them as arguments");
          return std::move(other.graph);
        },
        {.name = name, .stacks_outputs = true}, where);
    const Plan& plan = made->compiled.executable->plan();
    if (check) check(plan.variables);
    made->spreads = made->compiled.spreads;
    if (++compiled_ == kManyPrograms)
      log(LogLevel::warning, name, " was compiled ", compiled_,
          " times because its traces differ: numbers of C++ that change from call to call are part of a "
          "trace "
          "(pass them as tensors), and so are shapes (pad or drop the partial batch)");
    if (signatures_.size() == kMostPrograms) signatures_.pop_back();
    signatures_.push_back(std::move(made));
    found = std::prev(signatures_.end());
  }
  std::rotate(signatures_.begin(), found, found + 1);
  CompiledSignature& current = *signatures_.front();

  TensorList arguments(inputs.begin(), inputs.end());
  arguments.insert(arguments.end(), traced.captured_inputs.begin(), traced.captured_inputs.end());
  for (Tensor& argument : arguments) argument = contiguous(argument, where);
  Result result{TensorList(current.spreads.size()), current.spreads, current.compiled.slices};
  current.compiled.executable->run(arguments, result.outputs, clock);
  return result;
}

}  // namespace lockstep::execute
