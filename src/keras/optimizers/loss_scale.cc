#include "graph/emit.h"
#include "keras/fields.h"
#include "keras/optimizers/core.h"
#include "keras/optimizers/rules.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::optimizers {
namespace {

constexpr const char* kClass = "LossScaleOptimizer";

// x - x is 0 where x is finite and NaN elsewhere; the extremes carry every NaN and infinity. Reading each
// gradient twice is cheaper than writing a mask of it.
// `differ`: between replicas, all of which count.
Tensor all_finite(std::span<const Tensor> tensors, bool differ) {
  Tensor sum;
  const auto include = [&](const Tensor& extreme) {
    const Tensor zero = cast(extreme - extreme, DType::float32);
    sum = sum.defined() ? sum + zero : zero;
  };
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && tensor.size() > 0) include(reduce_max(tensor)), include(reduce_min(tensor));
  if (!sum.defined()) return fill({DType::boolean, {}}, 1);
  return equal(differ ? all_reduce_sum(sum) : sum, 0.0);
}

class LossScaleCore final : public Optimizer::Core {
 public:
  LossScaleCore(std::shared_ptr<Core> inner, LossScaleOptions options)
      : inner_(std::move(inner)),
        options_(std::move(options)),
        finite_steps_(Tensor::scalar(int64_t{0}), {.name = "step_counter", .trainable = false}),
        scale_(Tensor::scalar(static_cast<float>(options_.initial_scale)),
               {.name = "dynamic_scale", .trainable = false}) {
    if (options_.name.empty()) options_.name = to_snake_case(kClass);
  }

  void build(const std::vector<Variable>& variables) override { inner_->build(variables); }

  void apply(std::span<const Tensor> gradients, const std::vector<Variable>& variables, const Tensor& guard,
             std::source_location where) override {
    const Tensor scale = scale_.value(), counted = finite_steps_.value();
    Tensor finite = all_finite(gradients, accumulates());
    TensorList unscaled;
    for (const Tensor& g : gradients) unscaled.push_back(g.defined() ? g / cast(scale, g.dtype()) : g);
    inner_->apply(unscaled, variables, guard.defined() ? logical_and(guard, finite) : finite, where);

    const Tensor grows = equal(counted, options_.dynamic_growth_steps - 1);
    const Tensor doubled = scale * 2.0;
    // A scale that is infinite would never come back.
    const Tensor raised = lockstep::where(logical_and(grows, equal(doubled - doubled, 0.0)), doubled, scale);
    scale_.assign(lockstep::where(finite, raised, scale * 0.5), where);
    finite_steps_.assign(lockstep::where(finite, lockstep::where(grows, 0, counted + 1), 0), where);
  }

  Tensor scale_loss(const Tensor& loss, std::source_location where) const override {
    return loss * cast(scale_.value(where), loss.dtype());
  }
  bool scales_loss() const override { return true; }
  bool accumulates() const override { return inner_->accumulates(); }
  void finalize(const std::vector<Variable>& variables, std::source_location where) override {
    inner_->finalize(variables, where);
  }
  void exclude_from_weight_decay(std::function<bool(const Variable&)> excluded) override {
    inner_->exclude_from_weight_decay(std::move(excluded));
  }

  const LearningRate& rate() const override { return inner_->rate(); }
  const Variable& learning_rate() const override { return inner_->learning_rate(); }
  const Variable& iterations() const override { return inner_->iterations(); }
  Tensor current_rate() const override { return inner_->current_rate(); }
  std::vector<Variable> variables() const override {
    std::vector<Variable> all = {finite_steps_, scale_};
    for (const Variable& variable : inner_->variables()) all.push_back(variable);
    return all;
  }
  std::vector<std::pair<std::string, Variable>> named_variables() const override {
    std::vector<std::pair<std::string, Variable>> all = inner_->named_variables();
    for (const Variable& own : {finite_steps_, scale_}) all.emplace_back(own.name(), own);
    return all;
  }
  bool has_slots() const override { return inner_->has_slots(); }
  void when_grown(const void* key, std::function<void()> call) override {
    inner_->when_grown(key, std::move(call));
  }

  const std::string& name() const override { return options_.name; }
  std::string class_name() const override { return kClass; }
  Json config() const override {
    return Json::object({{"name", options_.name},
                         {"inner_optimizer", Optimizer(inner_).serialize()},
                         {"initial_scale", options_.initial_scale},
                         {"dynamic_growth_steps", options_.dynamic_growth_steps}});
  }

 private:
  std::shared_ptr<Core> inner_;
  LossScaleOptions options_;
  Variable finite_steps_;
  Variable scale_;
};

struct Settings {
  Json inner_optimizer;
  LossScaleOptions options;
  void visit(auto& v) {
    v("name", options.name), v("inner_optimizer", inner_optimizer);
    v("initial_scale", options.initial_scale, kPositive),
        v("dynamic_growth_steps", options.dynamic_growth_steps, kPositive);
  }
};

}  // namespace

Optimizer LossScaleOptimizer(const Optimizer& inner, const LossScaleOptions& options,
                             std::source_location where) {
  const CallSite site(where);
  require(!inner.core()->scales_loss(), ErrorCode::invalid_argument, where, kClass, ": \"", inner.name(),
          "\" scales the loss itself; leave its loss_scale_factor out");
  check_fields(Settings{{}, options}, kClass);
  return Optimizer(std::make_shared<LossScaleCore>(inner.core(), options));
}

Optimizer loss_scale_from_config(const Json& config) {
  const auto settings = read_fields<Settings>(config);
  const auto here = std::source_location::current();
  try {
    return LossScaleOptimizer(Optimizer::deserialize(settings.inner_optimizer, here), settings.options, here);
  } catch (Error& error) {
    error.note("in \"inner_optimizer\"");
    throw;
  }
}

}  // namespace lockstep::keras::optimizers
