// Penalties on weights and activations that are added to the loss.
//
// A Regularizer is a handle to what never changes: any thread may use it, and register_regularizer() may be
// called while others make or read some.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

class Regularizer {
 public:
  class Rule;
  Regularizer() = default;  // undefined
  // NOLINTBEGIN(google-explicit-constructor)
  Regularizer(const char* name, std::source_location where = std::source_location::current());
  Regularizer(const std::string& name, std::source_location where = std::source_location::current());
  Regularizer(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return rule_ != nullptr; }
  // A scalar. Differentiable.
  Tensor operator()(const Tensor& x, std::source_location where = std::source_location::current()) const;

  Json serialize() const;  // null where it is undefined
  static Regularizer deserialize(const Json& json,
                                 std::source_location where = std::source_location::current());

 private:
  std::shared_ptr<const Rule> rule_;
};

class Regularizer::Rule {
 public:
  virtual ~Rule() = default;
  virtual Tensor penalty(const Tensor& x) const = 0;
  virtual std::string class_name() const = 0;
  virtual Json config() const { return Json::object(); }
};

namespace regularizers {

Regularizer L1(double l1 = 0.01, std::source_location where = std::source_location::current());
Regularizer L2(double l2 = 0.01, std::source_location where = std::source_location::current());
struct L1L2Options {
  double l1 = 0;
  double l2 = 0;
};
Regularizer L1L2(const L1L2Options& options = {},
                 std::source_location where = std::source_location::current());
struct OrthogonalRegularizerOptions {
  double factor = 0.01;
  std::string mode = "rows";  // or columns
};
Regularizer OrthogonalRegularizer(const OrthogonalRegularizerOptions& options = {},
                                  std::source_location where = std::source_location::current());

// Makes one of your own readable from files: `make` gets what Rule::config() wrote.
void register_regularizer(const std::string& class_name, std::function<Regularizer(const Json& config)> make);

}  // namespace regularizers

}  // namespace lockstep::keras
