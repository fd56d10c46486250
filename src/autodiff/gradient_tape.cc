#include "lockstep/autodiff/gradient_tape.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "autodiff/custom_gradient.h"
#include "autodiff/tensor_key.h"
#include "autodiff/training_watch.h"
#include "graph/emit.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "tensor/tensor_impl.h"

namespace lockstep {
namespace {

constinit std::atomic<TrainingWatch> training_watch{nullptr};

}  // namespace

constinit const OpDef kCustomGradient{.name = "custom_gradient",
                                      .min_inputs = 0,
                                      .max_inputs = -1,
                                      .infer = [](const InferContext&) -> SpecList { return {}; },
                                      .grad = [](const GradContext& g) -> TensorList {
                                        TensorList gradients;
                                        for (int i = 0; i < g.num_outputs(); ++i)
                                          gradients.push_back(g.dout(i));
                                        TensorList result = (*g.attrs<CustomGradientAttrs>().grad)(gradients);
                                        require(static_cast<int>(result.size()) == g.num_inputs(),
                                                ErrorCode::invalid_argument, std::source_location::current(),
                                                "custom_gradient: the grad function returned ", result.size(),
                                                " gradients for ", g.num_inputs(), " inputs");
                                        return result;
                                      }};

RegisterTrainingWatch::RegisterTrainingWatch(TrainingWatch watch) { training_watch = watch; }

class GradientTape::Recording final : public Recorder {
 public:
  explicit Recording(GradientTapeOptions options) : options_(options) { push_recorder(this); }
  ~Recording() override { remove_recorder(this); }

  void record(const OpDef& op, const Attrs& attrs, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs) override {
    if (!op.grad || std::none_of(inputs.begin(), inputs.end(), [&](const Tensor& t) { return connected(t); }))
      return;
    entries_.push_back({&op, attrs, {inputs.begin(), inputs.end()}, {outputs.begin(), outputs.end()}});
    for (const Tensor& output : outputs)
      if (is_floating(output.dtype())) connected_.insert(key(output));
  }

  void read(const Variable& variable, const Tensor& value) override {
    if (options_.watch_accessed_variables && variable.trainable()) watch(variable, value);
  }

  void watch(const Tensor& tensor) { connected_.insert(key(tensor)); }

  void watch(const Variable& variable, const Tensor& value) {
    connected_.insert(key(value));
    auto& reads = reads_[variable.id()];
    if (reads.empty()) watched_.push_back(variable);
    if (std::none_of(reads.begin(), reads.end(), [&](const Tensor& t) { return key(t) == key(value); }))
      reads.push_back(value);
  }

  TensorList differentiate(std::span<const Tensor> targets, std::span<const GradientSource> sources,
                           std::span<const Tensor> arriving, UnconnectedGradients unconnected,
                           std::source_location where) {
    require_unused(where);
    for (const Tensor& target : targets)
      require(target.defined() && is_floating(target.dtype()), ErrorCode::dtype_mismatch, where,
              "GradientTape::gradient: the target must be a floating-point tensor, received ",
              target.defined() ? detail::concat(target.spec()) : "none");
    if (const TrainingWatch watch = training_watch; watch && !ReplicaTrace::current()) watch(sources, where);
    // A persistent tape must not record its own backward pass; others stop here for good.
    const Suspension suspension(*this);
    TensorList result = backward(targets, sources, arriving, unconnected, where);
    used_ = true;
    if (!options_.persistent) clear();
    return result;
  }

  void stop() {
    stopped_ = true;
    remove_recorder(this);
  }
  void pause() {
    paused_ = true;
    remove_recorder(this);
  }
  void resume() {
    if (paused_ && !stopped_) push_recorder(this);
    paused_ = false;
  }

  const std::vector<Variable>& watched() const { return watched_; }

  void clear() {
    entries_.clear();
    connected_.clear();
    reads_.clear();
    watched_.clear();
  }

