// tf::distribute: on which devices a training step runs, where variables live, how replicas are joined.
//
//   distribute::MirroredStrategy strategy;               // all GPUs, else all logical CPU devices
//   keras::Sequential model;
//   {
//     auto scope = strategy.scope();
//     model = ...;                                       // variables made here belong to the strategy
//     model.compile(...);
//   }
//   model.fit(data);                                     // every step on all devices
//
// or, in a loop of one's own,
//
//   for (const DistributedElement& batch : strategy.distribute_dataset(dataset)) {
//     Distributed loss = strategy.run(step, batch);      // step(x, y) sees a replica's slice
//     total += strategy.reduce(ReduceOp::sum, loss).item<float>();
//   }
//
// Strategies are handles; copies are the same strategy. One run at a time. Training beside one is an error,
// or is logged.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/explain.h"
#include "lockstep/device/device.h"
#include "lockstep/distribute/distributed.h"
#include "lockstep/execute/function.h"
#include "lockstep/graph/tensor_arg.h"
#include "lockstep/graph/variable.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::observe {
class StepClock;
}
namespace lockstep::comm {
class Workers;
}

namespace lockstep::distribute {

enum class ReduceOp : uint8_t { sum, mean, SUM = sum, MEAN = mean };

using lockstep::CrossDeviceOps;

// The engine that joins the processes of a run.
enum class CommunicationImplementation : uint8_t {
  automatic,  // NCCL between GPUs; MPI where mpirun or srun started the run; else Gloo
  gloo,       // over TCP
  mpi,
  nccl,  // between GPUs; what the host has goes through MPI or Gloo
};

// What gradients are on the way from worker to worker.
enum class Compression : uint8_t {
  none,
  // Half the bytes: each worker rounds the sum over its replicas to bfloat16. The workers' sums are added in
  // float32.
  bf16,
};

// How the workers of a MultiWorkerMirroredStrategy communicate.
struct CommunicationOptions {
  CommunicationImplementation implementation = CommunicationImplementation::automatic;
  // A worker that has not come to a collective after this time is named on all others, and the run ends. One
  // whose process dies is named at once.
  double timeout_seconds = 60;
  // For all workers to come, when the strategy is made.
  double join_timeout_seconds = 300;
  // Gradients alone: losses, metrics and the statistics of layers are sent as they are. Not with
  // `reproducible`, for what is rounded depends on the number of workers, and not between GPUs.
  Compression compression = Compression::none;
};

// Makes a run outlive its workers. For MultiWorkerMirroredStrategy, on CPUs joined by Gloo.
//
// Any worker, the chief included, may die, hang or be stopped at any moment of fit, evaluate or predict. The
// others agree on the last step that one of them has finished, those who lack its state get it from one who
// has it, and they go on: the examples of a step that was lost are computed again, so that none is skipped
// and none counts twice. With `reproducible` the weights are those of a run that nothing has disturbed, bit
// for bit. A worker that was started again (lockstep launch --elastic) joins between two steps, with the
// state and the position of the others. What is the chief's moves to the worker that has been in the run for
// longest. docs/many_machines.md says what that means for callbacks, data and loops by hand.
struct ElasticOptions {
  // The run goes on as long as there are so many workers. 0: it is not elastic, and ends where one is lost.
  int min_workers = 0;
  // Where fewer are left, or a part of the run is cut off: how long they wait for others before they stop.
  double wait_seconds = 300;
};

struct StrategyOptions {
  CrossDeviceOps cross_device_ops = CrossDeviceOps::automatic;
  // Gradients are summed in buckets of about this size, each as soon as the backward pass has filled it.
  // 0: all at the end; -1: up to 16 MiB on GPUs, on CPUs what steps find fastest. No bit depends on it.
  int64_t bucket_bytes = -1;
  // The same bits on any number of devices: a batch is always cut into `virtual_replicas` slices, at least as
  // many as there are devices; these are the replicas that run() and reduce() speak of.
  bool reproducible = false;
  int virtual_replicas = 8;
  // The share of the batch that each device gets, in any unit. Empty: the same for all.
  std::vector<double> weights = {};
  // Standard output gets a report on where the time went (lockstep/observe/run_report.h): on run() calls, ten
  // of them or more, when the last copy of the strategy goes, and on a fit of a model of this strategy when
  // it ends, unless that is silent (verbose = 0). summary() and History::time hold the same in either case.
  bool report = true;
  CommunicationOptions communication = {};
  ElasticOptions elastic = {};
};

// The part of the batch, and the pass over the data, that a function given to
// distribute_datasets_from_function() makes a dataset for.
struct InputContext {
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;
  // The batch of one replica; throws Error(invalid_argument) where it does not divide.
  int64_t get_per_replica_batch_size(int64_t global_batch_size,
                                     std::source_location where = std::source_location::current()) const;
};

// A global batch, cut for the replicas; the structure is the dataset's.
struct DistributedElement {
  data::Structure structure;
  std::vector<Distributed> flat;

