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
  Graph graph;                // as the first slice's replica traced it
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
  // Captures become inputs, in the order in which they were met.
  for (Node& node : traced.graph.nodes) {
    if (node.op != &kCapture) continue;
    traced.captures.push_back(node.attrs.as<CaptureAttrs>().tensor);
    node.op = &kParameter;
    node.attrs = ParameterAttrs{static_cast<int64_t>(inputs + traced.captures.size() - 1)};
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
  std::erase_if(programs_, [&](const auto& program) { return program->generation != generation; });

  auto found = std::find_if(programs_.begin(), programs_.end(), [&](const auto& program) {
    return program->hash == hash && program->signature == signature && program->split == split &&
           program->rows == rows && same_structure(program->graph, traced.graph);
  });
  if (found == programs_.end()) {
    const observe::CompileScope compiles(clock);
    auto program = std::make_unique<CompiledSignature>();
    program->signature = signature;
    program->split = split;
    program->rows = rows;
    program->generation = generation;
    program->graph = traced.graph;
    program->hash = hash;
    SpecList all = signature;
    std::vector<bool> cut = split;
    for (const Tensor& capture : traced.captures) {
      all.push_back(capture.spec());
      cut.push_back(false);
    }
    bool traced_before = true;
    program->compiled = compile_replicated(
        all, cut, replicas_, rows,
        [&](const SpecList& specs, const ReplicaTrace& replica) {
          if (std::exchange(traced_before, false)) return traced.graph;
          Traced other = trace(name, body, specs, replica, inputs.size(), where);
          require(other.captures.size() == traced.captures.size(), ErrorCode::failed_precondition, where,
                  name,
                  ": uses other tensors from outside in a slice of another size; pass them as arguments");
          return std::move(other.graph);
        },
        {.name = name, .stacks_outputs = true}, where);
    const Plan& plan = program->compiled.executable->plan();
    if (check) check(plan.variables);
    program->spreads = program->compiled.spreads;
    if (++compiled_ == kManyPrograms)
      log(LogLevel::warning, name, " was compiled ", compiled_,
          " times because its traces differ: numbers of C++ that change from call to call are part of a "
          "trace "
          "(pass them as tensors), and so are shapes (pad or drop the partial batch)");
    if (programs_.size() == kMostPrograms) programs_.pop_back();
    programs_.push_back(std::move(program));
    found = std::prev(programs_.end());
  }
  std::rotate(programs_.begin(), found, found + 1);
  CompiledSignature& program = *programs_.front();

  TensorList arguments(inputs.begin(), inputs.end());
  arguments.insert(arguments.end(), traced.captures.begin(), traced.captures.end());
  for (Tensor& argument : arguments) argument = contiguous(argument, where);
  Result result{TensorList(program.spreads.size()), program.spreads, program.compiled.slices};
  program.compiled.executable->run(arguments, result.outputs, clock);
  return result;
}

}  // namespace lockstep::execute
