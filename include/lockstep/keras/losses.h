// Losses: by name (.loss = "mse") or made by a function of namespace losses.
//
// A loss gives the mean (or sum) over the whole batch. Inside a replica it gives the replica's share of
// that, so that the sum over the replicas is the mean over the global batch exactly, however unevenly the
// batch fell on them.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

enum class Reduction {
  sum_over_batch_size,      // divided by the number of losses in the global batch
  mean,                     // the same
  mean_with_sample_weight,  // divided by the sum of the weights
  sum,
  none,  // one loss an example
};

class Loss {
 public:
  class Rule;
  Loss() = default;  // none
  // NOLINTBEGIN(google-explicit-constructor)
  Loss(const char* name, std::source_location where = std::source_location::current());
  Loss(const std::string& name, std::source_location where = std::source_location::current());
  Loss(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return rule_ != nullptr; }
  // Weights broadcast against the losses, one an example mostly. The mask that y_pred carries is honoured.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {},
                    std::source_location where = std::source_location::current()) const;

  std::string name() const;
  Json serialize() const;
  static Loss deserialize(const Json& json, std::source_location where = std::source_location::current());
  const Rule& rule() const { return *rule_; }

 private:
  std::shared_ptr<const Rule> rule_;
};

// What a loss is: derive from it to write one.
class Loss::Rule {
 public:
  Rule(std::string name, Reduction reduction) : name_(std::move(name)), reduction_(reduction) {}
  virtual ~Rule() = default;
  // One loss for each example (or for each position of a sequence, image, ...): y_pred's shape without its
  // last dimension, mostly. y_true has been brought to y_pred's rank and, for floating-point labels, dtype.
  virtual Tensor losses(const Tensor& y_true, const Tensor& y_pred) const = 0;
  virtual std::string class_name() const = 0;
  virtual Json config() const;  // name and reduction; add your own

  const std::string& name() const { return name_; }
  Reduction reduction() const { return reduction_; }

 private:
  std::string name_;
  Reduction reduction_;
};

}  // namespace lockstep::keras
