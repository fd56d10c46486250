#include "keras/optimizers/rules.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <regex>

#include "keras/optimizers/core.h"
#include "keras/optimizers/settings.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "ops/update/update.h"

namespace lockstep::keras::optimizers {
namespace {

using Scalars = Optimizer::Rule::Scalars;

// Name and settings of a rule. `Self` has kClass and visit(options, visitor).
template <class Self, class OptionsType>
class SettingsRule : public Optimizer::Rule {
 public:
  using Options = OptionsType;
  explicit SettingsRule(const Options& options) : options_(options) {}
  std::string class_name() const override { return Self::kClass; }
  Json config() const override {
    FieldWriter writer;
    Options options = options_;
    Self::visit(options, writer);
    return writer.take();
  }

 protected:
  Options options_;
};

// A rule whose update is one elementwise op.
template <class Self, class OptionsType>
class FusedRule : public SettingsRule<Self, OptionsType> {
 public:
  FusedRule(const OptionsType& options, Update update, std::vector<Slot> slots)
      : SettingsRule<Self, OptionsType>(options), update_(std::move(update)), slots_(std::move(slots)) {}
  std::vector<Slot> slots(const Variable&) const override { return slots_; }
  TensorList update(const Tensor& variable, std::span<const Tensor> slots, const Tensor& gradient,
                    std::span<const Tensor> scalars, std::source_location where) const override {
    TensorList inputs = {variable};
    inputs.insert(inputs.end(), slots.begin(), slots.end());
    inputs.push_back(gradient);
    inputs.insert(inputs.end(), scalars.begin(), scalars.end());
    return update_.apply(inputs, where);
  }

 private:
  Update update_;
  std::vector<Slot> slots_;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// 1 - beta^t
Tensor debias(double beta, const Tensor& t) { return 1.0 - lockstep::pow(beta, t); }

// --- the rules ---------------------------------------------------------------------------------------------

struct SgdRule final : FusedRule<SgdRule, SgdOptions> {
  static constexpr const char* kClass = "SGD";
  static void visit(Options& o, auto& v) { v("momentum", o.momentum, kShare), v("nesterov", o.nesterov); }
  explicit SgdRule(const Options& o)
      : FusedRule(o, o.momentum != 0 ? momentum_update({o.momentum, o.nesterov}) : sgd_update(),
                  o.momentum != 0 ? std::vector<Slot>{{"momentum"}} : std::vector<Slot>{}) {}
};

template <class Self, class OptionsType>
struct AdamFormula : FusedRule<Self, OptionsType> {
  static void visit(OptionsType& o, auto& v) {
    v("beta_1", o.beta_1, kBelowOne), v("beta_2", o.beta_2, kBelowOne), v("epsilon", o.epsilon, kNotNegative),
        v("amsgrad", o.amsgrad);
  }
  explicit AdamFormula(const OptionsType& o)
      : FusedRule<Self, OptionsType>(o, adam_update({o.beta_1, o.beta_2, o.epsilon, o.amsgrad}),
                                     o.amsgrad
                                         ? std::vector<Slot>{{"momentum"}, {"velocity"}, {"velocity_hat"}}
                                         : std::vector<Slot>{{"momentum"}, {"velocity"}}) {}
  Scalars scalars(const Tensor& rate, const Tensor& t, std::span<const Tensor>) const override {
    return {{rate * sqrt(debias(this->options_.beta_2, t)) / debias(this->options_.beta_1, t)}};
  }
};

struct AdamRule final : AdamFormula<AdamRule, AdamOptions> {
  static constexpr const char* kClass = "Adam";
  using AdamFormula::AdamFormula;
};

struct AdamWRule final : AdamFormula<AdamWRule, AdamWOptions> {
  static constexpr const char* kClass = "AdamW";
  static void check(const Options& o, std::source_location where) {
    require(o.weight_decay.has_value(), ErrorCode::invalid_argument, where,
            "AdamW: weight_decay must be a number; Adam() works without");
  }
  using AdamFormula::AdamFormula;
};

struct AdamaxRule final : FusedRule<AdamaxRule, AdamaxOptions> {
  static constexpr const char* kClass = "Adamax";
  static void visit(Options& o, auto& v) {
    v("beta_1", o.beta_1, kBelowOne), v("beta_2", o.beta_2, kBelowOne), v("epsilon", o.epsilon, kNotNegative);
  }
  explicit AdamaxRule(const Options& o)
      : FusedRule(o, adamax_update({o.beta_1, o.beta_2, o.epsilon}), {{"momentum"}, {"norm"}}) {}
  Scalars scalars(const Tensor& rate, const Tensor& t, std::span<const Tensor>) const override {
    return {{rate / debias(options_.beta_1, t)}};
  }
};

struct NadamRule final : FusedRule<NadamRule, NadamOptions> {
  static constexpr const char* kClass = "Nadam";
  static void visit(Options& o, auto& v) {
    v("beta_1", o.beta_1, kBelowOne), v("beta_2", o.beta_2, kBelowOne), v("epsilon", o.epsilon, kNotNegative);
  }
  explicit NadamRule(const Options& o)
      : FusedRule(o, nadam_update({o.beta_1, o.beta_2, o.epsilon}), {{"momentum"}, {"velocity"}}) {}

