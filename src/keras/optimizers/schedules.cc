#include "lockstep/keras/schedules.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "graph/emit.h"
#include "keras/fields.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::optimizers {
namespace {

constexpr const char* kModule = "keras.optimizers.schedules";

// Steps beyond 2^24 and powers close to 1 need more than float32 has.
Tensor as_number(const Tensor& step) { return cast(step, DType::float64); }
Tensor number(const Tensor& neighbour, double value) {
  return fill_beside(neighbour, {DType::float64, {}}, value);
}

// A number of steps in a file: whole ones are written as integers, as Keras does.
struct StepsField {
  double& number;
};
Json to_json(const StepsField& steps) {
  const double whole = std::floor(steps.number);
  return whole == steps.number && std::abs(whole) < 1e15 ? Json(static_cast<int64_t>(whole))
                                                         : Json(steps.number);
}
void from_json(const Json& json, StepsField& steps) { steps.number = json.as_double(); }
void each_number(const StepsField& steps, auto&& f) { f(steps.number); }
void visit_steps(auto& v, const char* name, double& number, const Range& range) {
  StepsField steps{number};
  v(name, steps, range);
}

struct ExponentialDecaySettings {
  static constexpr const char* kClass = "ExponentialDecay";
  double initial_learning_rate = 0;
  double decay_steps = 0;
  double decay_rate = 0;
  schedules::ExponentialDecayOptions options;

  void visit(auto& v) {
    v("initial_learning_rate", initial_learning_rate, kNotNegative),
        visit_steps(v, "decay_steps", decay_steps, kPositive);
    v("decay_rate", decay_rate, kNotNegative), v("staircase", options.staircase), v("name", options.name);
  }
  Tensor rate(const Tensor& step) const {
    Tensor p = as_number(step) / decay_steps;
    if (options.staircase) p = floor(p);
    return initial_learning_rate * lockstep::pow(decay_rate, p);
  }
};

struct InverseTimeDecaySettings {
  static constexpr const char* kClass = "InverseTimeDecay";
  double initial_learning_rate = 0;
  double decay_steps = 0;
  double decay_rate = 0;
  schedules::InverseTimeDecayOptions options;

  void visit(auto& v) {
    v("initial_learning_rate", initial_learning_rate, kNotNegative),
        visit_steps(v, "decay_steps", decay_steps, kPositive);
    v("decay_rate", decay_rate, kNotNegative), v("staircase", options.staircase), v("name", options.name);
  }
  Tensor rate(const Tensor& step) const {
    Tensor p = as_number(step) / decay_steps;
    if (options.staircase) p = floor(p);
    return initial_learning_rate / (1.0 + decay_rate * p);
  }
};

struct PiecewiseConstantDecaySettings {
  static constexpr const char* kClass = "PiecewiseConstantDecay";
  std::vector<int64_t> boundaries;
  std::vector<double> values;
  schedules::PiecewiseConstantDecayOptions options;

  void visit(auto& v) {
    v("boundaries", boundaries, kFinite), v("values", values, kNotNegative), v("name", options.name);
  }
  void check(std::source_location where) const {
    require(values.size() == boundaries.size() + 1, ErrorCode::invalid_argument, where, kClass,
            ": there must be one value more than boundaries, received ", values.size(), " values and ",
            boundaries.size(), " boundaries");
    require(std::is_sorted(boundaries.begin(), boundaries.end(), std::less_equal<>()),
            ErrorCode::invalid_argument, where, kClass, ": boundaries must rise");
  }
  Tensor rate(const Tensor& step) const {
    Tensor result = number(step, values.back());
    for (size_t i = boundaries.size(); i-- > 0;)
      result = lockstep::where(step <= boundaries[i], values[i], result);
    return result;
  }
};

struct PolynomialDecaySettings {
  static constexpr const char* kClass = "PolynomialDecay";
  double initial_learning_rate = 0;
  double decay_steps = 0;
  schedules::PolynomialDecayOptions options;

