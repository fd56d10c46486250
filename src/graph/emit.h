// The one choke point through which every op goes.
//
// emit() infers the result's specs, then runs the kernel (eager) or appends a node to the graph
// that is being traced on this thread, then tells the active recorders (tapes). Gradient rules call
// it too, so second derivatives and compiled backward passes need nothing of their own.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include "graph/graph.h"
#include "graph/op.h"

namespace lockstep {

TensorList emit(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                std::source_location where);

// For ops with one output.
Tensor emit_one(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs,
                std::source_location where);
Tensor emit_one(const OpDef& op, std::initializer_list<Tensor> inputs, const Attrs& attrs,
                std::source_location where);

// A tensor with every element `value`: a constant of the trace where there is one.
Tensor fill(const TensorSpec& spec, double value,
            std::source_location where = std::source_location::current());
// The same on the device of `neighbour`, a tensor that it will be used with.
Tensor fill_beside(const Tensor& neighbour, const TensorSpec& spec, double value,
                   std::source_location where = std::source_location::current());

// Sees every op after it was emitted on this thread.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void record(const OpDef& op, const Attrs& attrs, std::span<const Tensor> inputs,
                      std::span<const Tensor> outputs) = 0;
  virtual void read(const Variable& variable, const Tensor& value) = 0;
};

// Recorders form a stack per thread; all of them are told, in the order in which they were pushed.
void push_recorder(Recorder* recorder);
void remove_recorder(Recorder* recorder);
bool has_recorders();
void tell_recorders(const OpDef& op, const Attrs& attrs, std::span<const Tensor> inputs,
                    std::span<const Tensor> outputs);
void tell_recorders_of_read(const Variable& variable, const Tensor& value);

// Suspends all recorders of this thread, but for those pushed inside: for work that must not be
// differentiated by whoever is outside.
class RecorderPause {
 public:
  RecorderPause();
  ~RecorderPause();
  RecorderPause(const RecorderPause&) = delete;
  RecorderPause& operator=(const RecorderPause&) = delete;
};

class Trace;

// Where an op runs that no scope places: with its first input that is not a scalar, else with its first. An
// input on a GPU comes before those on CPUs.
class InputPlace {
 public:
  void add(Device* device, int rank) {
    if (!device) return;
    const int weight = (rank > 0 ? 2 : 0) + (device->kind() == DeviceKind::gpu ? 1 : 0);
    if (weight <= weight_) return;
    device_ = device;
    weight_ = weight;
  }
  Device* device() const { return device_; }

 private:
  Device* device_ = nullptr;
  int weight_ = -1;
};

// While it lives, ops run where this tensor (or the node that computes it) is, whatever the scopes around
// say: for gradients and updates. A scope of a device without memory stays, and so does one in a trace that
// does not place its nodes.
class BesideScope {
 public:
  explicit BesideScope(const Tensor& tensor);

 private:
  std::optional<DeviceScope> scope_;
};

// Suspends the trace and all recorders of this thread: ops run at once, on tensors that have elements.
// For what must exist outside of the program that is being traced, such as weights that a layer makes
// when it is first called. What is traced or recorded inside belongs to traces and tapes started inside.
class TracePause {
 public:
  TracePause();
  ~TracePause();
  TracePause(const TracePause&) = delete;
  TracePause& operator=(const TracePause&) = delete;

 private:
  RecorderPause recorders_;
  Trace* paused_;
};

// What a replica's trace knows about the batch it is a slice of.
struct ReplicaTrace {
  int64_t global_batch = -1;         // examples in the whole batch; -1: the trace is not of a replica
  int64_t local_batch = -1;          // examples in this replica's slice
  bool reproducible = false;         // the same bits on any number of devices
  std::vector<int64_t> begins = {};  // of every replica: its slice's first example

  // This slice's part of the batch.
  double share() const {
    return static_cast<double>(local_batch) / static_cast<double>(std::max<int64_t>(1, global_batch));
  }
  // That of the trace on this thread; null where there is none, or where it is not of a replica.
  static const ReplicaTrace* current();
};