  // The product of all momenta so far.
  std::vector<Slot> shared() const override { return {{.name = "momentum_product", .initial = 1}}; }
  Scalars scalars(const Tensor& rate, const Tensor& t, std::span<const Tensor> shared) const override {
    const auto momentum = [&](const Tensor& at) {
      return options_.beta_1 * (1.0 - 0.5 * lockstep::pow(0.96, at));
    };
    const Tensor now = momentum(t), next = momentum(t + 1.0);
    const Tensor product = shared[0] * now;
    return {{rate * next / (1.0 - product * next), rate * (1.0 - now) / (1.0 - product),
             1.0 / debias(options_.beta_2, t)},
            {product}};
  }
};

struct RmspropRule final : FusedRule<RmspropRule, RmspropOptions> {
  static constexpr const char* kClass = "RMSprop";
  static void visit(Options& o, auto& v) {
    v("rho", o.rho, kBelowOne), v("momentum", o.momentum, kShare), v("epsilon", o.epsilon, kNotNegative),
        v("centered", o.centered);
  }
  explicit RmspropRule(const Options& o)
      : FusedRule(o, rmsprop_update({o.rho, o.momentum, o.epsilon, o.centered}), kept(o)) {}

 private:
  static std::vector<Slot> kept(const Options& o) {
    std::vector<Slot> slots = {{"velocity"}};
    if (o.momentum > 0) slots.push_back({"momentum"});
    if (o.centered) slots.push_back({"average_gradient"});
    return slots;
  }
};

struct AdagradRule final : FusedRule<AdagradRule, AdagradOptions> {
  static constexpr const char* kClass = "Adagrad";
  static void visit(Options& o, auto& v) {
    v("initial_accumulator_value", o.initial_accumulator_value, kNotNegative),
        v("epsilon", o.epsilon, kNotNegative);
  }
  explicit AdagradRule(const Options& o)
      : FusedRule(o, adagrad_update({o.epsilon}), {{"accumulator", o.initial_accumulator_value}}) {}
};

struct AdadeltaRule final : FusedRule<AdadeltaRule, AdadeltaOptions> {
  static constexpr const char* kClass = "Adadelta";
  static void visit(Options& o, auto& v) {
    v("rho", o.rho, kBelowOne), v("epsilon", o.epsilon, kNotNegative);
  }
  explicit AdadeltaRule(const Options& o)
      : FusedRule(o, adadelta_update({o.rho, o.epsilon}), {{"accumulated_grad"}, {"accumulated_delta_var"}}) {
  }
};

struct LionRule final : FusedRule<LionRule, LionOptions> {
  static constexpr const char* kClass = "Lion";
  static void visit(Options& o, auto& v) {
    v("beta_1", o.beta_1, Range{.low = 0, .high = 1, .above_low = true}), v("beta_2", o.beta_2, kBelowOne);
  }
  explicit LionRule(const Options& o) : FusedRule(o, lion_update({o.beta_1, o.beta_2, 0}), {{"momentum"}}) {}
};

struct FtrlRule final : FusedRule<FtrlRule, FtrlOptions> {
  static constexpr const char* kClass = "Ftrl";
  static void visit(Options& o, auto& v) {
    v("learning_rate_power", o.learning_rate_power, at_most(0));
    v("initial_accumulator_value", o.initial_accumulator_value, kNotNegative);
    v("l1_regularization_strength", o.l1_regularization_strength, kNotNegative);
    v("l2_regularization_strength", o.l2_regularization_strength, kNotNegative);
    v("l2_shrinkage_regularization_strength", o.l2_shrinkage_regularization_strength, kNotNegative);
    v("beta", o.beta, kNotNegative);
  }
  explicit FtrlRule(const Options& o)
      : FusedRule(o,
                  ftrl_update({o.learning_rate_power, o.l1_regularization_strength,
                               o.l2_regularization_strength, o.l2_shrinkage_regularization_strength, o.beta}),
                  {{"accumulator", o.initial_accumulator_value}, {"linear"}}) {}
};

struct LambRule final : SettingsRule<LambRule, LambOptions> {
  static constexpr const char* kClass = "Lamb";
  static void visit(Options& o, auto& v) {
    v("beta_1", o.beta_1, kBelowOne), v("beta_2", o.beta_2, kBelowOne), v("epsilon", o.epsilon, kNotNegative);
  }
  using SettingsRule::SettingsRule;
  std::vector<Slot> slots(const Variable&) const override { return {{"momentum"}, {"velocity"}}; }
  Scalars scalars(const Tensor& rate, const Tensor& t, std::span<const Tensor>) const override {
    return {{rate, 1.0 / debias(options_.beta_1, t), 1.0 / debias(options_.beta_2, t)}};
  }
  TensorList update(const Tensor& w, std::span<const Tensor> slots, const Tensor& gradient,
                    std::span<const Tensor> scalars, std::source_location where) const override {
    const TensorList moved =
        lamb_direction({options_.beta_1, options_.beta_2, options_.epsilon})
            .apply(TensorList{slots[0], slots[1], gradient, scalars[1], scalars[2]}, where);
    const Tensor &m = moved[0], &v = moved[1], &direction = moved[2];
    const auto norm = [&](const Tensor& x) { return sqrt(reduce_sum(square(cast(x, scalars[0].dtype())))); };
    const Tensor length = norm(w), step = norm(direction);
    const Tensor ratio = lockstep::where(logical_and(length > 0.0, step > 0.0), length / step, 1.0);
    return {descend(w, direction, scalars[0] * ratio, where), m, v};
  }
};

struct AdafactorRule final : SettingsRule<AdafactorRule, AdafactorOptions> {
  static constexpr const char* kClass = "Adafactor";
  static void visit(Options& o, auto& v) {
    v("beta_2_decay", o.beta_2_decay, at_most(0)), v("epsilon_1", o.epsilon_1, kNotNegative),
        v("epsilon_2", o.epsilon_2, kNotNegative);
    v("clip_threshold", o.clip_threshold, kPositive), v("relative_step", o.relative_step);
  }
  using SettingsRule::SettingsRule;

