#include "lockstep/execute/function.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/as_error.h"
#include "comm/workers.h"
#include "compile/passes/passes.h"
#include "compile/passes/transfers.h"
#include "device/ceilings.h"
#include "device/memory_ledger.h"
#include "execute/replicated_program.h"
#include "execute/split_executable.h"
#include "execute/step.h"
#include "execute/trace_function.h"
#include "graph/eager.h"
#include "graph/emit.h"
#include "graph/numerics.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/log.h"
#include "lockstep/device/config.h"
#include "lockstep/observe/step_clock.h"
#include "observe/loop.h"
#include "tensor/tensor_impl.h"

namespace lockstep {

using compile::Plan;
using compile::PlanOptions;
using execute::ReplicaLayout;

class FunctionCore::Impl {
 public:
  Impl(Body body, FunctionOptions options, std::source_location where)
      : body_(std::move(body)), options_(std::move(options)), where_(CallSite::of(where)) {
    const size_t devices = std::max<size_t>(1, options_.replicas.devices.size());
    require(!options_.clock || options_.clock->replicas() == static_cast<int>(devices),
            ErrorCode::invalid_argument, where, "function \"", options_.name, "\" runs on ", devices,
            " devices but its clock has ", options_.clock ? options_.clock->replicas() : 0, " replicas");
  }

  void call(std::span<const Tensor> inputs, std::span<Tensor> outputs, std::source_location where,
            std::span<const int64_t> worker_rows) {
    if (runs_op_by_op()) {
      TensorList results = body_(inputs);
      check_outputs(results.size(), outputs.size(), where);
      std::move(results.begin(), results.end(), outputs.begin());
      return;
    }
    LoopStep step(*this);
    CompiledSignature& compiled = compiled_for(inputs, where, worker_rows);
    check_outputs(compiled.executable->num_outputs(), outputs.size(), where);
    compiled.executable->run(contiguous_inputs(inputs, where), outputs, step.clock(*this));
    step.made(inputs);
  }

  TensorList call(std::span<const Tensor> inputs, std::source_location where,
                  std::span<const int64_t> worker_rows) {
    if (runs_op_by_op()) return body_(inputs);
    LoopStep step(*this);
    CompiledSignature& compiled = compiled_for(inputs, where, worker_rows);
    TensorList outputs(compiled.executable->num_outputs());
    compiled.executable->run(contiguous_inputs(inputs, where), outputs, step.clock(*this));
    step.made(inputs);
    return outputs;
  }

  bool call(const RowRuns& runs, std::span<Tensor> outputs, std::source_location where) {
    if (runs_op_by_op()) return false;
    const int64_t last = runs.first + runs.rows * runs.runs;
    TensorList batch;
    for (const Tensor& array : runs.arrays) {
      const TensorImpl& impl = *array.impl();
      const int64_t examples = runs.order.defined() ? runs.order.size() : array.shape()[0];
      require(array.rank() > 0 && runs.rows <= array.shape()[0] && last <= examples,
              ErrorCode::invalid_argument, where, "function \"", options_.name, "\": ", runs.runs,
              " batches of ", runs.rows, " from row ", runs.first, " of ", examples, " do not exist");
      if (!is_contiguous(array.shape(), impl.strides)) return false;
      Shape shape = array.shape();
      shape[0] = runs.rows;
      batch.push_back(make_view(impl, {array.dtype(), shape}, impl.strides, impl.offset));
    }
    CompiledSignature& compiled = compiled_for(batch, where);
    check_outputs(compiled.executable->num_outputs(), outputs.size(), where);
    return compiled.executable->run_rows(runs, outputs, clock());
  }

  const std::string& name() const { return options_.name; }
  int traces() const { return traces_; }
  observe::RunReport report() const {
    return loop_ ? observe::report_on(loop_->summary(), loop_->title()) : observe::RunReport();
  }

  ProgramStatistics statistics(std::span<const Tensor> inputs, std::source_location where) {
    const CompiledSignature& compiled = compiled_for(inputs, where);
    ProgramStatistics statistics = compiled.statistics;
    const compile::ArenaSize arenas = compiled.executable->arenas();
    statistics.arena_bytes = static_cast<int64_t>(arenas.bytes);
    statistics.peak_bytes = static_cast<int64_t>(arenas.peak);
    statistics.unplanned_bytes = static_cast<int64_t>(arenas.unplanned);
    return statistics;
  }