  // The tensor of this number, nesting aside: batch[0], batch[1].
  const Distributed& operator[](Located<int64_t> position) const;
};

// What Strategy::run() hands to its function: slices of what is distributed, other tensors as they are. Lives
// as long as the call, and refers to what was given.
class RunArgument {
 public:
  RunArgument() = default;  // without a value
  // NOLINTBEGIN(google-explicit-constructor): conversion at the call is the purpose
  RunArgument(const Distributed& value) : value_(&value) {}
  RunArgument(const DistributedElement& batch) : value_(&batch) {}
  template <class T>
  requires std::convertible_to<const T&, TensorArg> RunArgument(
      const T& tensor, std::source_location where = std::source_location::current())
      : value_(TensorArg(tensor, where).tensor()) {}
  // A batch of a dataset that was not distributed: one replica takes it whole; several refuse it with an
  // error.
  RunArgument(const data::Element& batch) : value_(&batch) {}
  // NOLINTEND(google-explicit-constructor)

  using Value = std::variant<std::monostate, Tensor, const Distributed*, const DistributedElement*,
                             const data::Element*>;
  const Value& value() const { return value_; }

 private:
  Value value_;
};

class Strategy;
class WorkerBatches;

class DistributedDataset {
 public:
  // `own_batches`: of several workers, the dataset's batches are this one's parts of global ones; else every
  // worker has them all and takes its rows. `sharing`: who reads what, in words.
  DistributedDataset(const Strategy& strategy, data::Dataset dataset, bool own_batches = false,
                     std::string sharing = {});

  // What this process reads.
  const data::Dataset& dataset() const { return dataset_; }
  int64_t cardinality() const { return dataset_.cardinality(); }
  // As data::explain() of what this process reads; of several workers the cause says who reads what.
  data::Explanation explain(const data::ExplainOptions& options = {},
                            std::source_location where = std::source_location::current()) const;
  class iterator;
  iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<const Strategy> strategy_;
  data::Dataset dataset_;
  bool own_batches_;
  std::string sharing_;
};

class Strategy {
 public:
  class Impl;
  enum class Kind : uint8_t { none, one_device, mirrored, central_storage };

  // The default strategy: one replica on the current device.
  Strategy();
  Kind kind() const;
  const std::string& name() const;  // "MirroredStrategy"
  const std::vector<Device*>& devices() const;
  const StrategyOptions& options() const;
  // Replicas that a batch is cut for, those of all workers.
  int num_replicas_in_sync() const;
  // The processes that train together under MultiWorkerMirroredStrategy, and this one's rank among them; the
  // chief has rank 0. All other strategies have 1 and 0.
  int num_workers() const;
  int worker() const;
  bool is_chief() const;
  // "MirroredStrategy on /CPU:0, /CPU:1"
  std::string description() const;
  // How an all-reduce over the devices is made, and why: "NCCL: every device is a physical GPU of its own".
  std::string sums_description() const;
  bool operator==(const Strategy& other) const { return impl_ == other.impl_; }

  // While it lives, variables made on this thread belong to the strategy, and current() is it. A scope of
  // another strategy inside is an error.
  class Scope;
  [[nodiscard]] Scope scope(std::source_location where = std::source_location::current()) const;
  // The strategy of the innermost scope of this thread; the default strategy outside of all scopes.
  static Strategy current();
  // Whose a variable, layer or optimizer is.
  static Strategy of(const std::shared_ptr<const VariableOwner>& owner);
  const std::shared_ptr<const VariableOwner>& owner() const;