  void visit(auto& v) {
    v("initial_learning_rate", initial_learning_rate, kNotNegative),
        visit_steps(v, "decay_steps", decay_steps, kPositive);
    v("end_learning_rate", options.end_learning_rate, kNotNegative), v("power", options.power, kNotNegative);
    v("cycle", options.cycle), v("name", options.name);
  }
  Tensor rate(const Tensor& step) const {
    const Tensor s = as_number(step);
    // With cycles the period ends at the first multiple of decay_steps that is not before this step.
    const Tensor p = options.cycle ? s / (maximum(ceil(s / decay_steps), 1.0) * decay_steps)
                                   : minimum(s, decay_steps) / decay_steps;
    return (initial_learning_rate - options.end_learning_rate) * lockstep::pow(1.0 - p, options.power) +
           options.end_learning_rate;
  }
};

Tensor cosine(const Tensor& fraction, double alpha, const OperandArg& height = 1.0) {
  return (1 - alpha) * (0.5 * (1.0 + cos(std::numbers::pi * fraction)) * height) + alpha;
}

struct CosineDecaySettings {
  static constexpr const char* kClass = "CosineDecay";
  double initial_learning_rate = 0;
  double decay_steps = 0;
  schedules::CosineDecayOptions options;

  void visit(auto& v) {
    v("initial_learning_rate", initial_learning_rate, kNotNegative),
        visit_steps(v, "decay_steps", decay_steps, kPositive);
    v("alpha", options.alpha, kNotNegative), v("name", options.name);
    v("warmup_target", options.warmup_target, kNotNegative),
        visit_steps(v, "warmup_steps", options.warmup_steps, kNotNegative);
  }
  Tensor rate(const Tensor& step) const {
    const Tensor s = as_number(step);
    if (!options.warmup_target)
      return initial_learning_rate * cosine(minimum(s, decay_steps) / decay_steps, options.alpha);
    const double target = *options.warmup_target;
    const double warmup = options.warmup_steps;
    Tensor decayed = target * cosine(minimum(s - warmup, decay_steps) / decay_steps, options.alpha);
    if (options.warmup_steps == 0) return decayed;
    const Tensor warming = (target - initial_learning_rate) * (s / warmup) + initial_learning_rate;
    return lockstep::where(s < warmup, warming, decayed);
  }
};

struct CosineDecayRestartsSettings {
  static constexpr const char* kClass = "CosineDecayRestarts";
  double initial_learning_rate = 0;
  double first_decay_steps = 0;
  schedules::CosineDecayRestartsOptions options;

  void visit(auto& v) {
    v("initial_learning_rate", initial_learning_rate, kNotNegative),
        visit_steps(v, "first_decay_steps", first_decay_steps, kPositive);
    v("t_mul", options.t_mul, at_least(1) /* periods that get shorter end */),
        v("m_mul", options.m_mul, kNotNegative), v("alpha", options.alpha, kNotNegative);
    v("name", options.name);
  }
  Tensor rate(const Tensor& step) const {
    Tensor fraction = as_number(step) / first_decay_steps;
    Tensor restarts;
    if (options.t_mul == 1) {
      restarts = floor(fraction);
      fraction = fraction - restarts;
    } else {
      // Restart i happens at (t^i - 1) / (t - 1). The logarithm of an exact power may come out a little
      // too small, which would miss the restart by one step.
      const double grow = options.t_mul - 1;
      restarts = floor(log(1.0 + fraction * grow) / std::log(options.t_mul) + 1e-9);
      const Tensor power = lockstep::pow(options.t_mul, restarts);
      fraction = (fraction - (power - 1.0) / grow) / power;
    }
    const Tensor height = lockstep::pow(options.m_mul, restarts);
    return initial_learning_rate * cosine(fraction, options.alpha, height);
  }
};

template <class Settings>
class SettingsRule final : public LearningRateSchedule::Rule {
 public:
  explicit SettingsRule(Settings settings) : settings_(std::move(settings)) {}
  Tensor rate(const Tensor& step) const override { return settings_.rate(step); }
  std::string class_name() const override { return Settings::kClass; }
  Json config() const override { return write_fields(settings_); }

 private:
  Settings settings_;
};

template <class Settings>
LearningRateSchedule make(Settings settings, std::source_location where) {
  const CallSite site(where);
  check_fields(settings, Settings::kClass);
  if constexpr (requires { settings.check(where); }) settings.check(where);
  return LearningRateSchedule(std::make_shared<SettingsRule<Settings>>(std::move(settings)));
}

class FunctionRule final : public LearningRateSchedule::Rule {
 public:
  explicit FunctionRule(std::function<Tensor(const Tensor&)> rate) : rate_(std::move(rate)) {}
  Tensor rate(const Tensor& step) const override { return rate_(step); }
  std::string class_name() const override { return "function"; }
  Json config() const override {
    fail(ErrorCode::failed_precondition, std::source_location::current(),
         "a learning rate schedule that is a C++ function cannot be written to a file; derive from "
         "LearningRateSchedule::Rule and register_schedule() it");
  }

