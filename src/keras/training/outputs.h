// What compile() asks of a model's outputs: losses, their weights, metrics.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "keras/training/running_mean.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras {

class Outputs {
 public:
  // Both must outlive it.
  Outputs(ModelBase& model, const CompileOptions& options)
      : model_(model),
        options_(options),
        finite_steps_(Tensor::scalar(0.0F), {.name = "finite_steps", .trainable = false}) {}

  // Which loss and metrics belong to which output shows when the model is first run.
  void resolve(size_t count, size_t labels);

  // The sum over the outputs and of what the model's layers add; labels and weights are one for each output,
  // or (labels) for each that has a loss, undefined where there is none.
  Tensor total_loss(const TensorList& y, const TensorList& predictions, const TensorList& weights);
  // After a step with this loss over all replicas.
  void update_metrics(const Tensor& loss, const TensorList& y, const TensorList& predictions,
                      const TensorList& weights);

  std::vector<Metric> metrics() const;
  // The variables of the losses' means and of all metrics, as far as they are made.
  std::vector<Variable> variables() const;
  // Their values; and back. Metrics make their variables when they first see a batch: what is put back before
  // waits for that, so that no batch has to be read for its sake. Error(invalid_argument) by then where the
  // numbers differ.
  TensorList values() const;
  void restore(const TensorList& values);
  // Loss and metrics gathered since the last reset, sorted by name as Keras does.
  Logs results() const;
  void reset();

  // The loss that results() gave last.
  double last_read() const { return last_read_; }
  // Steps since the last reset before the first whose loss was not finite.
  int64_t finite_steps() const;

 private:
  struct Output {
    std::string name;
    Loss loss;
    double weight = 1;
    std::vector<Metric> metrics;
    std::vector<Metric> weighted_metrics;
    std::optional<RunningMean> loss_mean;  // where several outputs have a loss
  };

  void spread(const MetricsArg& metrics, std::vector<Metric> Output::*into,
              const std::vector<std::string>& names, const char* what);
  size_t losses() const;
  void fill_restored();
  // The label of output `i`, which is the `with_loss`-th of those with a loss.
  static const Tensor& label(const TensorList& y, size_t i, size_t with_loss, size_t outputs);

  ModelBase& model_;
  const CompileOptions& options_;
  bool resolved_ = false;
  std::vector<Output> outputs_;
  RunningMean loss_mean_;
  Variable finite_steps_;
  TensorList restored_;  // of variables(), until the last of them is made
  size_t filled_ = 0;    // how many of them are
  mutable double last_read_ = 0;
};

}  // namespace lockstep::keras