  // Calls f on every replica with its slices of the distributed arguments; other tensors are the same for
  // all. Results that differ come back distributed. f is traced with every call (its C++ side effects happen
  // once) and runs compiled; reading a value inside is an error. f takes const Tensor& and returns tensors
  // (or nothing).
  template <class F>
  auto run(F f, const RunArgument& first = {}, const RunArgument& second = {}, const RunArgument& third = {},
           const RunArgument& fourth = {}, const RunArgument& fifth = {}, const RunArgument& sixth = {},
           const RunArgument& seventh = {}, const RunArgument& eighth = {},
           std::source_location where = std::source_location::current()) const;

  // The same for a function of as many tensors as the arguments hold, which only the program knows.
  std::vector<Distributed> run_tensors(const std::function<TensorList(std::span<const Tensor>)>& f,
                                       std::span<const RunArgument> arguments,
                                       std::source_location where = std::source_location::current()) const;

  // Over the replicas, of all workers, and, where `axis` is given, over that dimension of each; the mean
  // weighs all elements alike. Every worker has to call it.
  Tensor reduce(ReduceOp op, const Distributed& value, std::optional<int> axis = {},
                std::source_location where = std::source_location::current()) const;
  // Joined along a dimension, of all workers. Every worker has to call it.
  Tensor gather(const Distributed& value, int axis = 0,
                std::source_location where = std::source_location::current()) const;
  TensorList local_results(const Distributed& value) const { return value.local_results(); }
  TensorList experimental_local_results(const Distributed& value) const { return value.local_results(); }

  // Batches of the dataset are global ones. Of several workers each gets its part of them, as the dataset's
  // auto_shard policy says (lockstep/data/dataset.h).
  DistributedDataset distribute_dataset(const data::Dataset& dataset,
                                        std::source_location where = std::source_location::current()) const;
  DistributedDataset experimental_distribute_dataset(
      const data::Dataset& dataset, std::source_location where = std::source_location::current()) const {
    return distribute_dataset(dataset, where);
  }
  // The function's batches are those of one replica; as many as there are replicas make a global batch.
  DistributedDataset distribute_datasets_from_function(
      const std::function<data::Dataset(const InputContext&)>& make,
      std::source_location where = std::source_location::current()) const;
  // Cut as the replicas get it; of several workers, each of which has the whole batch, as those of this one
  // get it.
  Distributed distribute(const Tensor& batch,
                         std::source_location where = std::source_location::current()) const;
  DistributedElement distribute(const data::Element& batch,
                                std::source_location where = std::source_location::current()) const;

  // This worker's rows of a global batch; worker w has worker_rows[w] of them.
  Distributed distribute_own(const Tensor& own, const std::vector<int64_t>& worker_rows) const;
  // Gives all workers the chief's values: what is made in a scope has them when it is first used by run() or
  // when fit begins. Where every replica has a part of a variable, the chief gets the sum of all parts. A
  // collective: every worker has to call it, with the same variables.
  void share_values(const std::vector<Variable>& variables) const;
  // What all workers give, in their order. Every worker has to call it.
  TensorList gather_from_workers(const char* what, const TensorList& own) const;

  // Makes what was made elsewhere this strategy's own: variables, or a layer or model with all it holds.
  void adopt(const std::vector<Variable>& variables) const;
  template <class Layer>
  requires requires(const Layer& layer) { layer.base()->set_owner(nullptr); }
  void adopt(const Layer& layer) const { layer.base()->set_owner(owner()); }
  // Throws Error(failed_precondition) naming the first variable that is not this strategy's, where it was
  // made, and the fix. `user` is who wants to use them ("fit", "run").
  void require_own(const std::vector<Variable>& variables, const char* user,
                   std::source_location where) const;

