// Metrics: figures that are gathered over the batches of an epoch.
//
// Their state are variables that are updated inside the compiled step; every example weighs the same over
// batches and replicas. A Metric is a handle: copies share the state.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/graph/variable.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

class MetricBase;

class Metric {
 public:
  Metric() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  // "accuracy" and "crossentropy" are resolved by the shapes of the first labels and predictions.
  Metric(const char* name, std::source_location where = std::source_location::current());
  Metric(const std::string& name, std::source_location where = std::source_location::current());
  Metric(std::shared_ptr<MetricBase> base) : base_(std::move(base)) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return base_ != nullptr; }
  const std::string& name() const;
  // Works eagerly and traced; inside replicas the state stays the same on each.
  void update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {},
                    std::source_location where = std::source_location::current()) const;
  // For metrics of one value, such as Mean.
  void update_state(const Tensor& values, std::source_location where = std::source_location::current()) const;
  Tensor result() const;
  void reset_state() const;
  std::vector<Variable> variables() const;

  Json serialize() const;
  static Metric deserialize(const Json& json, std::source_location where = std::source_location::current());
  const std::shared_ptr<MetricBase>& base() const { return base_; }

 private:
  std::shared_ptr<MetricBase> base_;
};

// What a metric is: derive from it to write one.
class MetricBase {
 public:
  explicit MetricBase(std::string name) : name_(std::move(name)) {}
  virtual ~MetricBase() = default;

  // Adds a batch to the state. What is summed over the batch must be summed over the replicas too
  // (all_reduce_sum) before it is assigned.
  virtual void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) = 0;
  virtual Tensor result() const = 0;  // a scalar mostly
  virtual std::string class_name() const = 0;
  virtual Json config() const;  // name and dtype; add your own
  // Default: every variable becomes zero.
  virtual void reset();
  // Called before the first update, outside of any trace, with the shapes of labels and predictions (none for
  // a metric of one value): a metric whose state or kind depends on them decides here.
  virtual void build(const Tensor& y_true, const Tensor& y_pred);

  const std::string& name() const { return name_; }
  const std::vector<Variable>& variables() const { return variables_; }
  bool built() const { return built_; }
  void ensure_built(const Tensor& y_true, const Tensor& y_pred);

 protected:
  // float32, zero.
  Variable add_variable(const std::string& name, const Shape& shape = {});
  void set_name(std::string name) { name_ = std::move(name); }

 private:
  std::string name_;
  std::vector<Variable> variables_;
  bool built_ = false;
};

}  // namespace lockstep::keras
