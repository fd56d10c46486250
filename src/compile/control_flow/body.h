// Bodies of control-flow ops: traced once, kept so that a gradient can continue the trace, and planned
// once for each way in which they are run.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "compile/planning/plan.h"
#include "graph/emit.h"
#include "graph/structure.h"
#include "lockstep/autodiff/gradient_tape.h"

namespace lockstep::compile {

// The part of `graph` that computes `results`, as a graph of its own in which parameter i stands for the
// value parameters[i]. Invalid values: a result that is not computed, a parameter that is not used.
Graph extract(const Graph& graph, std::span<const Value> results, std::span<const Value> parameters);

// A body as nodes carry it: a graph whose only sources are parameters and constants. May be used by
// several threads.
class BodyGraph {
 public:
  BodyGraph(Graph graph, size_t parameters)
      : graph_(std::move(graph)), parameters_(parameters), hash_(hash_of_structure(graph_)) {}

  const Graph& graph() const { return graph_; }
  size_t num_parameters() const { return parameters_; }
  // Bodies that compute the same are equal, whichever call of a function traced them.
  bool operator==(const BodyGraph& other) const;
  uint64_t hash() const { return hash_; }
  // Planned on first use, for the device or kind and the threads of the loop's or branch's own kernel.
  std::shared_ptr<const Plan> plan(const PlanOptions& options) const;
  // The cost of all launches of one run.
  Cost cost() const;

 private:
  struct Planned {
    PlanOptions options;
    std::shared_ptr<const Plan> plan;
  };
  Graph graph_;
  size_t parameters_;
  uint64_t hash_;
  mutable std::mutex mutex_;
  mutable std::vector<Planned> plans_;
};

// A body while its trace can be continued.
class TracedBody {
 public:
  using Function = std::function<TensorList(std::span<const Tensor>)>;

  // Calls `body` on symbols of these specs, inside a trace of its own in the current one. The outputs
  // must be defined; `name` is for errors.
  TracedBody(Trace::BodyKind kind, std::span<const TensorSpec> parameters, const Function& body,
             const char* name, std::source_location where);
  TracedBody(const TracedBody&) = delete;
  TracedBody& operator=(const TracedBody&) = delete;

  // A parameter of the body: as recorders know it, and in the graph. Not used: invalid.
  struct Slot {
    Tensor handle;
    Value value;
  };

  Trace& trace() { return trace_; }
  const TensorList& parameters() const { return parameters_; }
  const std::vector<Value>& outputs() const { return outputs_; }
  Slot slot_of(const Tensor& parameter);

  // In the order of the body graph's parameters; set by whoever made the body.
  std::vector<Slot> slots;

  // The graph that computes `results` from the slots.
  std::shared_ptr<const BodyGraph> graph_of(std::span<const Value> results) const;

  // --- for gradients, with the trace entered ---------------------------------------------------------------

  // Gradients of the slots in `wanted` (undefined: unconnected), where output_gradients[i] arrives at the
  // value targets[i].
  TensorList gradients(std::span<const Value> targets, std::span<const Tensor> output_gradients,
                       const std::vector<bool>& wanted);
  // What the computation of `results` reads of the body itself, forward values that it does not compute
  // again: constants, views, and what `recomputed` allows.
  struct Reads {
    std::vector<Value> saved;             // to be kept by whoever runs the body
    std::vector<bool> slots;              // read as they are
    std::vector<Trace::Outside> outside;  // tensors from outside that only the gradient uses
  };
  Reads reads_of(std::span<const Value> results, const std::vector<bool>& slot_is_saved,
                 const std::function<bool(Value)>& recomputed) const;
  // Whether a value depends on nothing but constants and these slots.
  bool depends_only_on(Value value, const std::vector<bool>& slots) const;
  bool is_forward(Value value) const { return value.node < forward_nodes_; }
  // The slot whose parameter this is; -1: none.
  int slot_with(Value value) const;

 private:
  Trace trace_;
  std::optional<GradientTape> tape_;
  TensorList parameters_;
  std::vector<Value> outputs_;
  size_t forward_outside_ = 0;
  int forward_nodes_ = 0;
};

// A traced body that does what `body` does, made by emitting its nodes again.
std::shared_ptr<TracedBody> replay(const BodyGraph& body, Trace::BodyKind kind);

}  // namespace lockstep::compile
