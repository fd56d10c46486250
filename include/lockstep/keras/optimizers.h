// Optimizers with Keras' formulas, defaults and names.
//
//   auto optimizer =
//       optimizers::Adam({.learning_rate = schedules::CosineDecay(1e-3, 10'000), .clipnorm = 1});
//   optimizer.apply_gradients(tape.gradient(optimizer.scale_loss(loss), weights), weights);
//
// An update is one pass over a variable, its slots and its gradient, in place when compiled. Everything that
// changes from step to step (rate, counters, scales, whether to update at all) lives in variables and is
// computed inside the compiled step: nothing is traced again.
//
// What happens in which order: the gradient is divided by the loss scale, averaged with those that were
// accumulated, clipped; then weight decay, the rule's update, the variable's constraint, the moving average.
// Under replicas the gradients are summed over them first: all of this acts on the sum.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/graph/tensor_arg.h"
#include "lockstep/graph/variable.h"
#include "lockstep/keras/schedules.h"

namespace lockstep::train {
class TrackedObject;
}

namespace lockstep::keras::optimizers {

struct OptimizerOptions;

// A handle: copies share rate, slots and counters, which belong to one thread at a time.
class Optimizer {
 public:
  class Core;
  class Rule;
  Optimizer() = default;  // undefined: to be assigned before it is used
  explicit Optimizer(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  // An optimizer of your own.
  explicit Optimizer(std::shared_ptr<const Rule> rule, const OptimizerOptions& options,
                     std::source_location where = std::source_location::current());
  // NOLINTBEGIN(google-explicit-constructor): .optimizer = "adam", with its defaults; case does not matter
  Optimizer(const char* name, std::source_location where = std::source_location::current());
  Optimizer(const std::string& name, std::source_location where = std::source_location::current());
  // NOLINTEND(google-explicit-constructor)

  // Makes the slots of these variables, at once even where a function is being traced. Without it that
  // happens when a variable is first seen; with it a checkpoint can be restored before the first step.
  void build(const std::vector<Variable>& variables,
             std::source_location where = std::source_location::current()) const;

  // Updates every variable by its gradient, of the variable's own shape and dtype. An undefined gradient
  // leaves its variable alone, all undefined is an error. Works eagerly and traced. In a replica it sums the
  // gradients over all replicas: hand it this replica's own. Outside of replicas, variables of a strategy
  // with several devices are an Error(failed_precondition).
  void apply_gradients(std::span<const Tensor> gradients, const std::vector<Variable>& variables,
                       std::source_location where = std::source_location::current()) const;

  // The loss to differentiate in place of `loss`: multiplied by what apply_gradients() divides by.
  Tensor scale_loss(const TensorArg& loss) const;

  // Puts the moving averages (use_ema) in place of the variables; without them it does nothing. For the
  // end of training.
  void finalize_variable_values(const std::vector<Variable>& variables,
                                std::source_location where = std::source_location::current()) const;

  // Variables in whose names one of these words occurs are not decayed. Before the step is compiled.
  void exclude_from_weight_decay(std::vector<std::string> words,
                                 std::source_location where = std::source_location::current()) const;
  void exclude_from_weight_decay(std::function<bool(const Variable&)> excluded,
                                 std::source_location where = std::source_location::current()) const;

  // float32 scalar; assigning it changes the rate of compiled steps too. With a schedule there is none:
  // Error(failed_precondition).
  const Variable& learning_rate(std::source_location where = std::source_location::current()) const;
  void set_learning_rate(double rate, std::source_location where = std::source_location::current()) const;
  // Undefined where the rate is a number.
  const LearningRateSchedule& schedule(std::source_location where = std::source_location::current()) const;
  // The rate of the next step, read from the device: for logs, outside of traced functions.
  double current_learning_rate(std::source_location where = std::source_location::current()) const;

  // int64 scalar: updates made so far. Steps that only accumulate, or that loss scaling skipped, do not
  // count.
  const Variable& iterations(std::source_location where = std::source_location::current()) const;
  // All state: iteration, learning_rate (unless scheduled), then the slots in Keras' order. Names are
  // unique, slots' begin with the variable's: "dense/kernel/momentum".
  std::vector<Variable> variables(std::source_location where = std::source_location::current()) const;
  // What a checkpoint holds of it: variables(), slots by the number of the variable they belong to, so that
  // names of layers do not matter.
  std::shared_ptr<train::TrackedObject> tracked(
      std::source_location where = std::source_location::current()) const;

  bool defined() const { return core_ != nullptr; }
  const std::string& name(std::source_location where = std::source_location::current()) const;
  // Keras' {"module", "class_name", "config", ...}; the learning rate is the present one.
  Json serialize(std::source_location where = std::source_location::current()) const;
  // Also reads a bare name. Unknown settings are errors that name the nearest known one.
  static Optimizer deserialize(const Json& json,
                               std::source_location where = std::source_location::current());

  const std::shared_ptr<Core>& core() const { return core_; }

 private:
  Core& checked(std::source_location where) const;

  std::shared_ptr<Core> core_;
};

// A variable that an optimizer keeps for each variable it updates.
struct Slot {
  std::string name;
  double initial = 0;
  std::optional<Shape> shape = {};  // nullopt: the variable's
  bool starts_as_variable = false;  // begins with the variable's value, not with `initial`
};

// How one variable is updated: derive from it to write an optimizer.
class Optimizer::Rule {
 public:
  virtual ~Rule() = default;
  virtual std::string class_name() const = 0;
  // Settings of its own: the optimizer's common ones are added.
  virtual Json config() const { return Json::object(); }