  std::string explain(std::span<const Tensor> inputs, std::source_location where) {
    return compiled_for(inputs, where).executable->plan().to_string();
  }

 private:
  struct CompiledSignature {
    SpecList signature;
    Device* scope;                 // that of the scopes around the call; null: none
    std::vector<Device*> devices;  // of the arguments, where they decide on which device ops run
    std::unique_ptr<execute::Executable> executable;
    ProgramStatistics statistics;
    compile::PlanSettings settings;
    std::vector<int64_t> rows;  // of each worker; empty where there is one
    int64_t generation = 0;     // of the workers

    // Whether a call with these arguments is one of these, in the scopes and with the settings of now.
    bool serves(std::span<const Tensor> inputs, std::span<const int64_t> worker_rows) const {
      return std::equal(worker_rows.begin(), worker_rows.end(), rows.begin(), rows.end()) &&
             signature.size() == inputs.size() && scope == scoped_device() &&
             settings == compile::PlanSettings{} &&
             std::equal(inputs.begin(), inputs.end(), signature.begin(),
                        [](const Tensor& t, const TensorSpec& spec) { return t.spec() == spec; }) &&
             std::equal(devices.begin(), devices.end(), inputs.begin(),
                        [](const Device* d, const Tensor& t) { return standing(t) == d; });
    }
  };

  // The calls of a function that nobody else times are the steps of a loop.
  class LoopStep {
   public:
    explicit LoopStep(Impl& function)
        : loop_(function.loop()), replicated_(!function.options_.replicas.devices.empty()) {
      if (!loop_) return;
      clock_ = loop_->begin();
      host_.emplace(clock_, observe::Category::host);
    }
    ~LoopStep() {
      host_.reset();
      if (clock_) clock_->abandon_step();
    }
    LoopStep(const LoopStep&) = delete;
    LoopStep& operator=(const LoopStep&) = delete;

    // Where the function tells of its time.
    observe::StepClock* clock(const Impl& function) const { return loop_ ? clock_ : function.options_.clock; }

    void made(std::span<const Tensor> inputs) {
      if (!clock_) return;
      host_.reset();
      // Replicas count their own.
      if (!replicated_) clock_->replica(0).count(observe::Counter::examples, examples_in(inputs));
      clock_ = nullptr;
      loop_->end();
    }

   private:
    // The first dimension, where all arguments that have one agree on it.
    static int64_t examples_in(std::span<const Tensor> inputs) {
      int64_t examples = 0;
      for (const Tensor& input : inputs) {
        if (input.rank() == 0 || examples == input.shape()[0]) continue;
        if (examples != 0) return 0;
        examples = input.shape()[0];
      }
      return examples;
    }

    observe::Loop* loop_;
    bool replicated_;
    observe::StepClock* clock_ = nullptr;  // of the step under way, where it is timed
    std::optional<observe::TimeScopeOfAll> host_;
  };

  observe::StepClock* clock() const { return loop_ ? &loop_->clock() : options_.clock; }
  observe::Loop* loop() {
    if (!loop_ && options_.timed && !options_.clock) {
      std::vector<Device*> devices = options_.replicas.devices;
      const auto replicas = static_cast<int>(std::max<size_t>(1, devices.size()));
      if (devices.empty()) devices = {&current_device()};
      loop_ = std::make_unique<observe::Loop>("function " + options_.name, replicas,
                                              [used = DevicesOfRun(std::move(devices))](
                                                  observe::RunSummary& summary) { used.describe(summary); });
    }
    return loop_.get();
  }

  // Inside another trace the ops join that trace; under a tape they must be seen by it.
  bool runs_op_by_op() const {
    if (Trace::current() || has_recorders()) return true;
    if (!config::functions_run_eagerly()) return false;
    if (options_.replicas.devices.empty()) return true;
    static std::once_flag said;
    std::call_once(said, [&] {
      log(LogLevel::warning, "run_functions_eagerly: function \"", options_.name,
          "\" runs as replicas, which are always compiled; without a strategy it would run op by op");
    });
    return false;
  }

  void check_outputs(size_t returned, size_t expected, std::source_location where) const {
    require(returned == expected, ErrorCode::invalid_argument, where, "function \"", options_.name,
            "\" returned ", returned, " tensors, ", expected, " were expected");
  }