  // While it lives, differentiating several times is one use of the tape.
  class OneUse {
   public:
    OneUse(Recording& recording, std::source_location where)
        : recording_(recording), persistent_(recording.options_.persistent) {
      recording.require_unused(where);
      recording.options_.persistent = true;
    }
    OneUse(const OneUse&) = delete;
    OneUse& operator=(const OneUse&) = delete;
    ~OneUse() {
      recording_.options_.persistent = persistent_;
      if (persistent_) return;
      remove_recorder(&recording_);
      recording_.clear();
    }

   private:
    Recording& recording_;
    bool persistent_;
  };

 private:
  void require_unused(std::source_location where) const {
    require(!used_ || options_.persistent, ErrorCode::failed_precondition, where,
            "GradientTape::gradient was called a second time on a tape that is not persistent: its record "
            "was released by "
            "the first call. Make it with GradientTape({.persistent = true})");
  }

  struct Suspension {
    explicit Suspension(Recording& recording) : recording(recording) { remove_recorder(&recording); }
    ~Suspension() {
      if (recording.options_.persistent && !recording.stopped_ && !recording.paused_)
        push_recorder(&recording);
    }
    Recording& recording;
  };

  struct Entry {
    const OpDef* op;
    Attrs attrs;
    TensorList inputs;
    TensorList outputs;
  };

  using Key = TensorKey;
  using KeyHash = TensorKeyHash;
  static Key key(const Tensor& tensor) { return key_of(tensor); }

  bool connected(const Tensor& tensor) const { return connected_.contains(key(tensor)); }

  // Only entries between the sources and the target are worth a backward computation.
  std::vector<bool> entries_leading_to_sources(const std::unordered_set<Key, KeyHash>& sources,
                                               std::unordered_set<Key, KeyHash>& reached) const {
    reached = sources;
    std::vector<bool> leads(entries_.size(), false);
    for (size_t i = 0; i < entries_.size(); ++i) {
      leads[i] = std::any_of(entries_[i].inputs.begin(), entries_[i].inputs.end(),
                             [&](const Tensor& t) { return reached.contains(key(t)); });
      if (leads[i])
        for (const Tensor& output : entries_[i].outputs) reached.insert(key(output));
    }
    return leads;
  }

  // `given[i]`: what arrives at targets[i]; undefined: ones.
  TensorList backward(std::span<const Tensor> targets, std::span<const GradientSource> sources,
                      std::span<const Tensor> given, UnconnectedGradients unconnected,
                      std::source_location where) {
    std::unordered_set<Key, KeyHash> wanted;
    for (const GradientSource& source : sources) {
      if (source.variable().defined()) {
        for (const Tensor& value : reads_[source.variable().id()]) wanted.insert(key(value));
      } else {
        require(source.tensor().defined(), ErrorCode::invalid_argument, where,
                "GradientTape::gradient: a source is none");
        wanted.insert(key(source.tensor()));
      }
    }
    std::unordered_set<Key, KeyHash> reached;
    const std::vector<bool> leads = entries_leading_to_sources(wanted, reached);

    std::unordered_map<Key, Tensor, KeyHash> gradients;
    for (size_t i = 0; i < targets.size(); ++i) {
      const Tensor& target = targets[i];
      if (!reached.contains(key(target))) continue;
      if (given[i].defined())
        require(given[i].spec() == target.spec(), ErrorCode::shape_mismatch, where,
                "GradientTape::gradient: output_gradient is ", given[i].spec(), ", the target is ",
                target.spec());
      const BesideScope there(target);
      const Tensor first = given[i].defined() ? given[i] : ones_like(target);
      Tensor& sum = gradients[key(target)];
      sum = sum.defined() ? add(sum, first) : first;
    }
    for (size_t i = entries_.size(); i-- > 0;) {
      if (!leads[i]) continue;
      const Entry& entry = entries_[i];
      TensorList arriving;
      bool any = false;
      for (const Tensor& output : entry.outputs) {
        const auto it = gradients.find(key(output));
        arriving.push_back(it == gradients.end() ? Tensor() : it->second);
        any = any || arriving.back().defined();
      }
      if (!any) continue;
      std::vector<bool> needed;
      for (const Tensor& input : entry.inputs) needed.push_back(reached.contains(key(input)));
      // A gradient is computed where its op ran.
      const BesideScope there(entry.outputs.empty() ? Tensor() : entry.outputs[0]);
      TensorList leaving;
      try {
        leaving = entry.op->grad(
            GradContext(*entry.op, entry.attrs, entry.inputs, entry.outputs, arriving, needed));
      } catch (Error& error) {
        error.note(detail::concat("in the gradient of ", entry.op->name));
        throw;
      }
      for (size_t k = 0; k < leaving.size() && k < entry.inputs.size(); ++k) {
        if (!leaving[k].defined() || !needed[k]) continue;
        Tensor& sum = gradients[key(entry.inputs[k])];
        sum = sum.defined() ? add(sum, leaving[k]) : leaving[k];
      }
    }
    TensorList result;
    for (const GradientSource& source : sources)
      result.push_back(gradient_of(source, gradients, unconnected));
    return result;
  }

