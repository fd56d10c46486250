#include <algorithm>

#include "distribute/one_device.h"
#include "graph/emit.h"
#include "keras/optimizers/core.h"
#include "keras/optimizers/rules.h"
#include "keras/range.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::optimizers {

Optimizer::Optimizer(std::shared_ptr<const Rule> rule, const OptimizerOptions& options,
                     std::source_location where)
    : core_(std::make_shared<RuleCore>(std::move(rule), options, where)) {}
Optimizer::Optimizer(const char* name, std::source_location where)
    : Optimizer(optimizer_from_json(name, where)) {}
Optimizer::Optimizer(const std::string& name, std::source_location where)
    : Optimizer(optimizer_from_json(name, where)) {}

Optimizer::Core& Optimizer::checked(std::source_location where) const {
  require(core_ != nullptr, ErrorCode::failed_precondition, where,
          "this Optimizer was default-constructed: it names no optimizer; assign one, such as "
          "optimizers::Adam(), before it is used");
  return *core_;
}

void Optimizer::build(const std::vector<Variable>& variables, std::source_location where) const {
  const CallSite site(where);
  checked(where).build(variables);
}

void Optimizer::apply_gradients(std::span<const Tensor> gradients, const std::vector<Variable>& variables,
                                std::source_location where) const {
  const CallSite site(where);
  checked(where);
  require(
      gradients.size() == variables.size(), ErrorCode::invalid_argument, where,
      "apply_gradients: ", gradients.size(), " gradients for ", variables.size(), " variables",
      variables.empty() ? "; a model has its variables once it is built: call it, or build(), first" : "");
  require(
      std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) { return g.defined(); }),
      ErrorCode::invalid_argument, where,
      "apply_gradients: no variable has a gradient; is the loss computed from them, inside the tape's life?");
  // All of them before the first update: a wrong one leaves every variable as it was.
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!gradients[i].defined() || gradients[i].spec() == variables[i].spec()) continue;
    const bool shape = gradients[i].shape() != variables[i].shape();
    fail(shape ? ErrorCode::shape_mismatch : ErrorCode::dtype_mismatch, where,
         "apply_gradients: the gradient of variable \"", variables[i].name(), "\" must be ",
         variables[i].spec(), ", received ", gradients[i].spec());
  }
  distribute::require_replicas(variables, core_->iterations().owner(), where);
  // Updates are not part of what a tape differentiates, and work on variables as they are kept.
  const RecorderPause pause;
  const VariableReadScope as_kept;
  if (core_->accumulates())
    core_->apply(gradients, variables, {}, where);
  else
    core_->apply(all_reduce_sum(gradients, where), variables, {}, where);
}

Tensor Optimizer::scale_loss(const TensorArg& loss) const {
  return checked(loss.where()).scale_loss(loss.tensor("scale_loss"), loss.where());
}

void Optimizer::finalize_variable_values(const std::vector<Variable>& variables,
                                         std::source_location where) const {
  const RecorderPause pause;
  const VariableReadScope as_kept;
  checked(where).finalize(variables, where);
}

void Optimizer::exclude_from_weight_decay(std::vector<std::string> words, std::source_location where) const {
  exclude_from_weight_decay(
      [words = std::move(words)](const Variable& variable) {
        return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
          return variable.name().find(word) != std::string::npos;
        });
      },
      where);
}
void Optimizer::exclude_from_weight_decay(std::function<bool(const Variable&)> excluded,
                                          std::source_location where) const {
  checked(where).exclude_from_weight_decay(std::move(excluded));
}

const Variable& Optimizer::learning_rate(std::source_location where) const {
  const Core& core = checked(where);
  require(!core.rate().is_schedule(), ErrorCode::failed_precondition, where, "optimizer \"", core.name(),
          "\": the learning rate follows a schedule; make the optimizer with a number to set it, or read "
          "current_learning_rate()");
  return core_->learning_rate();
}

void Optimizer::set_learning_rate(double rate, std::source_location where) const {
  const CallSite site(where);
  const Variable& variable = learning_rate(where);
  require_in(kNotNegative, "set_learning_rate", "learning_rate", rate);
  variable.assign(Tensor::full(variable.dtype(), {}, rate), where);
}

const LearningRateSchedule& Optimizer::schedule(std::source_location where) const {
  static const LearningRateSchedule none;
  return checked(where).rate().is_schedule() ? core_->rate().schedule() : none;
}

double Optimizer::current_learning_rate(std::source_location where) const {
  const TracePause outside;
  return checked(where).current_rate().item<double>();
}

const Variable& Optimizer::iterations(std::source_location where) const {
  return checked(where).iterations();
}
std::vector<Variable> Optimizer::variables(std::source_location where) const {
  return checked(where).variables();
}
const std::string& Optimizer::name(std::source_location where) const { return checked(where).name(); }

Json Optimizer::serialize(std::source_location where) const {
  checked(where);
  return serialized("keras.optimizers", core_->class_name(), core_->config());
}

Optimizer Optimizer::deserialize(const Json& json, std::source_location where) {
  return optimizer_from_json(json, where);
}

}  // namespace lockstep::keras::optimizers