  std::vector<Slot> slots(const Variable& variable) const override {
    const Shape& shape = variable.shape();
    if (shape.rank() < 2) return {{"velocity"}};
    Shape row, column;  // the variable's shape without its last dimension, and without the one before it
    for (int d = 0; d < shape.rank(); ++d) {
      if (d != shape.rank() - 1) row.push_back(shape[d]);
      if (d != shape.rank() - 2) column.push_back(shape[d]);
    }
    return {{"row", 0, row}, {"column", 0, column}};
  }
  Scalars scalars(const Tensor& rate, const Tensor& t, std::span<const Tensor>) const override {
    return {{minimum(rate, rsqrt(t)), lockstep::pow(t, options_.beta_2_decay)}};
  }
  TensorList update(const Tensor& w, std::span<const Tensor> slots, const Tensor& gradient,
                    std::span<const Tensor> scalars, std::source_location where) const override {
    const DType stored = w.dtype(), wide = scalars[0].dtype();
    const Tensor& renewal = scalars[1];
    const auto rms = [&](const Tensor& x) { return sqrt(reduce_mean(square(cast(x, wide)))); };
    const auto moved = [&](const Tensor& slot, const Tensor& to) {
      return cast(slot, wide) * (1.0 - renewal) + to * renewal;
    };
    const Tensor g = cast(gradient, wide);
    const Tensor squares = square(g) + options_.epsilon_1;
    TensorList result = {Tensor()};
    Tensor velocity;
    if (w.rank() < 2) {
      velocity = moved(slots[0], squares);
      result.push_back(cast(velocity, stored));
    } else {
      const Tensor row = moved(slots[0], reduce_mean(squares, {.axis = {-1}}));
      const Tensor column = moved(slots[1], reduce_mean(squares, {.axis = {-2}}));
      velocity =
          expand_dims(row / reduce_mean(row, {.axis = {-1}, .keepdims = true}), -1) * expand_dims(column, -2);
      result.push_back(cast(row, stored));
      result.push_back(cast(column, stored));
    }
    const Tensor step = g / sqrt(velocity);
    const Tensor rate =
        maximum(rms(w), options_.epsilon_2) * scalars[0] / maximum(rms(step) / options_.clip_threshold, 1.0);
    result[0] = descend(w, cast(step, stored), rate, where);
    return result;
  }
};

struct MuonRule final : SettingsRule<MuonRule, MuonOptions> {
  static constexpr const char* kClass = "Muon";
  static void visit(Options& o, auto& v) {
    v("adam_beta_1", o.adam_beta_1, kBelowOne), v("adam_beta_2", o.adam_beta_2, kBelowOne),
        v("epsilon", o.epsilon, kNotNegative);
    v("exclude_layers", o.exclude_layers), v("muon_a", o.muon_a, kFinite), v("muon_b", o.muon_b, kFinite);
    v("muon_c", o.muon_c, kFinite), v("adam_lr_ratio", o.adam_lr_ratio, kNotNegative),
        v("momentum", o.momentum, kShare);
    v("ns_steps", o.ns_steps, kNotNegative), v("nesterov", o.nesterov),
        v("exclude_embeddings", o.exclude_embeddings);
    v("adam_weight_decay", o.adam_weight_decay, kNotNegative), v("rms_rate", o.rms_rate, kPositive);
  }
  explicit MuonRule(const Options& o)
      : SettingsRule(o), adam_(adam_update({o.adam_beta_1, o.adam_beta_2, o.epsilon, false})) {
    for (const std::string& pattern : o.exclude_layers) {
      try {
        excluded_.emplace_back(pattern);
      } catch (const std::regex_error& error) {
        fail(ErrorCode::invalid_argument, std::source_location::current(), kClass, ": exclude_layers has \"",
             pattern, "\", which is no regular expression: ", error.what());
      }
    }
  }