  // What a compiled function needs to run under this strategy.
  ReplicaOptions replica_options() const;
  // Null where there is one process.
  const std::shared_ptr<comm::Workers>& workers() const;
  // Whether workers may be lost and come back (ElasticOptions).
  bool elastic() const;
  // In a loop by hand of an elastic run, where a call has thrown errors::UnavailableError: forms anew with
  // the workers that are left. A run() that throws has changed nothing. `steps`: how many steps this worker
  // has finished. Returns how many the farthest of them has, whose values of the variables, and of the random
  // generator, all have from then on. Every worker has to call it, with the same variables, all that steps
  // use. What was distributed before is to be distributed anew. A worker that the run has gone on without
  // waits in it until the others admit() it.
  int64_t recover(int64_t steps, const std::vector<Variable>& variables,
                  std::source_location where = std::source_location::current()) const;
  // In such a loop, between two steps: lets workers in that were started again and wait; and on one of those,
  // waits until it is let in. All call it before the same steps, with the same variables; it asks all
  // workers, so every some steps will do. Returns how many steps the farthest has made, whose values all have
  // from then on: a worker that has joined goes on from there in its data. What was distributed before is to
  // be distributed anew. Where workers are lost meanwhile it does what recover() does. Not elastic: returns
  // `steps`. Throws Error(failed_precondition) where the run is past this loop.
  int64_t admit(int64_t steps, const std::vector<Variable>& variables,
                std::source_location where = std::source_location::current()) const;
  // Where the time of a loop over run() goes, by device, what is between two calls included.
  observe::RunSummary summary() const;
  // Called by distributed datasets where `workers` workers have read the same batches; summary() says so.
  void note_same_examples(int workers) const;

 protected:
  explicit Strategy(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  friend class StrategyOwner;
  struct Argument {
    Tensor value;
    bool split = false;
    std::vector<int64_t> worker_rows = {};
  };
  using Body = std::function<TensorList(std::span<const Tensor>)>;
  int64_t go_on_from_farthest(int64_t steps, const std::vector<Variable>& variables,
                              std::source_location where) const;
  void add(std::vector<Argument>& arguments, const Tensor& tensor) const {
    arguments.push_back({tensor, false, {}});
  }
  void add(std::vector<Argument>& arguments, const Distributed& value) const;
  void add(std::vector<Argument>& arguments, const DistributedElement& element) const {
    for (const Distributed& part : element.flat) add(arguments, part);
  }
  void add(std::vector<Argument>& arguments, const RunArgument& argument) const;
  std::vector<Distributed> run_body(const Body& body, const std::vector<Argument>& arguments) const;
  void share_new_values(const std::vector<Variable>& variables) const;

  std::shared_ptr<Impl> impl_;
};

class Strategy::Scope {
 public:
  Scope(const Strategy& strategy, std::source_location where);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::unique_ptr<VariableOwnerScope> owner_;
};

// On this device, as if there were no strategy but with the same code.
class OneDeviceStrategy : public Strategy {
 public:
  explicit OneDeviceStrategy(const std::string& device, const StrategyOptions& options = {},
                             std::source_location where = std::source_location::current());
};

// A copy of every variable on every device; gradients are summed over all.
class MirroredStrategy : public Strategy {
 public:
  // No device: all GPUs, else all logical CPU devices.
  explicit MirroredStrategy(const std::vector<std::string>& devices = {}, const StrategyOptions& options = {},
                            std::source_location where = std::source_location::current());
};

// MirroredStrategy over the processes of a run, which it finds in TF_CONFIG, or as mpirun, srun, torchrun or
// lockstep launch describe them. A process that is alone says so and trains on all its own devices.
//
// It is made when all workers have come; until then it says every few seconds for whom it waits. Every worker
// runs the same program: what is made in the scope has the chief's values, every call that trains, evaluates
// or reduces is made by all, and workers that disagree (on versions, devices, options, the program, the data)
// are told so before the first step. What is distributed, and what comes of run(), is of this worker's
// replicas. A worker that dies, leaves, hangs or does something else ends the run on all others with
// Error(io) that names it and what it is doing, unless the run is elastic.
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(const StrategyOptions& options = {},
                                       std::source_location where = std::source_location::current());
};

// Variables on the CPU (or the one GPU) alone; all devices compute.
class CentralStorageStrategy : public Strategy {
 public:
  explicit CentralStorageStrategy(const std::vector<std::string>& devices = {},
                                  const StrategyOptions& options = {},
                                  std::source_location where = std::source_location::current());
};

// --- inside of a replica ---

// Which of the replicas this is: int32, a value of the step, not of the trace. 0 outside of replicas.
Tensor replica_id(std::source_location where = std::source_location::current());
int num_replicas_in_sync();
// Over all replicas; the mean weighs replicas by their examples.
Tensor all_reduce(ReduceOp op, const Tensor& value,
                  std::source_location where = std::source_location::current());
// The mean of one value per example (first dimension) over the global batch, as this replica's share of it:
// the sum of the shares over the replicas is the mean. What a loss written by hand returns.
Tensor global_mean(const Tensor& per_example, std::source_location where = std::source_location::current());

// The same as one object, as TensorFlow has it.
class ReplicaContext {
 public:
  Tensor replica_id_in_sync_group(std::source_location where = std::source_location::current()) const {
    return replica_id(where);
  }
  int num_replicas_in_sync() const { return distribute::num_replicas_in_sync(); }
  Strategy strategy() const { return Strategy::current(); }
  Tensor all_reduce(ReduceOp op, const Tensor& value,
                    std::source_location where = std::source_location::current()) const {
    return distribute::all_reduce(op, value, where);
  }
};
inline ReplicaContext get_replica_context() { return {}; }
// That of the innermost scope around the call; the default strategy outside of all.
inline Strategy get_strategy() { return Strategy::current(); }
inline bool has_strategy() { return Strategy::current().kind() != Strategy::Kind::none; }

// --- details ---

class DistributedDataset::iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = DistributedElement;
  using difference_type = std::ptrdiff_t;

