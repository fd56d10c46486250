// The functions of a model that fit, evaluate and predict call with every batch (Keras' train_function,
// test_function and predict_function): one for each kind of step and each set of arrays that a batch may
// have. They belong to one thread at a time, as does the model whose variables they use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keras/training/source.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/data.h"

namespace lockstep::keras {

enum class StepKind : uint8_t { train, test, predict };

class StepFunctions {
 public:
  // Computes on a batch: the loss of train and test, the results of predict.
  using Body = std::function<TensorList(StepKind kind, const Batch& batch)>;

  // `name` is the model's; `replicas` says how its strategy runs a step. `clock` is told of the training
  // steps; it is not owned and has to live as long as the functions, which keep its address. Null:
  // nobody times them.
  StepFunctions(Body body, std::string name, ReplicaOptions replicas, observe::StepClock* clock)
      : body_(std::make_shared<const Body>(std::move(body))),
        name_(std::move(name)),
        replicas_(std::move(replicas)),
        clock_(clock) {}

  // Runs the step, tracing and compiling it where it is new; `eagerly`: op by op, on the current device or
  // the strategy's, with a batch that is nobody else's memory. After the first steps with a set of arrays and
  // shapes nothing is allocated, as long as nobody holds more than the last loss.
  void run(StepKind kind, const Batch& batch, bool eagerly, Tensor& loss, std::source_location where);
  // The steps of several batches as one launch, with the loss of the last. False: nothing was done; they have
  // to be run one by one.
  bool run(StepKind kind, const BatchReader::Runs& runs, Tensor& loss, std::source_location where);
  TensorList predict(const Batch& batch, bool eagerly, std::source_location where);

  // Forgets what was compiled: the body computes something else from now on.
  void forget() { functions_.clear(); }

  // What the step costs. The program is made for this call and let go.
  ProgramStatistics statistics(StepKind kind, const Batch& batch, std::source_location where) const;

 private:
  // Which arrays of a batch are there.
  struct Layout {
    explicit Layout(const Batch& batch);
    bool describes(const Batch& batch) const;
    Batch filled(std::span<const Tensor> arrays) const;

    size_t x;
    std::vector<bool> y;
    std::vector<bool> weights;
  };
  struct StepFunction {
    StepKind kind;
    Layout layout;
    std::unique_ptr<FunctionCore> core;
    TensorList inputs;
  };

  StepFunction& function_for(StepKind kind, const Batch& batch, std::source_location where);
  std::unique_ptr<FunctionCore> make(StepKind kind, const Layout& layout, observe::StepClock* clock,
                                     std::source_location where) const;

  std::shared_ptr<const Body> body_;
  std::string name_;
  ReplicaOptions replicas_;
  observe::StepClock* clock_;
  std::vector<std::unique_ptr<StepFunction>> functions_;
};

}  // namespace lockstep::keras