  // The caller's inputs, with strided ones copied. Held here so that nothing is allocated otherwise.
  std::span<const Tensor> contiguous_inputs(std::span<const Tensor> inputs, std::source_location where) {
    const auto dense = [](const Tensor& t) { return is_contiguous(t.shape(), t.impl()->strides); };
    if (std::all_of(inputs.begin(), inputs.end(), dense)) return inputs;
    copies_.assign(inputs.begin(), inputs.end());
    for (Tensor& input : copies_) input = contiguous(input, where);
    return copies_;
  }

  // Replicas run on devices of their own, and a scope decides for all ops.
  bool arguments_place_ops() const { return options_.replicas.devices.empty() && !scoped_device(); }

  // The device on which an argument stands for the placement of ops: with a GPU there, arguments in host
  // memory are brought to it.
  static Device* standing(const Tensor& argument) {
    Device& device = argument.device();
    return device.kind() == DeviceKind::cpu && current_device().kind() == DeviceKind::gpu ? &current_device()
                                                                                          : &device;
  }

  CompiledSignature& compiled_for(std::span<const Tensor> inputs, std::source_location where,
                                  std::span<const int64_t> worker_rows = {}) {
    for (size_t i = 0; i < inputs.size(); ++i)
      require(inputs[i].defined() && !inputs[i].symbolic(), ErrorCode::invalid_argument, where, "function \"",
              options_.name, "\": argument ", i,
              " is undefined or a tensor of a traced function that has ended");
    const int64_t generation = options_.replicas.workers ? options_.replicas.workers->generation() : 0;
    // Workers that have formed anew have other ranks and shares.
    std::erase_if(signatures_, [&](const auto& compiled) { return compiled->generation != generation; });
    std::vector<int64_t> asked;
    if (options_.replicas.workers && worker_rows.empty()) worker_rows = asked = ask_for_rows(inputs, where);
    for (const auto& compiled : signatures_)
      if (compiled->serves(inputs, worker_rows)) return *compiled;
    warn_of_retracing(inputs);
    const observe::CompileScope compiles(clock());
    signatures_.push_back(compile(inputs, {worker_rows.begin(), worker_rows.end()}, where));
    return *signatures_.back();
  }

  static std::vector<bool> split_of(const SpecList& signature) {
    std::vector<bool> split;
    for (const TensorSpec& spec : signature) split.push_back(spec.shape.rank() > 0);
    return split;
  }

  std::vector<int64_t> ask_for_rows(std::span<const Tensor> inputs, std::source_location where) const {
    SpecList signature;
    for (const Tensor& input : inputs) signature.push_back(input.spec());
    return execute::rows_of_step(signature, split_of(signature), options_.replicas, {}, options_.name, where);
  }

  void warn_of_retracing(std::span<const Tensor> inputs) {
    if (signatures_.size() < kRetraceWarning) return;
    const SpecList& last = signatures_.back()->signature;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!(inputs[i].spec() == last[i])) {
        log(LogLevel::warning, "function \"", options_.name, "\" is traced for the ", signatures_.size() + 1,
            "th time: argument ", i, " is ", inputs[i].spec(), ", last time it was ", last[i],
            ". Tracing costs far more than a step; pad or drop the partial batch so that shapes repeat");
        return;
      }
  }

  Graph trace(std::span<const TensorSpec> specs, std::span<Device* const> devices,
              const ReplicaTrace& replica, std::source_location where) {
    ++traces_;
    return execute::trace_function(body_, {.parameters = specs,
                                           .devices = devices,
                                           .replica = replica,
                                           .note = detail::concat("while tracing function \"", options_.name,
                                                                  "\" made at ", file_and_line(where_)),
                                           .made = where_,
                                           .called = where});
  }

  std::unique_ptr<CompiledSignature> compile(std::span<const Tensor> inputs, std::vector<int64_t> rows,
                                             std::source_location where) {
    auto compiled = std::make_unique<CompiledSignature>();
    compiled->rows = std::move(rows);
    if (options_.replicas.workers) compiled->generation = options_.replicas.workers->generation();
    compiled->scope = scoped_device();
    for (const Tensor& input : inputs) compiled->signature.push_back(input.spec());
    if (arguments_place_ops())
      for (const Tensor& input : inputs) compiled->devices.push_back(standing(input));
    if (options_.replicas.devices.empty())
      compile_single(*compiled, where);
    else
      compile_replicated(*compiled, where);
    return compiled;
  }

