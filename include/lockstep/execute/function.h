// tf::function: traces a C++ function once for each signature of its arguments and runs the compiled
// program from then on.
//
//   auto step = function([&](const Tensor& x, const Tensor& y) { ...; return loss; });
//   Tensor loss = step(x, y);
//
// The function is called while tracing with symbolic tensors: C++ side effects happen then, ops and
// variable updates happen at every call. Tensors used from outside are captured with the value they
// have then; variables are read and written at every call. A new combination of argument dtypes and
// shapes is traced anew; a function that keeps doing so says which argument changed.
//
// Ops run on the devices that they would run on outside: that of the tf::device() scopes around them or
// around the call, else where their inputs live (arguments included). A function that uses several devices is
// one program that runs its steps in order, with copies between them; replicas run on their own devices as a
// whole.
//
// While a GradientTape of the caller records, the function runs op by op instead, so that the tape
// can differentiate it. One call at a time.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/graph/tensor_arg.h"
#include "lockstep/observe/run_report.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

namespace observe {
class StepClock;
}
namespace comm {
class Workers;
}

// How an all-reduce over the devices is made. The sums have the same bits, but for NCCL's.
enum class CrossDeviceOps : uint8_t {
  automatic,          // CPUs: ring. GPUs: nccl where every one is a physical GPU, else kernels that read all
  ring,               // every device sums a share of the elements for all
  hierarchical_copy,  // one of every two devices does
  reduction_to_one_device,  // the first does, and the others copy
  tree,                     // two by two, then two of these, until the first has it, and the others copy
  // NCCL, between different physical GPUs. It adds in an order of its own, which depends on their number: not
  // to be had together with `reproducible`.
  nccl,
};

// Runs the function as replicas, each on a consecutive slice of the batch (the first dimension of
// every argument that has one). The function sees its slice; all_reduce_sum() joins the replicas.
// Variables are mirrored on every device and updated on each with the same bits.
struct ReplicaOptions {
  std::vector<Device*> devices = {};  // empty: the function is not replicated
  // The processes of a run, where there are several: each has as many devices, and is called with its rows of
  // the batch. Null: this process has all replicas.
  std::shared_ptr<comm::Workers> workers = {};
  // The same bits on any number of devices: the batch is always cut into `virtual_replicas` slices
  // that run on one thread each, and all sums over them are made in one fixed order.
  bool reproducible = false;
  int virtual_replicas = 8;
  // The part of the batch that each device gets, in any unit. Empty: the same for all.
  std::vector<double> weights = {};
  // Variables live on the first device alone: it makes the updates, the others fetch them with every call.
  bool central_updates = false;
  CrossDeviceOps cross_device_ops = CrossDeviceOps::automatic;
  // Sums (gradients above all) are made in buckets of about this size, each as soon as the backward pass has
  // filled it. 0: one bucket; -1: up to 16 MiB on GPUs, on CPUs the size that the first steps find fastest.
  // No bit depends on it.
  int64_t bucket_bytes = -1;
  // Gradients travel between workers as bfloat16, and are added in float32.
  bool bf16_gradients = false;
};

struct FunctionOptions {
  std::string name = "function";
  ReplicaOptions replicas = {};
  // Where the function's time goes, by device: one replica of the clock for each. Not owned; the
  // caller begins and ends the steps.
  observe::StepClock* clock = nullptr;
  // Without a clock: calls are the steps of a loop, on which report() and tf::observe::report() tell.
  bool timed = true;
};

// What a compiled function costs. Bytes of arenas, not of variables, arguments and results.
struct ProgramStatistics {
  int64_t flops = 0;           // of one call
  int64_t bytes_accessed = 0;  // read and written by all launches of one call
  int64_t launches = 0;
  int64_t arena_bytes = 0;      // memory that is held for intermediate values
  int64_t peak_bytes = 0;       // most bytes of intermediate values alive at once
  int64_t unplanned_bytes = 0;  // all intermediate values, each with memory of its own
};

// The part of a function that does not depend on its C++ type.
class FunctionCore {
 public:
  using Body = std::function<TensorList(std::span<const Tensor>)>;

  FunctionCore(Body body, FunctionOptions options, std::source_location where);
  ~FunctionCore();
  FunctionCore(const FunctionCore&) = delete;
  FunctionCore& operator=(const FunctionCore&) = delete;

  // `outputs` must have as many elements as the body returns. After the first calls with a
  // signature nothing is allocated, as long as the caller lets go of earlier outputs.
  // `worker_rows`: of a function that runs on several workers, how many examples each of them is called with,
  // where that is known; otherwise they ask each other.
  void call(std::span<const Tensor> inputs, std::span<Tensor> outputs, std::source_location where,
            std::span<const int64_t> worker_rows = {});
  TensorList call(std::span<const Tensor> inputs, std::source_location where,
                  std::span<const int64_t> worker_rows = {});

  // A call for each of `runs` batches: run i gets the `rows` rows of every array that order[first + i *
  // rows], ... name, or that lie there (an undefined order). The arrays, one for each argument, and the order
  // (int64) are on one GPU.
  struct RowRuns {
    std::span<const Tensor> arrays;
    Tensor order;
    int64_t first = 0;
    int64_t rows = 0;
    int64_t runs = 0;
  };
  // All runs as one launch, with the results of the last. False: nothing was done, for the program or its
  // device cannot.
  bool call(const RowRuns& runs, std::span<Tensor> outputs, std::source_location where);