  std::vector<Slot> slots(const Variable& variable) const override {
    return under_adam(variable) ? std::vector<Slot>{{"momentum"}, {"velocity"}}
                                : std::vector<Slot>{{"momentum"}};
  }
  std::optional<double> weight_decay(const Variable& variable, std::optional<double> common) const override {
    return under_adam(variable) ? options_.adam_weight_decay : common;
  }
  Scalars scalars(const Tensor& rate, const Tensor& t, std::span<const Tensor>) const override {
    const Tensor of_adam = rate * options_.adam_lr_ratio;
    return {{rate, of_adam * sqrt(debias(options_.adam_beta_2, t)) / debias(options_.adam_beta_1, t)}};
  }
  TensorList update(const Tensor& w, std::span<const Tensor> slots, const Tensor& gradient,
                    std::span<const Tensor> scalars, std::source_location where) const override {
    if (slots.size() == 2) return adam_.apply(TensorList{w, slots[0], slots[1], gradient, scalars[1]}, where);
    const Tensor m = slots[0] * options_.momentum + gradient;
    const Tensor direction = orthogonal(options_.nesterov ? gradient + m * options_.momentum : m);
    const auto longest = static_cast<double>(std::max(w.shape()[0], w.shape()[1]));
    const double scale = options_.rms_rate ? std::sqrt(longest) * *options_.rms_rate : 1;
    return {descend(w, direction, scalars[0] * scale, where), m};
  }