  void compile_single(CompiledSignature& compiled, std::source_location where) {
    Graph graph = compile::remove_dead_nodes(trace(compiled.signature, compiled.devices, {}, where));
    std::vector<Device*> devices = compile::devices_of(graph);
    if (devices.empty()) devices = {&current_device(where)};
    ReplicaLayout layout;
    layout.devices = {devices[0]};
    PlanOptions options = execute::plan_options(layout, 0);
    const bool split = devices.size() > 1;
    if (split) options.devices = devices;
    const MemoryUseScope use("function " + options_.name);
    std::vector<Plan> plans;
    plans.push_back(make_plan(std::move(graph), options));
    complete_parameters(plans.back(), compiled.signature);
    execute::add_statistics(compiled.statistics, plans[0], execute::Part::per_device, 1);
    log_placement(plans[0], devices);
    if (split)
      compiled.executable = std::make_unique<execute::SplitExecutable>(std::move(plans[0]), options);
    else
      compiled.executable = std::make_unique<execute::StepExecutable>(
          std::move(plans), std::vector<int64_t>{-1}, std::move(layout));
  }

  void log_placement(const Plan& plan, std::span<Device* const> devices) const {
    if (!config::get_log_device_placement()) return;
    for (const compile::KernelCall& call : plan.calls)
      log(LogLevel::info, "function \"", options_.name, "\": ", call.op->name, " -> ",
          *devices[static_cast<size_t>(call.place.device)], " [", call.where.file_name(), ":",
          call.where.line(), "]");
  }

  // Arguments that nothing reads are missing from the graph, but the caller still passes them.
  static void complete_parameters(Plan& plan, const SpecList& signature) {
    plan.parameters.resize(signature.size());
  }

  void compile_replicated(CompiledSignature& compiled, std::source_location where) {
    const std::vector<bool> split = split_of(compiled.signature);
    execute::ReplicatedProgram replicated = execute::compile_replicated(
        compiled.signature, split, options_.replicas,
        execute::rows_of_step(compiled.signature, split, options_.replicas, compiled.rows, options_.name,
                              where),
        [&](const SpecList& specs, const ReplicaTrace& replica) { return trace(specs, {}, replica, where); },
        {.name = options_.name}, where);
    compiled.executable = std::move(replicated.executable);
    compiled.statistics = replicated.statistics;
  }

  static constexpr size_t kRetraceWarning = 5;

  Body body_;
  FunctionOptions options_;
  std::source_location where_;
  std::unique_ptr<observe::Loop> loop_;
  std::vector<std::unique_ptr<CompiledSignature>> signatures_;
  TensorList copies_;
  int traces_ = 0;
};

FunctionCore::FunctionCore(Body body, FunctionOptions options, std::source_location where)
    : impl_(std::make_unique<Impl>(std::move(body), std::move(options), where)) {}
FunctionCore::~FunctionCore() = default;

void FunctionCore::call(std::span<const Tensor> inputs, std::span<Tensor> outputs, std::source_location where,
                        std::span<const int64_t> worker_rows) {
  as_error(impl_->name(), where, [&] { impl_->call(inputs, outputs, where, worker_rows); });
}
TensorList FunctionCore::call(std::span<const Tensor> inputs, std::source_location where,
                              std::span<const int64_t> worker_rows) {
  return as_error(impl_->name(), where, [&] { return impl_->call(inputs, where, worker_rows); });
}
bool FunctionCore::call(const RowRuns& runs, std::span<Tensor> outputs, std::source_location where) {
  return as_error(impl_->name(), where, [&] { return impl_->call(runs, outputs, where); });
}
int FunctionCore::traces() const { return impl_->traces(); }
observe::RunReport FunctionCore::report() const { return impl_->report(); }
ProgramStatistics FunctionCore::statistics(std::span<const Tensor> inputs, std::source_location where) {
  return impl_->statistics(inputs, where);
}
std::string FunctionCore::explain(std::span<const Tensor> inputs, std::source_location where) {
  return impl_->explain(inputs, where);
}

}  // namespace lockstep