 private:
  std::function<Tensor(const Tensor&)> rate_;
};

using Schedules = Registry<LearningRateSchedule>;

template <class Settings>
void add(Schedules& registry) {
  registry.add(
      Settings::kClass,
      [](const Json& config) { return make(read_fields<Settings>(config), std::source_location::current()); },
      {}, [] { return write_fields(Settings()); });
}

Schedules& registry() {
  static Schedules& all = *[] {
    auto* made = new Schedules("learning rate schedule");
    add<ExponentialDecaySettings>(*made);
    add<InverseTimeDecaySettings>(*made);
    add<PiecewiseConstantDecaySettings>(*made);
    add<PolynomialDecaySettings>(*made);
    add<CosineDecaySettings>(*made);
    add<CosineDecayRestartsSettings>(*made);
    return made;
  }();
  return all;
}

}  // namespace

const Catalogued& known_schedules() { return registry(); }

LearningRateSchedule::LearningRateSchedule(std::function<Tensor(const Tensor&)> rate)
    : rule_(std::make_shared<FunctionRule>(std::move(rate))) {}

Tensor LearningRateSchedule::operator()(const Tensor& step, std::source_location where) const {
  require(rule_ != nullptr, ErrorCode::failed_precondition, where, "this LearningRateSchedule is none");
  Tensor rate = rule_->rate(step);
  // A schedule that is written elsewhere is asked for its name where that is needed: it may have none.
  if (!rate.defined() || !is_floating(rate.dtype()) || rate.shape() != Shape{})
    fail(ErrorCode::invalid_argument, where, "a learning rate schedule must give a floating-point scalar, \"",
         rule_->class_name(), "\" gave ", rate.defined() ? rate.spec() : TensorSpec{});
  return rate;
}

Json LearningRateSchedule::serialize() const {
  return rule_ ? serialized(kModule, rule_->class_name(), rule_->config()) : Json();
}

LearningRateSchedule LearningRateSchedule::deserialize(const Json& json, std::source_location where) {
  return registry().make(json, where);
}

void register_schedule(const std::string& class_name, std::function<LearningRateSchedule(const Json&)> make) {
  registry().add(class_name, std::move(make));
}

Json LearningRate::serialize() const { return is_schedule() ? schedule().serialize() : Json(number()); }

LearningRate LearningRate::deserialize(const Json& json, std::source_location where) {
  if (json.is_number()) return json.as_double(where);
  return LearningRateSchedule::deserialize(json, where);
}

namespace schedules {

LearningRateSchedule ExponentialDecay(double initial_learning_rate, double decay_steps, double decay_rate,
                                      const ExponentialDecayOptions& options, std::source_location where) {
  return make(ExponentialDecaySettings{initial_learning_rate, decay_steps, decay_rate, options}, where);
}
LearningRateSchedule InverseTimeDecay(double initial_learning_rate, double decay_steps, double decay_rate,
                                      const InverseTimeDecayOptions& options, std::source_location where) {
  return make(InverseTimeDecaySettings{initial_learning_rate, decay_steps, decay_rate, options}, where);
}
LearningRateSchedule PiecewiseConstantDecay(const std::vector<int64_t>& boundaries,
                                            const std::vector<double>& values,
                                            const PiecewiseConstantDecayOptions& options,
                                            std::source_location where) {
  return make(PiecewiseConstantDecaySettings{boundaries, values, options}, where);
}
LearningRateSchedule PolynomialDecay(double initial_learning_rate, double decay_steps,
                                     const PolynomialDecayOptions& options, std::source_location where) {
  return make(PolynomialDecaySettings{initial_learning_rate, decay_steps, options}, where);
}
LearningRateSchedule CosineDecay(double initial_learning_rate, double decay_steps,
                                 const CosineDecayOptions& options, std::source_location where) {
  return make(CosineDecaySettings{initial_learning_rate, decay_steps, options}, where);
}
LearningRateSchedule CosineDecayRestarts(double initial_learning_rate, double first_decay_steps,
                                         const CosineDecayRestartsOptions& options,
                                         std::source_location where) {
  return make(CosineDecayRestartsSettings{initial_learning_rate, first_decay_steps, options}, where);
}

}  // namespace schedules

}  // namespace lockstep::keras::optimizers