// The graph that is being traced on this thread. Construction starts a trace, destruction ends it.
//
// The body of a control-flow op is a trace of its own inside of another. It uses that one's tensors and
// variables freely: each becomes a parameter, listed in outside(), and the node that stands for the op
// gets the values as inputs.
class Trace {
 public:
  explicit Trace(const ReplicaTrace& replica = {});
  // A body in `outer`; a TraceScope enters it. `noticed` is told of every tensor from outside, by the
  // handle under which recorders will see it.
  enum class BodyKind { branch, loop };
  Trace(Trace& outer, BodyKind kind, std::function<void(const Tensor&)> noticed);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  static Trace* current();
  // The trace of this symbol among those that are open on this thread; null: none of them.
  static Trace* of(const Tensor& symbol);

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  const ReplicaTrace& replica() const { return replica_; }

  // Whether its nodes carry the device on which they run. Replicas, and bodies of control-flow ops, run as a
  // whole on the device they are given.
  bool places() const { return !is_body() && replica_.global_batch < 0; }
  Device* device_of(const Tensor& symbol) const;

  // `device`: where the argument will be; null: where new tensors are made.
  Tensor parameter(int index, const TensorSpec& spec, std::source_location where, Device* device = nullptr);
  TensorList append(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs, SpecList specs,
                    std::source_location where);
  Tensor constant(const TensorSpec& spec, double value, std::source_location where);
  Tensor read(const Variable& variable, std::source_location where);
  void assign(const Variable& variable, const Tensor& value);
  // Symbol of this tensor in this trace; a concrete tensor becomes a captured input.
  Value value_of(const Tensor& tensor, std::source_location where);
  // 0, 1, 2, ...: tells the uses of one kind of op in this trace apart, bodies included.
  int64_t next_collective(std::source_location where = std::source_location::current());
  int64_t next_random() { return is_body() ? outer_->next_random() : randoms_++; }
  // This int64 counter goes up by one at the end of every run of the program.
  void count_runs(const Variable& counter);
  // Ends the recording: what was promised for the end of the program is added to it.
  void finish();

  // Side effects happen in program order: each takes the token of the one before it and leaves its own.
  // The last one keeps all of them in the program.
  Tensor effect();
  void set_effect(const Tensor& token);

  bool is_body() const { return kind_.has_value(); }
  // What a body uses from outside: the value there, the handle recorders know it by here, and its
  // parameter. Variables and the token of effects have a new value here where the body changes them.
  struct Outside {
    Tensor value;
    Tensor inside;
    Value parameter;
    Variable variable;  // undefined: a tensor or the token
    bool token = false;
  };
  const std::vector<Outside>& outside() const { return outside_; }
  std::optional<Value> changed(const Outside& outside) const;
  // The number of the iteration (int64) of every loop around here, outermost first; of this one.
  TensorList loop_indices();
  std::optional<Value> loop_index() const { return loop_index_; }

  // Lets the node that computes `output`, a tensor of this trace, have more outputs: they are returned.
  TensorList extend(const Tensor& output, const Attrs& attrs, const SpecList& more);
  Tensor wrap(Value value) const;

 private:
  friend class TraceScope;
  Value new_parameter(const TensorSpec& spec, std::source_location where);
  Device* place_of(const Node& node) const;

  uint64_t id_;
  Trace* outer_;
  std::optional<BodyKind> kind_;
  std::function<void(const Tensor&)> noticed_;
  std::vector<Outside> outside_;
  std::optional<Value> loop_index_;
  Tensor effect_;
  ReplicaTrace replica_;
  Graph graph_;
  std::vector<std::pair<uint64_t, Value>> captured_inputs_;  // by tensor id
  std::vector<std::pair<Variable, Tensor>> variables_;       // the current value of each
  std::vector<Variable> run_counters_;
  int64_t collectives_ = 0;
  int64_t randoms_ = 0;
  Device* entered_ = scoped_device();  // what the scopes said when it was last entered
};

// Enters a body, for the first time or again, from the trace in which its op stands; recorders outside
// are not told what happens in it.
class TraceScope {
 public:
  explicit TraceScope(Trace& body);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  RecorderPause recorders_;
  Trace* left_;
};

}  // namespace lockstep