  virtual std::vector<Slot> slots(const Variable& /*variable*/) const { return {}; }
  // The part of the learning rate times a variable that is taken away from it; `common` is the optimizer's.
  virtual std::optional<double> weight_decay(const Variable& /*variable*/,
                                             std::optional<double> common) const {
    return common;
  }
  // State that all variables have in common: float64 scalars.
  virtual std::vector<Slot> shared() const { return {}; }

  // What the update of every variable needs, computed once per step from the learning rate, the number of
  // this update (1, 2, ...) and the shared state: all float64 scalars.
  struct Scalars {
    TensorList values;
    TensorList shared = {};  // the new state
  };
  virtual Scalars scalars(const Tensor& rate, const Tensor& /*update*/,
                          std::span<const Tensor> /*shared*/) const {
    return {{rate}};
  }

  // The new values of a variable and its slots, in that order. Pure: whether they are stored is decided
  // elsewhere. `scalars` are float32, or float64 for float64 variables.
  virtual TensorList update(const Tensor& variable, std::span<const Tensor> slots, const Tensor& gradient,
                            std::span<const Tensor> scalars, std::source_location where) const = 0;
};

// Makes optimizers of your own readable from files: `make` gets the whole "config".
void register_optimizer(const std::string& class_name, std::function<Optimizer(const Json& config)> make);

// What every optimizer can be told beside its own settings.
//   weight_decay: every update takes weight_decay * learning_rate of each weight away from it first.
//   clipnorm, clipvalue, global_clipnorm: the largest norm of a variable's gradient, element of one, norm
//     of all gradients together. At most one.
//   use_ema: a moving average of each variable is kept; every ema_overwrite_frequency updates it takes the
//     variable's place.
//   loss_scale_factor: a fixed one; LossScaleOptimizer finds it itself.
//   gradient_accumulation_steps: this many gradients are averaged for one update.
//   name: empty for the class name in snake case.
#define LOCKSTEP_COMMON_OPTIMIZER_OPTIONS_BUT_WEIGHT_DECAY \
  std::optional<double> clipnorm = {};                     \
  std::optional<double> clipvalue = {};                    \
  std::optional<double> global_clipnorm = {};              \
  bool use_ema = false;                                    \
  double ema_momentum = 0.99;                              \
  std::optional<int64_t> ema_overwrite_frequency = {};     \
  std::optional<double> loss_scale_factor = {};            \
  std::optional<int64_t> gradient_accumulation_steps = {}; \
  std::string name = {}
#define LOCKSTEP_COMMON_OPTIMIZER_OPTIONS  \
  std::optional<double> weight_decay = {}; \
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS_BUT_WEIGHT_DECAY

struct OptimizerOptions {
  LearningRate learning_rate = 1e-3;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};

// Adam(0.01): a number or a schedule in front of the options. A template, so that {} are options.
template <class T>
concept Rate = std::convertible_to<const T&, LearningRate>;
template <Rate R, class Options>
Options with_rate(const R& learning_rate, Options options) {
  options.learning_rate = learning_rate;
  return options;
}

struct SgdOptions {
  LearningRate learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// m = momentum * m - learning_rate * g;  w += m  (Nesterov: w += momentum * m - learning_rate * g)
Optimizer SGD(const SgdOptions& options = {}, std::source_location where = std::source_location::current());
template <Rate R>
Optimizer SGD(const R& learning_rate, SgdOptions options = {},
              std::source_location where = std::source_location::current()) {
  return SGD(with_rate(learning_rate, std::move(options)), where);
}

struct AdamOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;  // v never falls
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)
Optimizer Adam(const AdamOptions& options = {}, std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Adam(const R& learning_rate, AdamOptions options = {},
               std::source_location where = std::source_location::current()) {
  return Adam(with_rate(learning_rate, std::move(options)), where);
}

struct AdamWOptions {
  LearningRate learning_rate = 1e-3;
  std::optional<double> weight_decay = 0.004;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS_BUT_WEIGHT_DECAY;
};
// Adam that decays weights.
Optimizer AdamW(const AdamWOptions& options = {},
                std::source_location where = std::source_location::current());
template <Rate R>
Optimizer AdamW(const R& learning_rate, AdamWOptions options = {},
                std::source_location where = std::source_location::current()) {
  return AdamW(with_rate(learning_rate, std::move(options)), where);
}

struct AdamaxOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// u = max(beta_2 * u, |g|);  w -= learning_rate / (1 - beta_1^t) * m / (u + epsilon)
Optimizer Adamax(const AdamaxOptions& options = {},
                 std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Adamax(const R& learning_rate, AdamaxOptions options = {},
                 std::source_location where = std::source_location::current()) {
  return Adamax(with_rate(learning_rate, std::move(options)), where);
}

struct NadamOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// Adam with Nesterov's momentum, beta_1 warmed up as beta_1 * (1 - 0.96^t / 2).
Optimizer Nadam(const NadamOptions& options = {},
                std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Nadam(const R& learning_rate, NadamOptions options = {},
                std::source_location where = std::source_location::current()) {
  return Nadam(with_rate(learning_rate, std::move(options)), where);
}

struct RmspropOptions {
  LearningRate learning_rate = 1e-3;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-7;
  bool centered = false;  // divides by the deviation from the mean gradient
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// v = rho * v + (1 - rho) * g^2;  w -= learning_rate * g / sqrt(v + epsilon)
Optimizer RMSprop(const RmspropOptions& options = {},
                  std::source_location where = std::source_location::current());
template <Rate R>
Optimizer RMSprop(const R& learning_rate, RmspropOptions options = {},
                  std::source_location where = std::source_location::current()) {
  return RMSprop(with_rate(learning_rate, std::move(options)), where);
}

struct AdagradOptions {
  LearningRate learning_rate = 1e-3;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// a += g^2;  w -= learning_rate * g / sqrt(a + epsilon)
Optimizer Adagrad(const AdagradOptions& options = {},
                  std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Adagrad(const R& learning_rate, AdagradOptions options = {},
                  std::source_location where = std::source_location::current()) {
  return Adagrad(with_rate(learning_rate, std::move(options)), where);
}

struct AdadeltaOptions {
  LearningRate learning_rate = 1e-3;
  double rho = 0.95;
  double epsilon = 1e-7;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// w -= learning_rate * sqrt(mean step^2 + epsilon) / sqrt(mean g^2 + epsilon) * g
Optimizer Adadelta(const AdadeltaOptions& options = {},
                   std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Adadelta(const R& learning_rate, AdadeltaOptions options = {},
                   std::source_location where = std::source_location::current()) {
  return Adadelta(with_rate(learning_rate, std::move(options)), where);
}

struct LionOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// w -= learning_rate * sign(beta_1 * m + (1 - beta_1) * g);  m = beta_2 * m + (1 - beta_2) * g
Optimizer Lion(const LionOptions& options = {}, std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Lion(const R& learning_rate, LionOptions options = {},
               std::source_location where = std::source_location::current()) {
  return Lion(with_rate(learning_rate, std::move(options)), where);
}

struct LambOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// Adam's direction, as long as the variable's norm times the learning rate.
Optimizer Lamb(const LambOptions& options = {}, std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Lamb(const R& learning_rate, LambOptions options = {},
               std::source_location where = std::source_location::current()) {
  return Lamb(with_rate(learning_rate, std::move(options)), where);
}

struct FtrlOptions {
  LearningRate learning_rate = 1e-3;
  double learning_rate_power = -0.5;
  double initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0;
  double l2_regularization_strength = 0;
  double l2_shrinkage_regularization_strength = 0;
  double beta = 0;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// Follow the regularised leader: weights of rare features become exactly 0 under l1.
Optimizer Ftrl(const FtrlOptions& options = {}, std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Ftrl(const R& learning_rate, FtrlOptions options = {},
               std::source_location where = std::source_location::current()) {
  return Ftrl(with_rate(learning_rate, std::move(options)), where);
}

struct AdafactorOptions {
  LearningRate learning_rate = 1e-3;
  double beta_2_decay = -0.8;
  double epsilon_1 = 1e-30;
  double epsilon_2 = 1e-3;
  double clip_threshold = 1;
  bool relative_step = true;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// The second moments of a matrix are kept as one row and one column; only tensors of rank below 2 have a
// slot of their own size. The rate is at most 1 / sqrt(t) whatever relative_step says, as in Keras.
Optimizer Adafactor(const AdafactorOptions& options = {},
                    std::source_location where = std::source_location::current());
template <Rate R>
Optimizer Adafactor(const R& learning_rate, AdafactorOptions options = {},
                    std::source_location where = std::source_location::current()) {
  return Adafactor(with_rate(learning_rate, std::move(options)), where);
}

struct MuonOptions {
  LearningRate learning_rate = 1e-3;
  double adam_beta_1 = 0.9;
  double adam_beta_2 = 0.999;
  std::optional<double> adam_weight_decay = 0.004;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = 0.004;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS_BUT_WEIGHT_DECAY;
  std::vector<std::string> exclude_layers = {};  // regular expressions of variables' paths
  bool exclude_embeddings = true;                // paths with "embedding" in them
  double muon_a = 3.4445;
  double muon_b = -4.775;
  double muon_c = 2.0315;
  double adam_lr_ratio = 1;
  double momentum = 0.95;
  int64_t ns_steps = 5;
  bool nesterov = true;
  std::optional<double> rms_rate = 0.2;
};
// Matrices move along their momentum made orthogonal, in ns_steps of Newton's and Schulz' iteration; all
// other variables, and those that are excluded, as under AdamW with adam_lr_ratio times the rate.
Optimizer Muon(const MuonOptions& options = {}, std::source_location where = std::source_location::current());

struct ScheduleFreeAdamWOptions {
  LearningRate learning_rate = 0.0025;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  int64_t warmup_steps = 0;
  LOCKSTEP_COMMON_OPTIMIZER_OPTIONS;
};
// z -= rate * g / (sqrt(v / (1 - beta_2^t)) + epsilon);  x = mean of all z so far;
// w = (1 - beta_1) * z + beta_1 * x
Optimizer ScheduleFreeAdamW(const ScheduleFreeAdamWOptions& options = {},
                            std::source_location where = std::source_location::current());

#undef LOCKSTEP_COMMON_OPTIMIZER_OPTIONS
#undef LOCKSTEP_COMMON_OPTIMIZER_OPTIONS_BUT_WEIGHT_DECAY

struct LossScaleOptions {
  double initial_scale = 32768;         // 2^15
  int64_t dynamic_growth_steps = 2000;  // finite steps after which the scale doubles
  std::string name = {};
};
// For float16: small gradients become zeros unless the loss is scaled up. A step whose gradients are not all
// finite is skipped and the scale halved; nothing of `inner` changes in it. What is checked is the sum over
// replicas, which is finite only where every replica's gradient is.
//
// scale_loss() and apply_gradients() do the scaling; a loss_scale_factor of `inner` is ignored. Its other
// settings, learning_rate() and iterations() are those of `inner`, variables() has step_counter and
// dynamic_scale in front of its state.
Optimizer LossScaleOptimizer(const Optimizer& inner, const LossScaleOptions& options = {},
                             std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::optimizers