  Tensor gradient_of(const GradientSource& source, std::unordered_map<Key, Tensor, KeyHash>& gradients,
                     UnconnectedGradients unconnected) {
    Tensor total;
    const auto take = [&](const Tensor& value) {
      const auto it = gradients.find(key(value));
      if (it == gradients.end()) return;
      const BesideScope there(total);
      total = total.defined() ? add(total, it->second) : it->second;
    };
    const bool is_variable = source.variable().defined();
    if (is_variable)
      for (const Tensor& value : reads_[source.variable().id()]) take(value);
    else
      take(source.tensor());
    const VariableReadScope as_kept;
    if (!total.defined() && unconnected == UnconnectedGradients::zero) {
      const BesideScope there(is_variable ? source.variable().value() : source.tensor());
      return is_variable ? zeros_like(source.variable()) : zeros_like(source.tensor());
    }
    return total;
  }

  GradientTapeOptions options_;
  std::vector<Entry> entries_;
  std::unordered_set<Key, KeyHash> connected_;
  std::unordered_map<uint64_t, TensorList> reads_;  // by variable id: every value it was read as
  std::vector<Variable> watched_;
  bool used_ = false;
  bool stopped_ = false;
  bool paused_ = false;
};

GradientTape::GradientTape(GradientTapeOptions options) : recording_(std::make_unique<Recording>(options)) {}
GradientTape::~GradientTape() = default;

void GradientTape::watch(const Tensor& tensor, std::source_location where) {
  require(tensor.defined() && is_floating(tensor.dtype()), ErrorCode::dtype_mismatch, where,
          "GradientTape::watch: only floating-point tensors have gradients, received ",
          tensor.defined() ? detail::concat(tensor.spec()) : "none");
  recording_->watch(tensor);
}

void GradientTape::watch(const Variable& variable, std::source_location where) {
  const VariableReadScope as_kept;
  recording_->watch(variable, variable.value(where));
}

TensorList GradientTape::gradient(const Tensor& target, std::span<const GradientSource> sources,
                                  const GradientOptions& options, std::source_location where) {
  return recording_->differentiate({&target, 1}, sources, {&options.output_gradient, 1},
                                   options.unconnected_gradients, where);
}

TensorList GradientTape::gradient(std::span<const Tensor> targets, std::span<const GradientSource> sources,
                                  std::span<const Tensor> output_gradients, std::source_location where) {
  require(targets.size() == output_gradients.size(), ErrorCode::invalid_argument, where,
          "GradientTape::gradient: ", output_gradients.size(), " output gradients for ", targets.size(),
          " targets");
  return recording_->differentiate(targets, sources, output_gradients, UnconnectedGradients::none, where);
}

Tensor GradientTape::gradient(const Tensor& target, const GradientSource& source,
                              const GradientOptions& options, std::source_location where) {
  return gradient(target, std::span(&source, 1), options, where).front();
}

TensorList GradientTape::gradient(const Tensor& target, const std::vector<Variable>& sources,
                                  const GradientOptions& options, std::source_location where) {
  return gradient(target, std::vector<GradientSource>(sources.begin(), sources.end()), options, where);
}

namespace {

const TensorSpec& spec_of(const GradientSource& source) {
  return source.variable().defined() ? source.variable().spec() : source.tensor().spec();
}

// Row i has 1 in its i-th place.
Tensor unit_rows(int64_t count, DType dtype) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), int64_t{0});
  return reshape(one_hot(Tensor::from(all, {count}), count, dtype), {count, count});
}

}  // namespace