 private:
  bool under_adam(const Variable& variable) const {
    if (variable.shape().rank() != 2) return true;
    if (options_.exclude_embeddings && lower(variable.name()).find("embedding") != std::string::npos)
      return true;
    return std::any_of(excluded_.begin(), excluded_.end(), [&](const std::regex& pattern) {
      return std::regex_search(variable.name(), pattern);
    });
  }

  // Singular values become about 1: a polynomial of degree 5, again and again. The shorter side is what is
  // squared.
  Tensor orthogonal(const Tensor& direction) const {
    const bool tall = direction.shape()[0] > direction.shape()[1];
    Tensor x = tall ? transpose(direction) : direction;
    x = x / (sqrt(reduce_sum(square(x))) + 1e-7);
    for (int64_t i = 0; i < options_.ns_steps; ++i) {
      const Tensor a = matmul(x, x, {.transpose_b = true});
      const Tensor b = a * options_.muon_b + matmul(a * options_.muon_c, a);
      x = x * options_.muon_a + matmul(b, x);
    }
    return tall ? transpose(x) : x;
  }

  Update adam_;
  std::vector<std::regex> excluded_;
};

struct ScheduleFreeAdamWRule final : SettingsRule<ScheduleFreeAdamWRule, ScheduleFreeAdamWOptions> {
  static constexpr const char* kClass = "ScheduleFreeAdamW";
  static void visit(Options& o, auto& v) {
    v("beta_1", o.beta_1, Range{.low = 0, .high = 1, .above_low = true, .below_high = true}),
        v("beta_2", o.beta_2, kBelowOne), v("epsilon", o.epsilon, kNotNegative);
    v("warmup_steps", o.warmup_steps, kNotNegative);
  }
  using SettingsRule::SettingsRule;