  int traces() const;
  // On the loop of its calls so far (lockstep/observe/run_report.h). Calls that ran op by op are none of it.
  observe::RunReport report() const;
  // What the program for these arguments costs; it is compiled where it does not exist yet.
  ProgramStatistics statistics(std::span<const Tensor> inputs, std::source_location where);
  // The launches of that program in order, for people.
  std::string explain(std::span<const Tensor> inputs, std::source_location where);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {

// For Tensor, TensorList, void, std::pair and std::tuple of Tensors.
template <class R>
struct FunctionResult {
  static_assert(
      sizeof(R) == 0,
      "a function that is traced (by tf::function, strategy.run) returns tensors: a Tensor, a TensorList, or "
      "a std::pair or std::tuple of Tensors. Where it returns a number, as by item<float>(), return the "
      "Tensor and read it outside of the function");
};
template <>
struct FunctionResult<Tensor> {
  static TensorList pack(const Tensor& t) { return {t}; }
  static Tensor call(FunctionCore& core, std::span<const Tensor> in, std::source_location where) {
    Tensor out;
    core.call(in, std::span(&out, 1), where);
    return out;
  }
};
template <>
struct FunctionResult<TensorList> {
  static TensorList pack(TensorList list) { return list; }
  static TensorList call(FunctionCore& core, std::span<const Tensor> in, std::source_location where) {
    return core.call(in, where);
  }
};
template <class... Ts>
struct FunctionResult<std::tuple<Ts...>> {
  static TensorList pack(const std::tuple<Ts...>& t) {
    return std::apply([](const auto&... parts) { return TensorList{parts...}; }, t);
  }
  static std::tuple<Ts...> call(FunctionCore& core, std::span<const Tensor> in, std::source_location where) {
    std::array<Tensor, sizeof...(Ts)> out;
    core.call(in, out, where);
    return std::apply([](auto&... parts) { return std::tuple<Ts...>(std::move(parts)...); }, out);
  }
};
template <>
struct FunctionResult<std::pair<Tensor, Tensor>> {
  static TensorList pack(const std::pair<Tensor, Tensor>& p) { return {p.first, p.second}; }
  static std::pair<Tensor, Tensor> call(FunctionCore& core, std::span<const Tensor> in,
                                        std::source_location where) {
    std::array<Tensor, 2> out;
    core.call(in, out, where);
    return {std::move(out[0]), std::move(out[1])};
  }
};

template <class F, size_t... I>
auto call_with(F& f, [[maybe_unused]] std::span<const Tensor> in, std::index_sequence<I...>) {
  return f(in[I]...);
}

// How many Tensors F takes.
template <class F, size_t N = 0>
constexpr size_t tensor_arity() {
  static_assert(N <= 12, "tf::function takes a callable of at most 12 Tensor arguments");
  if constexpr ([]<size_t... I>(std::index_sequence<I...>) {
                  return std::is_invocable_v<F&, decltype((void)I, std::declval<const Tensor&>())...>;
                }(std::make_index_sequence<N>{}))
    return N;  // NOLINT(bugprone-branch-clone): the other one ends the search
  else if constexpr (N <= 12)
    return tensor_arity<F, N + 1>();
  else
    return N;  // and no further errors
}

}  // namespace detail

// A traced function of as many tensors (or variables) as F takes. A handle: copies share the traces.
template <class F, class Indices = std::make_index_sequence<detail::tensor_arity<F>()>>
class Function;

template <class F, size_t... I>
class Function<F, std::index_sequence<I...>> {
  template <size_t>
  using Argument = const TensorArg&;

 public:
  static constexpr size_t kArity = sizeof...(I);
  using Result = decltype(detail::call_with(std::declval<F&>(), {}, std::index_sequence<I...>{}));

  Function(F f, FunctionOptions options, std::source_location where)
      : core_(std::make_shared<FunctionCore>(
            [f = std::move(f)](std::span<const Tensor> in) mutable -> TensorList {
              if constexpr (std::is_void_v<Result>) {
                f(in[I]...);
                return {};
              } else {
                return detail::FunctionResult<Result>::pack(f(in[I]...));
              }
            },
            std::move(options), where)) {}

  Result operator()(Argument<I>... args, std::source_location where = std::source_location::current()) {
    const std::array<Tensor, kArity> in{args.tensor()...};
    if constexpr (std::is_void_v<Result>)
      core_->call(in, std::span<Tensor>(), where);
    else
      return detail::FunctionResult<Result>::call(*core_, in, where);
  }

  FunctionCore& core() { return *core_; }
  int traces() const { return core_->traces(); }
  observe::RunReport report() const { return core_->report(); }
  ProgramStatistics statistics(Argument<I>... args,
                               std::source_location where = std::source_location::current()) {
    return core_->statistics(std::array<Tensor, kArity>{args.tensor()...}, where);
  }
  std::string explain(Argument<I>... args, std::source_location where = std::source_location::current()) {
    return core_->explain(std::array<Tensor, kArity>{args.tensor()...}, where);
  }

 private:
  std::shared_ptr<FunctionCore> core_;
};

template <class F>
Function<F> function(F f, FunctionOptions options = {},
                     std::source_location where = std::source_location::current()) {
  return Function<F>(std::move(f), std::move(options), where);
}

}  // namespace lockstep