Tensor GradientTape::rows_of(const Tensor& target, const GradientSource& source, const Shape& seed_shape,
                             std::source_location where) {
  const Recording::OneUse one_use(*recording_, where);
  const int64_t count = seed_shape.size();
  const TensorSpec& of = spec_of(source);
  Shape row_shape = of.shape;
  row_shape.insert(0, 1);
  TensorList rows;
  const Tensor units = unit_rows(count, target.dtype());
  for (int64_t i = 0; i < count; ++i) {
    const Tensor seed = broadcast_to(reshape(slice(units, {i, 0}, {1, count}), seed_shape), target.shape());
    const Tensor row =
        gradient(target, source,
                 {.unconnected_gradients = UnconnectedGradients::zero, .output_gradient = seed}, where);
    rows.push_back(reshape(row, row_shape));
  }
  row_shape[0] = 0;
  return rows.empty() ? fill({of.dtype, row_shape}, 0.0, where) : concat(rows, 0, where);
}

Tensor GradientTape::jacobian(const Tensor& target, const GradientSource& source,
                              std::source_location where) {
  Shape shape = target.shape();
  for (const int64_t d : spec_of(source).shape) shape.push_back(d);
  return reshape(rows_of(target, source, target.shape(), where), shape);
}

Tensor GradientTape::batch_jacobian(const Tensor& target, const GradientSource& source,
                                    std::source_location where) {
  const Shape& of = spec_of(source).shape;
  require(target.rank() > 0 && of.rank() > 0 && target.shape()[0] == of[0], ErrorCode::shape_mismatch, where,
          "GradientTape::batch_jacobian: target and source are batches of as many examples, received shapes ",
          target.shape(), " and ", of);
  Shape one_example = target.shape(), shape = target.shape();
  one_example[0] = 1;
  for (int d = 1; d < of.rank(); ++d) shape.push_back(of[d]);
  return reshape(moveaxis(rows_of(target, source, one_example, where), {0}, {1}), shape);
}

const std::vector<Variable>& GradientTape::watched_variables() const { return recording_->watched(); }

void GradientTape::stop_recording() { recording_->stop(); }
void GradientTape::pause() { recording_->pause(); }
void GradientTape::resume() { recording_->resume(); }
void GradientTape::reset() { recording_->clear(); }

TensorList custom_gradient(const std::function<CustomGradient(std::span<const Tensor>)>& f,
                           std::span<const Tensor> inputs, std::source_location where) {
  CustomGradient result;
  {
    const RecorderPause pause;
    result = f(inputs);
    // New tensors, so that a function which returns one of its inputs still counts as a step.
    for (Tensor& output : result.outputs) output = identity(TensorArg(output, where));
  }
  CustomGradientAttrs attrs{std::make_shared<GradFunction>(std::move(result.grad)), nullptr};
  if (result.repeatable) attrs.again = std::make_shared<CustomGradientFunction>(f);
  tell_recorders(kCustomGradient, std::move(attrs), inputs, result.outputs);
  return std::move(result.outputs);
}

}  // namespace lockstep
