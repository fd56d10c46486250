#include "lockstep/autodiff/recompute_grad.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autodiff/custom_gradient.h"
#include "autodiff/tensor_key.h"
#include "graph/emit.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/math.h"
#include "ops/array/barrier.h"

namespace lockstep {
namespace {

// What a function did: its ops, with numbers in the place of tensors. It holds what came from outside and
// what cannot be computed a second time, and nothing else.
class Recomputation {
 public:
  struct Result {
    int value;
    size_t output;  // of the op
  };
  struct RecordedOp {
    const OpDef* op;
    Attrs attrs;
    std::vector<int> inputs;
    std::vector<Result> results;
    Device* device;  // where it ran; null: the trace does not say
    bool repeats;
  };

  // The results of f(inputs), where `inputs` stand for those that were recorded.
  TensorList run(std::span<const Tensor> inputs) const {
    TensorList values(values_);
    for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(inputs_[i])] = inputs[i];
    for (const auto& [value, tensor] : kept_) values[static_cast<size_t>(value)] = tensor;
    for (const RecordedOp& recorded : ops_) {
      TensorList operands;
      for (const int value : recorded.inputs) operands.push_back(values[static_cast<size_t>(value)]);
      if (!recorded.repeats) {
        TensorList results;
        for (const Result& result : recorded.results)
          results.push_back(values[static_cast<size_t>(result.value)]);
        tell_recorders(*recorded.op, recorded.attrs, operands, results);
        continue;
      }
      const TensorList results = repeat(recorded, operands);
      for (const Result& result : recorded.results)
        values[static_cast<size_t>(result.value)] = results[result.output];
    }
    TensorList outputs;
    for (const int value : outputs_) outputs.push_back(values[static_cast<size_t>(value)]);
    return outputs;
  }

  const std::source_location& where() const { return where_; }
  // Whether this input is a weight. Weights are there anyhow, and so is what is made of them alone: they wait
  // for nothing.
  bool is_weight(int input) const { return is_weight_[static_cast<size_t>(input)]; }

 private:
  friend class Recording;
  TensorList repeat(const RecordedOp& recorded, std::span<const Tensor> inputs) const;

  std::vector<RecordedOp> ops_;
  int values_ = 0;
  std::vector<int> inputs_, outputs_;
  std::vector<bool> is_weight_;
  std::vector<std::pair<int, Tensor>> kept_;
  std::source_location where_;
};

struct RecomputeAttrs {
  std::shared_ptr<const Recomputation> recomputation;
  bool operator==(const RecomputeAttrs&) const = default;
  void visit(auto&& v) const { v("recomputation", reinterpret_cast<uintptr_t>(recomputation.get())); }
};

// Nothing of the second run may begin before a gradient has arrived: else the values that it makes would be
// there as long as if they had been kept. Only programs have an order of their own; eager ops run when they
// are called.
Tensor after(const Tensor& input, std::span<const Tensor> arrived, std::source_location where) {
  return Trace::current() ? barrier(input, arrived, where) : input;
}

TensorList gradient(const GradContext& g) {
  const Recomputation& recomputation = *g.attrs<RecomputeAttrs>().recomputation;
  TensorList arrived;
  for (int i = 0; i < g.num_outputs(); ++i)
    if (g.has_dout(i)) arrived.push_back(g.dout(i));
  TensorList inputs;
  std::vector<GradientSource> sources;
  GradientTape tape({.watch_accessed_variables = false});
  for (int i = 0; i < g.num_inputs(); ++i) {
    inputs.push_back(recomputation.is_weight(i) ? g.in(i) : after(g.in(i), arrived, recomputation.where()));
    if (!g.needs(i) || !is_floating(g.in(i).dtype())) continue;
    tape.watch(inputs.back());
    sources.emplace_back(inputs.back());
  }
  const TensorList again = recomputation.run(inputs);
  TensorList targets;
  for (int i = 0; i < g.num_outputs(); ++i)
    if (g.has_dout(i)) targets.push_back(again[static_cast<size_t>(i)]);
  TensorList found = tape.gradient(targets, sources, arrived);
  TensorList gradients(inputs.size());
  size_t next = 0;
  for (int i = 0; i < g.num_inputs(); ++i)
    if (g.needs(i) && is_floating(g.in(i).dtype()))
      gradients[static_cast<size_t>(i)] = std::move(found[next++]);
  return gradients;
}

// Never emitted: tapes see it, as the one op that leads from what a function reads to what it returns.
constinit const OpDef kRecompute{.name = "recompute_grad",
                                 .min_inputs = 0,
                                 .max_inputs = -1,
                                 .infer = [](const InferContext&) -> SpecList { return {}; },
                                 .grad = gradient};

TensorList Recomputation::repeat(const RecordedOp& recorded, std::span<const Tensor> inputs) const {
  const Trace* trace = Trace::current();
  std::optional<DeviceScope> there;
  if (recorded.device && (!trace || trace->places())) there.emplace(*recorded.device);
  if (recorded.op == &kCustomGradient)
    return custom_gradient(*recorded.attrs.as<CustomGradientAttrs>().again, inputs, where_);
  if (recorded.op != &kRecompute) return emit(*recorded.op, inputs, recorded.attrs, where_);
  TensorList outputs;
  {
    const RecorderPause pause;
    outputs = recorded.attrs.as<RecomputeAttrs>().recomputation->run(inputs);
  }
  tell_recorders(kRecompute, recorded.attrs, inputs, outputs);
  return outputs;
}

// Makes a Recomputation of what happens while it lives.
class Recording final : public Recorder {
 public:
  explicit Recording(std::source_location where) {
    done_.where_ = CallSite::of(where);
    push_recorder(this);
  }
  ~Recording() override { remove_recorder(this); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void record(const OpDef& op, const Attrs& attrs, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs) override {
    Recomputation::RecordedOp recorded{&op, attrs, {}, {}, device_of(outputs), repeats(op, attrs)};
    // Called again, the function will say how to differentiate it; what it said now holds what it computed.
    if (&op == &kCustomGradient && recorded.repeats)
      recorded.attrs = CustomGradientAttrs{nullptr, attrs.as<CustomGradientAttrs>().again};
    for (const Tensor& input : inputs) recorded.inputs.push_back(value_of(input));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& output = outputs[i];
      const auto [known, added] = values_.emplace(key_of(output), done_.values_);
      if (!added) continue;
      ++done_.values_;
      from_outside_.emplace_back();
      // A gradient inside may have given a control-flow op more results, which are told of alone.
      recorded.results.push_back(
          {known->second, output.symbolic() ? static_cast<size_t>(output.impl()->symbol.output) : i});
      if (!recorded.repeats) done_.kept_.emplace_back(known->second, output);
    }
    done_.ops_.push_back(std::move(recorded));
  }

