// Learning rates that change with the number of steps.
//
//   optimizers::SGD({.learning_rate = schedules::CosineDecay(0.1, 10'000, {.alpha = 0.01})})
//
// A schedule is computed inside the compiled step, from a counter that lives on the device: nothing is sent
// there and nothing is traced again. Steps are calls of apply_gradients(), so with gradient accumulation
// several of them make one update. Formulas and defaults are Keras'.
//
// A schedule is a handle to what never changes: any thread may use it, and register_schedule() may be called
// while others make or read some.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::optimizers {

class LearningRateSchedule {
 public:
  class Rule;
  LearningRateSchedule() = default;  // undefined
  explicit LearningRateSchedule(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
  // One of your own: the rate, a floating-point scalar, for the step, an int64 scalar (0, 1, ...), made by
  // ops. It cannot be written to a file; derive from Rule for that.
  explicit LearningRateSchedule(std::function<Tensor(const Tensor& step)> rate);

  bool defined() const { return rule_ != nullptr; }
  // The rate at this step, an int64 scalar. Eagerly and traced.
  Tensor operator()(const Tensor& step, std::source_location where = std::source_location::current()) const;

  Json serialize() const;
  static LearningRateSchedule deserialize(const Json& json,
                                          std::source_location where = std::source_location::current());

 private:
  std::shared_ptr<const Rule> rule_;
};

// What a schedule is: derive from it to write one.
class LearningRateSchedule::Rule {
 public:
  virtual ~Rule() = default;
  virtual Tensor rate(const Tensor& step) const = 0;
  virtual std::string class_name() const = 0;
  virtual Json config() const = 0;
};

// Makes schedules of your own readable from files: `make` gets what config() wrote.
void register_schedule(const std::string& class_name,
                       std::function<LearningRateSchedule(const Json& config)> make);

// What `.learning_rate` takes: a number, a schedule, or a callable that gives the rate for a step.
class LearningRate {
 public:
  LearningRate() = default;
  // NOLINTBEGIN(google-explicit-constructor): .learning_rate = 1e-3
  template <class T>
  requires std::integral<T> || std::floating_point<T> LearningRate(T rate)
      : value_(static_cast<double>(rate)) {}
  LearningRate(LearningRateSchedule schedule) : value_(std::move(schedule)) {}
  template <class F>
  requires std::is_invocable_r_v<Tensor, const F&, const Tensor&> &&
      (!std::is_same_v<F, LearningRateSchedule>)LearningRate(F rate)
      : value_(LearningRateSchedule(std::function<Tensor(const Tensor&)>(std::move(rate)))) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_schedule() const { return std::holds_alternative<LearningRateSchedule>(value_); }
  double number() const { return std::get<double>(value_); }
  const LearningRateSchedule& schedule() const { return std::get<LearningRateSchedule>(value_); }

  Json serialize() const;
  static LearningRate deserialize(const Json& json,
                                  std::source_location where = std::source_location::current());

 private:
  std::variant<double, LearningRateSchedule> value_ = 0.0;
};

// Numbers of steps need not be whole.
namespace schedules {

struct ExponentialDecayOptions {
  bool staircase = false;  // p counts whole periods only
  std::string name = "ExponentialDecay";
};
// initial_learning_rate * decay_rate ^ p,  p = step / decay_steps
LearningRateSchedule ExponentialDecay(double initial_learning_rate, double decay_steps, double decay_rate,
                                      const ExponentialDecayOptions& options = {},
                                      std::source_location where = std::source_location::current());

struct InverseTimeDecayOptions {
  bool staircase = false;
  std::string name = "InverseTimeDecay";
};
// initial_learning_rate / (1 + decay_rate * p),  p = step / decay_steps
LearningRateSchedule InverseTimeDecay(double initial_learning_rate, double decay_steps, double decay_rate,
                                      const InverseTimeDecayOptions& options = {},
                                      std::source_location where = std::source_location::current());

struct PiecewiseConstantDecayOptions {
  std::string name = "PiecewiseConstant";
};
// values[i] up to and including step boundaries[i], the last value after the last boundary.
LearningRateSchedule PiecewiseConstantDecay(const std::vector<int64_t>& boundaries,
                                            const std::vector<double>& values,
                                            const PiecewiseConstantDecayOptions& options = {},
                                            std::source_location where = std::source_location::current());

struct PolynomialDecayOptions {
  double end_learning_rate = 1e-4;
  double power = 1;
  bool cycle = false;  // starts again from a little lower each time the end is reached
  std::string name = "PolynomialDecay";
};
// (initial_learning_rate - end) * (1 - step / decay_steps) ^ power + end
LearningRateSchedule PolynomialDecay(double initial_learning_rate, double decay_steps,
                                     const PolynomialDecayOptions& options = {},
                                     std::source_location where = std::source_location::current());

struct CosineDecayOptions {
  double alpha = 0;  // the part of the rate that is left at the end
  std::string name = "CosineDecay";
  std::optional<double> warmup_target = {};  // reached in a straight line from initial_learning_rate
  double warmup_steps = 0;
};
// rate * ((1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2 + alpha)
LearningRateSchedule CosineDecay(double initial_learning_rate, double decay_steps,
                                 const CosineDecayOptions& options = {},
                                 std::source_location where = std::source_location::current());

struct CosineDecayRestartsOptions {
  double t_mul = 2;  // each period is this many times as long as the one before it
  double m_mul = 1;  // and starts from this part of its rate
  double alpha = 0;
  std::string name = "SGDRDecay";
};
LearningRateSchedule CosineDecayRestarts(double initial_learning_rate, double first_decay_steps,
                                         const CosineDecayRestartsOptions& options = {},
                                         std::source_location where = std::source_location::current());

}  // namespace schedules

}  // namespace lockstep::keras::optimizers