  std::vector<Slot> slots(const Variable&) const override {
    return {{.name = "momentum", .starts_as_variable = true}, {"velocity"}};
  }
  Scalars scalars(const Tensor& rate, const Tensor& t, std::span<const Tensor>) const override {
    Tensor warm = rate;
    if (options_.warmup_steps > 0) warm = rate * minimum(t / options_.warmup_steps, 1.0);
    return {{warm, 1.0 / debias(options_.beta_2, t), 1.0 / t}};
  }
  // w lies between z, which the gradients move, and x, the mean of all z so far.
  TensorList update(const Tensor& w, std::span<const Tensor> slots, const Tensor& gradient,
                    std::span<const Tensor> scalars, std::source_location) const override {
    const DType stored = w.dtype(), wide = scalars[0].dtype();
    const double beta = options_.beta_1;
    const Tensor g = cast(gradient, wide), z = cast(slots[0], wide), v = cast(slots[1], wide);
    const Tensor velocity = v + (square(g) - v) * (1 - options_.beta_2);
    const Tensor moved = z - scalars[0] * g / (sqrt(velocity * scalars[1]) + options_.epsilon);
    const Tensor mean = (cast(w, wide) - z * (1 - beta)) / beta;
    const Tensor renewed = mean * (1.0 - scalars[2]) + moved * scalars[2];
    return {cast(moved * (1 - beta) + renewed * beta, stored), cast(moved, stored), cast(velocity, stored)};
  }
};

// --- names -------------------------------------------------------------------------------------------------

template <class RuleType>
struct Settings {
  typename RuleType::Options options;
  void visit(auto& v) { visit_common(options, v), RuleType::visit(options, v); }
};

template <class RuleType>
Optimizer make(const typename RuleType::Options& options, std::source_location where) {
  const CallSite site(where);
  check_fields(Settings<RuleType>{options}, RuleType::kClass);
  if constexpr (requires { RuleType::check(options, where); }) RuleType::check(options, where);
  return Optimizer(
      std::make_shared<RuleCore>(std::make_shared<RuleType>(options), common_options(options), where));
}

// What Keras' constructor takes, in its order: the rate, the rule's own settings, those of all optimizers.
template <class RuleType>
Json parameters() {
  typename RuleType::Options options;
  FieldWriter own, common;
  RuleType::visit(options, own);
  visit_common(options, common);
  Json all = Json::object({{"learning_rate", nullptr}});
  for (const Json& part : {own.take(), common.take()})
    for (const auto& [name, value] : part.members()) all.set(name, value);
  return all;
}

using Optimizers = Registry<Optimizer>;

template <class RuleType>
void add(Optimizers& registry) {
  registry.add(
      RuleType::kClass,
      [](const Json& config) {
        return make<RuleType>(read_fields<Settings<RuleType>>(config).options,
                              std::source_location::current());
      },
      {lower(RuleType::kClass)}, parameters<RuleType>);
}

Optimizers& registry() {
  static Optimizers& all = *[] {
    auto* made = new Optimizers("optimizer");
    add<SgdRule>(*made);
    add<AdamRule>(*made);
    add<AdamWRule>(*made);
    add<AdamaxRule>(*made);
    add<NadamRule>(*made);
    add<RmspropRule>(*made);
    add<AdagradRule>(*made);
    add<AdadeltaRule>(*made);
    add<LionRule>(*made);
    add<LambRule>(*made);
    add<FtrlRule>(*made);
    add<AdafactorRule>(*made);
    add<MuonRule>(*made);
    add<ScheduleFreeAdamWRule>(*made);
    made->add("LossScaleOptimizer", loss_scale_from_config, {"lossscaleoptimizer"});
    return made;
  }();
  return all;
}

}  // namespace

const Catalogued& known_optimizers() { return registry(); }

Optimizer optimizer_from_json(const Json& json, std::source_location where) {
  if (json.is_string()) {
    const std::string& name = json.as_string();
    return registry().make(registry().contains(name) ? name : lower(name), Json::object(), where);
  }
  return registry().make(json, where);
}

void register_optimizer(const std::string& class_name, std::function<Optimizer(const Json&)> make) {
  registry().add(class_name, std::move(make), {lower(class_name)});
}

Optimizer SGD(const SgdOptions& options, std::source_location where) { return make<SgdRule>(options, where); }
Optimizer Adam(const AdamOptions& options, std::source_location where) {
  return make<AdamRule>(options, where);
}
Optimizer AdamW(const AdamWOptions& options, std::source_location where) {
  return make<AdamWRule>(options, where);
}
Optimizer Adamax(const AdamaxOptions& options, std::source_location where) {
  return make<AdamaxRule>(options, where);
}
Optimizer Nadam(const NadamOptions& options, std::source_location where) {
  return make<NadamRule>(options, where);
}
Optimizer RMSprop(const RmspropOptions& options, std::source_location where) {
  return make<RmspropRule>(options, where);
}
Optimizer Adagrad(const AdagradOptions& options, std::source_location where) {
  return make<AdagradRule>(options, where);
}
Optimizer Adadelta(const AdadeltaOptions& options, std::source_location where) {
  return make<AdadeltaRule>(options, where);
}
Optimizer Lion(const LionOptions& options, std::source_location where) {
  return make<LionRule>(options, where);
}
Optimizer Lamb(const LambOptions& options, std::source_location where) {
  return make<LambRule>(options, where);
}
Optimizer Ftrl(const FtrlOptions& options, std::source_location where) {
  return make<FtrlRule>(options, where);
}
Optimizer Adafactor(const AdafactorOptions& options, std::source_location where) {
  return make<AdafactorRule>(options, where);
}
Optimizer Muon(const MuonOptions& options, std::source_location where) {
  return make<MuonRule>(options, where);
}
Optimizer ScheduleFreeAdamW(const ScheduleFreeAdamWOptions& options, std::source_location where) {
  return make<ScheduleFreeAdamWRule>(options, where);
}

}  // namespace lockstep::keras::optimizers