  void read(const Variable& variable, const Tensor& value) override {
    reads_.emplace_back(variable, value);
    if (variable.trainable()) weights_.insert(key_of(value));
  }

  bool made(const Tensor& tensor) const {
    const auto found = values_.find(key_of(tensor));
    return found != values_.end() && !from_outside_[static_cast<size_t>(found->second)].defined();
  }

  // Ends the recording. `inputs`: gets what the function used from outside, as far as its outputs depend on
  // it.
  std::shared_ptr<const Recomputation> finish(std::span<const Tensor> outputs, TensorList& inputs) {
    for (const Tensor& output : outputs) done_.outputs_.push_back(value_of(output));
    std::vector<bool> needed(static_cast<size_t>(done_.values_), false);
    for (const int value : done_.outputs_) needed[static_cast<size_t>(value)] = true;
    std::vector<Recomputation::RecordedOp> used_ops;
    for (size_t i = done_.ops_.size(); i-- > 0;) {
      Recomputation::RecordedOp& recorded = done_.ops_[i];
      const bool used = std::any_of(
          recorded.results.begin(), recorded.results.end(),
          [&](const auto& result) { return static_cast<bool>(needed[static_cast<size_t>(result.value)]); });
      if (!used) continue;
      for (const int value : recorded.inputs) needed[static_cast<size_t>(value)] = true;
      used_ops.push_back(std::move(recorded));
    }
    done_.ops_.assign(std::make_move_iterator(used_ops.rbegin()), std::make_move_iterator(used_ops.rend()));
    std::erase_if(done_.kept_, [&](const auto& kept) { return !needed[static_cast<size_t>(kept.first)]; });
    for (int value = 0; value < done_.values_; ++value) {
      const Tensor& tensor = from_outside_[static_cast<size_t>(value)];
      if (!needed[static_cast<size_t>(value)] || !tensor.defined()) continue;
      inputs.push_back(tensor);
      done_.inputs_.push_back(value);
      done_.is_weight_.push_back(weights_.contains(key_of(tensor)));
    }
    return std::make_shared<Recomputation>(std::move(done_));
  }

  const std::vector<std::pair<Variable, Tensor>>& reads() const { return reads_; }

 private:
  // Replicas meet once in a sum, and an effect happens once.
  static bool repeats(const OpDef& op, const Attrs& attrs) {
    if (&op == &kCustomGradient) return attrs.as<CustomGradientAttrs>().again != nullptr;
    return op.pure && &op != &kAllReduceSum;
  }

  static Device* device_of(std::span<const Tensor> outputs) {
    if (outputs.empty()) return nullptr;
    const Tensor& output = outputs[0];
    if (!output.symbolic()) return &output.impl()->storage->device();
    const Trace* own = Trace::of(output);
    return own ? own->device_of(output) : nullptr;
  }

  int value_of(const Tensor& tensor) {
    const auto [known, added] = values_.emplace(key_of(tensor), done_.values_);
    if (added) {
      ++done_.values_;
      from_outside_.push_back(tensor);
    }
    return known->second;
  }

  Recomputation done_;
  std::unordered_map<TensorKey, int, TensorKeyHash> values_;
  TensorList from_outside_;  // by value; undefined: made inside
  std::unordered_set<TensorKey, TensorKeyHash> weights_;
  std::vector<std::pair<Variable, Tensor>> reads_;
};

}  // namespace

TensorList detail::recompute(const std::function<TensorList()>& f, std::source_location where) {
  if (!has_recorders()) return f();
  TensorList outputs, inputs;
  std::shared_ptr<const Recomputation> recomputation;
  std::vector<std::pair<Variable, Tensor>> reads;
  {
    const RecorderPause pause;
    Recording recording(where);
    outputs = f();
    for (Tensor& output : outputs) {
      require(output.defined(), ErrorCode::invalid_argument, where,
              "recompute_grad: the function returned an undefined tensor");
      // A tensor of its own, so that a function which returns what it was given still counts as one.
      if (!recording.made(output)) output = identity(TensorArg(output, where));
    }
    recomputation = recording.finish(outputs, inputs);
    reads = recording.reads();
  }
  for (const auto& [variable, value] : reads) tell_recorders_of_read(variable, value);
  tell_recorders(kRecompute, RecomputeAttrs{std::move(recomputation)}, inputs, outputs);
  return outputs;
}

}  // namespace lockstep
