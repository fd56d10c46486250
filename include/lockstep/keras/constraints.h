// What weights are pulled back to after every update.
//
// A Constraint is a handle to what never changes: any thread may use it, and register_constraint() may be
// called while others make or read some.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

class Constraint {
 public:
  class Rule;
  Constraint() = default;  // undefined
  // NOLINTBEGIN(google-explicit-constructor)
  Constraint(const char* name, std::source_location where = std::source_location::current());
  Constraint(const std::string& name, std::source_location where = std::source_location::current());
  Constraint(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return rule_ != nullptr; }
  // The nearest allowed weights, by the constraint's own measure.
  Tensor operator()(const Tensor& weights,
                    std::source_location where = std::source_location::current()) const;

  Json serialize() const;  // null where it is undefined
  static Constraint deserialize(const Json& json,
                                std::source_location where = std::source_location::current());

 private:
  std::shared_ptr<const Rule> rule_;
};

class Constraint::Rule {
 public:
  virtual ~Rule() = default;
  virtual Tensor project(const Tensor& weights) const = 0;
  virtual std::string class_name() const = 0;
  virtual Json config() const { return Json::object(); }
};

namespace constraints {

struct MaxNormOptions {
  double max_value = 2;
  std::vector<int64_t> axis = {0};
};
Constraint MaxNorm(const MaxNormOptions& options = {},
                   std::source_location where = std::source_location::current());
Constraint NonNeg();
struct UnitNormOptions {
  std::vector<int64_t> axis = {0};
};
Constraint UnitNorm(const UnitNormOptions& options = {},
                    std::source_location where = std::source_location::current());
struct MinMaxNormOptions {
  double min_value = 0;
  double max_value = 1;
  double rate = 1;
  std::vector<int64_t> axis = {0};
};
Constraint MinMaxNorm(const MinMaxNormOptions& options = {},
                      std::source_location where = std::source_location::current());

// Makes one of your own readable from files: `make` gets what Rule::config() wrote.
void register_constraint(const std::string& class_name, std::function<Constraint(const Json& config)> make);

}  // namespace constraints

}  // namespace lockstep::keras