  iterator(std::shared_ptr<const Strategy> strategy, const data::Dataset& dataset, bool own_batches)
      : strategy_(std::move(strategy)),
        dataset_(dataset),
        own_batches_(own_batches),
        iterator_(std::make_shared<data::Iterator>(dataset)) {
    ++*this;
  }
  const DistributedElement& operator*() const { return element_; }
  const DistributedElement* operator->() const { return &element_; }
  iterator& operator++();
  void operator++(int) { ++*this; }
  // Cuts the same batch anew, after Strategy::recover() or admit().
  void again() { cut(); }
  bool operator==(std::default_sentinel_t) const { return !goes_on_; }
  // To save and restore the position.
  data::Iterator& position() { return *iterator_; }

 private:
  std::shared_ptr<const Strategy> strategy_;
  data::Dataset dataset_;
  bool own_batches_;
  std::shared_ptr<data::Iterator> iterator_;
  std::shared_ptr<WorkerBatches> parts_;  // null: one process
  void cut();
  std::optional<data::Structure> structure_;
  data::Element batch_;  // as it was read
  DistributedElement element_;
  bool goes_on_ = false;
};

inline DistributedDataset::iterator DistributedDataset::begin() const {
  return {strategy_, dataset_, own_batches_};
}

template <class F>
auto Strategy::run(F f, const RunArgument& first, const RunArgument& second, const RunArgument& third,
                   const RunArgument& fourth, const RunArgument& fifth, const RunArgument& sixth,
                   const RunArgument& seventh, const RunArgument& eighth, std::source_location where) const {
  const CallSite site(where);
  std::vector<Argument> arguments;
  for (const RunArgument* argument : {&first, &second, &third, &fourth, &fifth, &sixth, &seventh, &eighth})
    add(arguments, *argument);
  constexpr size_t kArity = lockstep::detail::tensor_arity<F>();
  lockstep::require(arguments.size() == kArity, ErrorCode::invalid_argument, where,
                    "run: the function takes ", kArity, " tensors, received ", arguments.size());
  using Indices = std::make_index_sequence<kArity>;
  using Result = decltype(lockstep::detail::call_with(f, {}, Indices{}));
  if constexpr (std::is_void_v<Result>) {
    run_body(
        [&](std::span<const Tensor> in) -> TensorList {
          lockstep::detail::call_with(f, in, Indices{});
          return {};
        },
        arguments);
  } else {
    std::vector<Distributed> results = run_body(
        [&](std::span<const Tensor> in) {
          return lockstep::detail::FunctionResult<Result>::pack(
              lockstep::detail::call_with(f, in, Indices{}));
        },
        arguments);
    if constexpr (std::is_same_v<Result, TensorList>)
      return results;
    else if constexpr (std::is_same_v<Result, Tensor>)
      return std::move(results[0]);
    else
      return [&]<size_t... I>(std::index_sequence<I...>) { return std::tuple(std::move(results[I])...); }
    (std::make_index_sequence<std::tuple_size_v<Result>>{});
  }
}

}  // namespace lockstep::distribute
